package table_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/internal/table"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newPod(change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", CreationTimestamp: metav1.NewTime(noon.Add(-90 * time.Second))},
		Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main"}, {Name: "log"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	return p
}

func running(name string, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: ready, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func waiting(name, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

func terminated(name string, code int32, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}}
}

func TestNewRow_Status(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	tests := map[string]struct {
		pod           *v1.Pod
		status, ready string
	}{
		"pending": {newPod(func(p *v1.Pod) { p.Status.Phase = v1.PodPending }), "Pending", "0/2"},
		"running": {newPod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{running("main", true), running("log", false)}
		}), "Running", "1/2"},
		"evicted":     {newPod(func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted" }), "Evicted", "0/2"},
		"terminating": {newPod(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }), "Terminating", "0/2"},
		"completed and deleted": {newPod(func(p *v1.Pod) {
			p.DeletionTimestamp, p.Status.Phase = &metav1.Time{Time: noon}, v1.PodSucceeded
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("main", 0, "Completed"), terminated("log", 0, "Completed")}
		}), "Completed", "0/2"},
		"first waiting container": {newPod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{waiting("main", "CrashLoopBackOff"), waiting("log", "ErrImagePull")}
		}), "CrashLoopBackOff", "0/2"},
		"one completed, one running, ready": {newPod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("main", 0, "Completed"), running("log", true)}
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}), "Running", "1/2"},
		"one completed, one running": {newPod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("main", 0, "Completed"), running("log", true)}
		}), "NotReady", "1/2"},
		"one completed, one failed": {newPod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("main", 0, "Completed"), terminated("log", 3, "Error")}
		}), "Error", "0/2"},
		"exit without reason": {newPod(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{terminated("main", 3, "")}
		}), "ExitCode:3", "0/2"},
		"second init container": {newPod(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "one"}, {Name: "two"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{terminated("one", 0, "Completed"), running("two", false)}
			p.Status.ContainerStatuses = []v1.ContainerStatus{waiting("main", "PodInitializing")}
		}), "Init:1/2", "0/2"},
		"failed init container": {newPod(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "one"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{terminated("one", 1, "Error")}
		}), "Init:Error", "0/2"},
		"sidecar": {newPod(func(p *v1.Pod) {
			started := true
			p.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{running("proxy", true)}
			p.Status.InitContainerStatuses[0].Started = &started
			p.Status.ContainerStatuses = []v1.ContainerStatus{running("main", true), running("log", true)}
		}), "Running", "3/3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if row := table.NewRow(test.pod, noon); row.Status != test.status || row.Ready != test.ready {
				t.Errorf("got %s %s, want %s %s", row.Ready, row.Status, test.ready, test.status)
			}
		})
	}
}

func TestPrinter_Alignment(t *testing.T) {
	restarted := newPod(func(p *v1.Pod) {
		p.Name, p.Status.PodIPs = "a-longer-name", []v1.PodIP{{IP: "10.0.0.7"}}
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}}
		p.Status.Conditions = []v1.PodCondition{{Type: "b", Status: v1.ConditionTrue}}
		c := waiting("main", "CrashLoopBackOff")
		c.RestartCount = 5
		c.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(noon.Add(-30 * time.Second))}
		p.Status.ContainerStatuses = []v1.ContainerStatus{c}
	})
	var out strings.Builder
	lines := table.NewPrinter(&out, table.Options{Namespaces: true, Wide: true})
	for _, rows := range [][]table.Row{{table.NewRow(newPod(nil), noon), table.NewRow(restarted, noon)}, {table.NewRow(newPod(nil), noon)}} {
		if err := lines.Print(rows...); err != nil {
			t.Fatal(err)
		}
	}
	want := `NAMESPACE   NAME            READY   STATUS             RESTARTS      AGE   IP         NODE   NOMINATED NODE   READINESS GATES
shop        web             0/2     Running            0             90s   <none>     n1     <none>           <none>
shop        a-longer-name   0/2     CrashLoopBackOff   5 (30s ago)   90s   10.0.0.7   n1     <none>           1/2
shop        web             0/2     Running            0             90s   <none>     n1     <none>           <none>
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPrintable(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"plain text":             {"CrashLoopBackOff", "CrashLoopBackOff"},
		"other scripts":          {"Größe 日本", "Größe 日本"},
		"escape sequence":        {"\x1b[2JRunning", "^[[2JRunning"},
		"eight-bit escape":       {"\u009b2JRunning", "2JRunning"},
		"second line":            {"Error\nNAME READY", "Error..."},
		"carriage return":        {"Error\rRunning", "Error..."},
		"tab":                    {"a\tb", "a b"},
		"bell and delete":        {"a\a\x7fb", "ab"},
		"bidirectional override": {"a\u202eb\u200bc", "abc"},
		"invalid UTF-8":          {"a\xffb", "a\ufffdb"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := table.Printable(test.text); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestPrinter_NoControlCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		p := newPod(func(p *v1.Pod) {
			p.Name, p.Namespace, p.Status.Reason, p.Spec.NodeName = text, text, text, text
			p.Status.NominatedNodeName, p.Status.PodIPs = text, []v1.PodIP{{IP: text}}
		})
		var out strings.Builder
		if err := table.NewPrinter(&out, table.Options{Namespaces: true, Wide: true, NoHeader: true}).Print(table.NewRow(p, noon)); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), unicode.IsControl) {
			t.Errorf("%q", out.String())
		}
	})
}
