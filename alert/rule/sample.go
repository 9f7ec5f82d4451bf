package rule

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/view"
)

// sampleLabels returns labels as an alert of the rule has them.
func sampleLabels(r *Rule) alert.Labels {
	labels := alert.Labels{
		alert.LabelName: r.Name, alert.LabelJob: "herald", alert.LabelInstance: "sample", alert.LabelNode: "sample",
		alert.LabelScope: string(r.Scope),
	}
	if r.Scope != Node {
		labels[alert.LabelNamespace], labels[alert.LabelPod] = "sample", "sample"
	}
	if r.Scope == Container {
		labels[alert.LabelContainer] = "sample"
	}
	maps.Copy(labels, r.Labels)
	return labels
}

// sampleInput returns an input for templates. Loads are either known or not.
func sampleInput(scope Scope, isKnown bool) Input {
	in := Input{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Node: sampleNode(isKnown)}
	if scope != Node {
		in.Pod = samplePod(isKnown)
	}
	if scope == Container {
		in.Container = "sample"
	}
	return in
}

func sampleNode(isKnown bool) *view.NodeView {
	node := &view.NodeView{Metadata: view.Metadata{Name: "sample"}}
	if isKnown {
		one, ms := sampleWindows(), new(int64(1))
		node.Load = &view.NodeLoad{
			Level: "normal", Saturation: new(.5), CPU: view.NodeCPULoad{Use: one}, Memory: view.NodeMemoryLoad{Use: one}, PIDs: one,
			FileSystems: []view.FileSystemLoad{{Name: "data", Use: new(.5), InodeUse: new(.5), HoursToFull: new(5.)}},
		}
		node.Agent.Latencies = view.Latencies{StatusLagP99Ms: ms, OldestUnsentMs: ms, APIP99Ms: ms, RuntimeP99Ms: ms, RelistP99Ms: ms}
	}
	return node
}

func samplePod(isKnown bool) *view.PodView {
	pod := &view.PodView{
		Metadata: view.Metadata{Namespace: "sample", Name: "sample", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:     view.Spec{Containers: []view.Container{{Name: "sample", Kind: "regular"}}},
		Local: view.Status{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "sample", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}}},
	}
	if isKnown {
		one := sampleWindows()
		usage := view.UsageLoad{
			CPU:    view.CPULoad{Cores: one, LimitCores: new(1.), OfLimit: new(1.), Throttled: one},
			Memory: view.MemoryLoad{WorkingSetBytes: one, LimitBytes: new(int64(1)), OfLimit: new(1.)},
		}
		pod.Load = &view.PodLoad{UsageLoad: usage, PIDs: new(int64(1)), Containers: []view.ContainerLoad{{Name: "sample", UsageLoad: usage}}}
	}
	return pod
}

func sampleWindows() *view.Windows { return &view.Windows{Last1m: view.Window{Mean: 1, Max: 1}} }
