package eviction_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

func priority(value int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &value } }

func static(pod *v1.Pod) { pod.Annotations = map[string]string{podid.SourceAnnotation: "file"} }

func requests(name v1.ResourceName, quantity string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(quantity)}
	}
}

// starve returns the verdict of a node with too little of the signal.
func starve(t *testing.T, layout eviction.Layout, signal eviction.Signal) *eviction.Starved {
	t.Helper()
	n := newNode(t, eviction.Settings{Hard: map[string]string{
		"pid.available": "10%", "memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
		"imagefs.inodesFree": "5%",
	}})
	n.layout = layout
	verdict := n.observe(0, figures{signal: 1})
	if verdict.Starved == nil {
		t.Fatalf("%s is not starved", signal)
	}
	return verdict.Starved
}

// ranking returns the order in which the pods go.
func ranking(low *eviction.Starved, pods []eviction.Pod) (names []string) {
	pods = slices.Clone(pods)
	for {
		victim := low.Victim(pods)
		if victim == nil {
			return names
		}
		names = append(names, victim.Pod.Name)
		pods = slices.DeleteFunc(pods, func(pod eviction.Pod) bool { return pod.Object == victim.Pod })
	}
}

func requireRanking(t *testing.T, low *eviction.Starved, pods []eviction.Pod, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, ranking(low, pods)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", low.Threshold.Signal, diff)
	}
}

func usingMemory(name string, bytes float64, mutate ...func(*v1.Pod)) eviction.Pod {
	return eviction.Pod{Object: heraldtest.NewPod(name, mutate...), Usage: &eviction.PodUsage{Memory: load.Known(bytes)}}
}

func TestEVI15_EVI18_MemoryRanking(t *testing.T) {
	pods := []eviction.Pod{
		usingMemory("below", 100*mebi, requests(v1.ResourceMemory, "200Mi")),
		usingMemory("low-priority-below", 100*mebi, requests(v1.ResourceMemory, "200Mi"), priority(-5)),
		usingMemory("above", 300*mebi, requests(v1.ResourceMemory, "200Mi")),
		usingMemory("far-above", 300*mebi, requests(v1.ResourceMemory, "100Mi")),
		usingMemory("above-low-priority", 201*mebi, requests(v1.ResourceMemory, "200Mi"), priority(-5)),
		usingMemory("critical", 900*mebi, priority(2_000_000_000)),
		usingMemory("static", 900*mebi, static),
		{Object: heraldtest.NewPod("unmeasured", priority(100))},
		usingMemory("idle", 0, requests(v1.ResourceMemory, "200Mi")),
	}
	for _, signal := range []eviction.Signal{eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable} {
		requireRanking(t, starve(t, eviction.OneDisk, signal), pods,
			"unmeasured", "above-low-priority", "far-above", "above", "low-priority-below", "below", "idle")
	}
	if victim := starve(t, eviction.OneDisk, eviction.MemoryAvailable).Victim(pods[5:7]); victim != nil {
		t.Errorf("evicted %s", victim.Pod.Name)
	}
}

func space(bytes, inodes float64) eviction.Space {
	return eviction.Space{Bytes: load.Known(bytes), Inodes: load.Known(inodes)}
}

func TestEVI16_BUG142_DiskRanking(t *testing.T) {
	using := func(name string, layer, logs, volumes eviction.Space, mutate ...func(*v1.Pod)) eviction.Pod {
		return eviction.Pod{Object: heraldtest.NewPod(name, mutate...), Usage: &eviction.PodUsage{
			Containers: []eviction.ContainerUsage{{Name: "main", Layer: layer, Logs: logs}}, Volumes: volumes,
		}}
	}
	small := space(1, 1)
	pods := []eviction.Pod{
		using("layer", space(300, 10), small, small), using("logs", small, space(200, 20), small), using("volumes", small, small, space(100, 30)),
		using("requested", space(400, 40), small, small, requests(v1.ResourceEphemeralStorage, "1Gi")),
	}
	for _, test := range []struct {
		layout eviction.Layout
		signal eviction.Signal
		want   []string
	}{
		{eviction.OneDisk, eviction.NodeFSAvailable, []string{"layer", "logs", "volumes", "requested"}},
		// Inodes cannot be requested.
		{eviction.OneDisk, eviction.ImageFSInodesFree, []string{"requested", "volumes", "logs", "layer"}},
		{eviction.ImagesApart, eviction.NodeFSAvailable, []string{"logs", "volumes", "layer", "requested"}},
		{eviction.ImagesApart, eviction.ImageFSAvailable, []string{"layer", "logs", "volumes", "requested"}},
		{eviction.ImagesApart, eviction.ContainerFSInodesFree, []string{"requested", "layer", "logs", "volumes"}},
		{eviction.OnlyImagesApart, eviction.NodeFSAvailable, []string{"layer", "logs", "volumes", "requested"}},
	} {
		requireRanking(t, starve(t, test.layout, test.signal), pods, test.want...)
	}
}

