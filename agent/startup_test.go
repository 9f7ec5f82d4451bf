package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// pullingRuntime is a runtime that pulled images for two seconds.
type pullingRuntime struct{ agent.Runtime }

func (pullingRuntime) ImagePullTime(podid.UID) time.Duration { return 2 * time.Second }

var created = time.Unix(1_700_000_000, 0)

func startedPod() *v1.Pod {
	started := metav1.NewTime(created.Add(time.Second))
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "a", CreationTimestamp: metav1.NewTime(created)},
		Status: v1.PodStatus{
			StartTime: &started,
			InitContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				StartedAt: started, FinishedAt: metav1.NewTime(created.Add(4 * time.Second)),
			}}}},
			ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}}},
		},
	}
}

func newPod(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status = v1.PodStatus{}
	return pod
}

func TestStartTracker(t *testing.T) {
	tests := map[string]struct {
		change func(first, started *v1.Pod)
		source podid.Source
		total  int
		sli    string
	}{
		"started": {change: func(_, _ *v1.Pod) {}, total: 1, sli: "5"},
		"with a volume of the node": {
			change: func(_, started *v1.Pod) {
				started.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}
			},
			total: 1,
		},
		"started before the agent": {change: func(first, started *v1.Pod) { first.Status = started.Status }},
		"waited for a node": {change: func(first, _ *v1.Pod) {
			first.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}
		}},
		"not all containers run": {change: func(_, started *v1.Pod) {
			started.Status.ContainerStatuses = append(started.Status.ContainerStatuses, v1.ContainerStatus{})
		}},
		"static": {change: func(_, _ *v1.Pod) {}, source: podid.File},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			observe, err := agent.NewStartObserver(pullingRuntime{}, registry)
			if err != nil {
				t.Fatal(err)
			}
			started := startedPod()
			first := newPod(started)
			test.change(first, started)
			if test.source == "" {
				test.source = podid.API
			}
			observe(source.Update{Source: test.source, Op: source.OpAdd}, first, created.Add(time.Second))
			for range 2 { // the second one changes nothing
				observe(source.Update{Source: test.source, Op: source.OpReconcile}, started, created.Add(10*time.Second))
			}
			if got := sampleCount(t, registry, "kubelet_pod_start_total_duration_seconds"); got != test.total {
				t.Errorf("got %d starts, want %d", got, test.total)
			}
			want := "# HELP kubelet_first_network_pod_start_sli_duration_seconds That duration of the first pod with a network of its own.\n" +
				"# TYPE kubelet_first_network_pod_start_sli_duration_seconds gauge\n" +
				"kubelet_first_network_pod_start_sli_duration_seconds " + map[bool]string{true: "0", false: test.sli}[test.sli == ""] + "\n"
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_first_network_pod_start_sli_duration_seconds"); err != nil {
				t.Error(err)
			}
		})
	}
}

func sampleCount(t *testing.T, registry *prometheus.Registry, name string) int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return int(family.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
