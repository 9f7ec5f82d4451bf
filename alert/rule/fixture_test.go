package rule_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

var now = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

var web = recent.Object{Namespace: "shop", Pod: "cart", Container: "web"}

// newInput returns a healthy pod with one container on a healthy node.
func newInput() rule.Input {
	return rule.Input{Now: now, Pod: newPod(), Container: "web", Node: newNode(), Recent: &recent.Counter{}}
}

func newPod() *view.PodView {
	usage := view.UsageLoad{
		CPU:    view.CPULoad{Cores: windows(.1), LimitCores: new(1.), OfLimit: new(.1), Throttled: windows(0)},
		Memory: view.MemoryLoad{WorkingSetBytes: windows(10 << 20), LimitBytes: new(int64(64 << 20)), OfLimit: new(.16)},
	}
	return &view.PodView{
		Metadata: view.Metadata{Namespace: "shop", Name: "cart", Labels: map[string]string{"app": "cart"}, OwnerKind: "ReplicaSet"},
		Source:   "api",
		Spec:     view.Spec{Containers: []view.Container{{Name: "web", Kind: "regular", Image: "example.test/web:1"}}},
		Local: view.Status{Status: v1.PodStatus{
			Phase: v1.PodRunning, StartTime: &metav1.Time{Time: now.Add(-time.Minute)},
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
			ContainerStatuses: []v1.ContainerStatus{{
				Name: "web", Ready: true, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			}},
		}},
		Lag: view.Lag{State: explain.SyncSynced}, Worker: view.Worker{Stage: "sync"},
		Load: &view.PodLoad{UsageLoad: usage, Containers: []view.ContainerLoad{{Name: "web", UsageLoad: usage}}},
	}
}

func newNode() *view.NodeView {
	n := &view.NodeView{
		Metadata: view.Metadata{Name: "n1"}, Pods: view.PodCounts{Total: 1, Max: 110}, Lag: view.Lag{State: explain.SyncSynced},
		Connection: view.Connection{Cluster: "https://10.0.0.1:6443", Lease: &view.Lease{}, CertificateExpires: view.NewTime(now.Add(300 * 24 * time.Hour))},
		Local: view.NodeStatus{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue}, {Type: v1.NodeDiskPressure, Status: v1.ConditionFalse},
		}}},
		Sources: []view.Source{{Name: "file"}, {Name: "api"}},
		Agent:   view.Agent{StartedAt: view.NewTime(now.Add(-time.Hour))},
		Load: &view.NodeLoad{
			Level: "normal", Saturation: new(.3), Culprit: "cpu", CPU: view.NodeCPULoad{Use: windows(.3)},
			FileSystems: []view.FileSystemLoad{{Name: "data", Use: new(.4)}},
		},
		Alerting: &view.Alerting{Rules: 40},
	}
	n.Agent.Latencies.RelistP99Ms = new(int64(12))
	return n
}

func windows(mean float64) *view.Windows {
	return &view.Windows{Last1m: view.Window{Mean: mean, Max: mean}}
}

// parse returns the only rule of a file with the given fields of it.
func parse(tb testing.TB, fields string) *rule.Rule {
	tb.Helper()
	file, err := rule.Parse([]byte(inFile(fields)), "x.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return file.Rules[0]
}

// inFile returns a rule file with one rule, which starts at line 6.
func inFile(fields string) string {
	return "apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: g\n  rules:\n  - " +
		strings.ReplaceAll(strings.TrimSpace(fields), "\n", "\n    ") + "\n"
}

// findDefault returns a default rule.
func findDefault(tb testing.TB, name string) *rule.Rule {
	tb.Helper()
	for _, r := range rule.Default().Rules {
		if r.Name == name {
			return r
		}
	}
	tb.Fatalf("there is no default rule %s", name)
	return nil
}

func waiting(reason string) *v1.ContainerStateWaiting {
	return &v1.ContainerStateWaiting{Reason: reason}
}

// labelsOf returns the labels that the engine gives to an alert of the rule.
func labelsOf(r *rule.Rule) alert.Labels {
	labels := alert.Labels{"alertname": r.Name, "job": "herald", "instance": "n1", "node": "n1", "scope": string(r.Scope)}
	if r.Scope != rule.Node {
		labels["namespace"], labels["pod"] = "shop", "cart"
	}
	if r.Scope == rule.Container {
		labels["container"] = "web"
	}
	maps.Copy(labels, r.Labels)
	return labels
}