func TestEVI17_PIDRanking(t *testing.T) {
	using := func(name string, pids float64, mutate ...func(*v1.Pod)) eviction.Pod {
		return eviction.Pod{Object: heraldtest.NewPod(name, mutate...), Usage: &eviction.PodUsage{PIDs: load.Known(pids)}}
	}
	requireRanking(t, starve(t, eviction.OneDisk, eviction.PIDAvailable), []eviction.Pod{
		using("few", 5), using("many", 500), using("important", 5000, priority(10)), using("unimportant", 1, priority(-1)),
		{Object: heraldtest.NewPod("unmeasured")},
	}, "unimportant", "unmeasured", "many", "few", "important")
}

func TestEVI19_GracePeriod(t *testing.T) {
	for _, test := range []struct {
		soft     bool
		maximum  int
		own      *int64
		want     time.Duration
		scenario string
	}{
		{false, 100, new(int64(30)), time.Second, "hard"},
		{true, 0, new(int64(30)), time.Second, "no maximum is configured"},
		{true, 10, new(int64(30)), 10 * time.Second, "maximum"},
		{true, 60, new(int64(30)), 30 * time.Second, "the pod's"},
		{true, 60, nil, time.Minute, "the pod has none"},
		{true, -1, new(int64(30)), 30 * time.Second, "no limit"},
		{true, 60, new(int64(0)), time.Second, "the pod's is zero"},
	} {
		settings := eviction.Settings{MaxPodGracePeriod: test.maximum, Hard: map[string]string{"memory.available": "100"}}
		if test.soft {
			settings.Hard, settings.Soft = map[string]string{}, settings.Hard
			settings.SoftGracePeriod = map[string]string{"memory.available": "1s"}
		}
		n := newNode(t, settings)
		n.observe(0, figures{eviction.MemoryAvailable: 1})
		low := n.observe(time.Second, figures{eviction.MemoryAvailable: 1}).Starved
		pod := heraldtest.NewPod("web", func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = test.own })
		if got := low.Victim([]eviction.Pod{{Object: pod}}).GracePeriod; got != test.want {
			t.Errorf("%s: got %s, want %s", test.scenario, got, test.want)
		}
	}
}

func TestEVI21_EVI22_MemoryMessage(t *testing.T) {
	pod := heraldtest.NewPod("web", requests(v1.ResourceMemory, "1Gi"), func(pod *v1.Pod) {
		pod.Spec.Containers[0].Name = "c"
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "small"})
		pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	})
	usage := &eviction.PodUsage{Memory: load.Known(3 << 30), Containers: []eviction.ContainerUsage{
		{Name: "c", Memory: load.Known(2 << 30)}, {Name: "small"}, {Name: "init", Memory: load.Known(5)}, {Name: "debugger", Memory: load.Known(9)},
	}}
	got := starve(t, eviction.OneDisk, eviction.MemoryAvailable).Victim([]eviction.Pod{{Object: pod, Usage: usage}})
	const message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1. " +
		"Pod web was using 3Gi, request is 1Gi, has larger consumption of memory. " +
		"Container c was using 2Gi, request is 1Gi, has larger consumption of memory. " +
		"Container init was using 5, request is 0, has larger consumption of memory. "
	want := &eviction.Eviction{
		Pod: pod, GracePeriod: time.Second, Signal: "memory.available", Message: message, Annotations: map[string]string{
			"offending_containers": "c,init", "offending_containers_usage": "2Gi,5", "starved_resource": "memory",
			"offending_pod": "web", "offending_pod_usage": "3Gi",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEVI21_DiskMessage(t *testing.T) {
	pod := heraldtest.NewPod("web", func(pod *v1.Pod) { pod.Spec.Containers[0].Name = "c" })
	usage := &eviction.PodUsage{Containers: []eviction.ContainerUsage{{Name: "c", Layer: space(1024, 7), Logs: space(1024, 1)}}}
	for signal, want := range map[eviction.Signal]string{
		eviction.NodeFSAvailable: "The node was low on resource: ephemeral-storage. Threshold quantity: 100, available: 1. " +
			"Container c was using 2Ki, request is 0, has larger consumption of ephemeral-storage. ",
		eviction.NodeFSInodesFree: "The node was low on resource: inodes. Threshold quantity: 50, available: 1. ",
		eviction.PIDAvailable:     "The node was low on resource: pids. Threshold quantity: 100, available: 1. ",
	} {
		low := starve(t, eviction.OneDisk, signal)
		if got := low.Victim([]eviction.Pod{{Object: pod, Usage: usage}}).Message; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if low.NeedsDisk() != (signal != eviction.PIDAvailable) {
			t.Errorf("%s: NeedsDisk is %v", signal, low.NeedsDisk())
		}
	}
}

func TestEVI20_Status(t *testing.T) {
	pod := heraldtest.NewPod("web", func(pod *v1.Pod) { pod.Generation = 7 })
	status := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	eviction.SetStatus(&status, pod, "because", noon)
	eviction.SetStatus(&status, pod, "because", noon.Add(time.Hour)) // statuses are derived again and again
	if status.Phase != v1.PodFailed || status.Reason != "Evicted" || status.Message != "because" || len(status.Conditions) != 2 {
		t.Fatalf("got %+v", status)
	}
	got := status.Conditions[1]
	if got.Type != v1.DisruptionTarget || got.Status != v1.ConditionTrue || got.Reason != "TerminationByKubelet" || got.Message != "because" ||
		got.ObservedGeneration != 7 || !got.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("got %+v", got)
	}
}
