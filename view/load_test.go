package view_test

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/view"
)

// TestL3_UnknownIsAbsent checks that what was not measured is absent in JSON, and what is zero is not.
func TestL3_UnknownIsAbsent(t *testing.T) {
	zero := load.Window{Mean: load.Known(0), Max: load.Known(0)}
	for name, test := range map[string]struct {
		view any
		want string
	}{
		"node": {
			view.NewNodeLoad(load.Node{Level: load.LevelUnknown, FileSystems: []load.FileSystemLoad{{FileSystem: load.FileSystem{Name: "data"}}}}, now),
			`{"level":"unknown","cpu":{},"memory":{},"io":{},"network":{},"fileSystems":[{"name":"data"}]}`,
		},
		"idle node": {
			view.NewNodeLoad(load.Node{
				Level: load.LevelIdle, Saturation: load.Saturation{Value: load.Known(0)}, Pressure: load.Pressure{IO: load.Known(0)},
				PIDs: load.Windows{OneMinute: zero, FiveMinutes: zero, FifteenMinutes: zero},
			}, now),
			`{"saturation":0,"level":"idle","since":"2026-11-15T14:01:03.344Z","cpu":{},"memory":{},"io":{"pressure":{"some":0}},` +
				`"pids":{"last1m":{"mean":0,"max":0},"last5m":{"mean":0,"max":0},"last15m":{"mean":0,"max":0}},"network":{}}`,
		},
		"pod": {
			view.NewPodLoad(load.Pod{Containers: []load.Container{{Name: "main"}}}, heraldtest.NewPod("web")),
			`{"cpu":{},"memory":{},"io":{},"restarts":0,"readinessFlips":0,"containers":[{"name":"main","cpu":{},"memory":{},"io":{}}]}`,
		},
	} {
		encoded, err := json.Marshal(test.view)
		if err != nil || string(encoded) != test.want {
			t.Errorf("%s: got %s, %v, want %s", name, encoded, err, test.want)
		}
	}
}

func TestNewPodLoad_Limits(t *testing.T) {
	limits := func(cpu, memory string) v1.ResourceRequirements {
		list := v1.ResourceList{}
		if cpu != "" {
			list[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			list[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return v1.ResourceRequirements{Limits: list}
	}
	pod := heraldtest.NewPod("web", heraldtest.WithContainers(
		v1.Container{Name: "a", Resources: limits("500m", "100")}, v1.Container{Name: "b", Resources: limits("", "300")},
	))
	pod.Spec.InitContainers = []v1.Container{{Name: "init"}} // without limits: it does not run as long as the others
	measured := load.Window{Mean: load.Known(100), Max: load.Known(100)}
	usage := load.UsageLoad{Memory: load.Windows{OneMinute: measured, FiveMinutes: measured, FifteenMinutes: measured}}
	sample := load.Pod{UsageLoad: usage, Containers: []load.Container{{Name: "a", UsageLoad: usage}, {Name: "b"}, {Name: "unknown"}}}
	got := view.NewPodLoad(sample, pod)
	if got.CPU.LimitCores != nil || got.Memory.OfLimit == nil || *got.Memory.OfLimit != .25 || *got.Memory.LimitBytes != 400 {
		t.Errorf("got CPU limit %v, which b does not have, and memory %+v, want a quarter of the sum", got.CPU.LimitCores, got.Memory)
	}
	if a := got.Containers[0]; *a.CPU.LimitCores != .5 || a.CPU.OfLimit != nil || *a.Memory.OfLimit != 1 {
		t.Errorf("got %+v, want an unknown share of half a core, and all memory", a)
	}
	if b := got.Containers[1]; b.CPU.LimitCores != nil || *b.Memory.LimitBytes != 300 || b.Memory.OfLimit != nil {
		t.Errorf("got %+v, want no limit of CPU", b)
	}
	pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	if got := view.NewPodLoad(sample, pod); got.Memory.LimitBytes != nil {
		t.Errorf("got %v, want no limit: that of a sidecar is missing", *got.Memory.LimitBytes)
	}
	pod.Spec.Resources = new(limits("2", "1000"))
	if got := view.NewPodLoad(sample, pod); *got.CPU.LimitCores != 2 || *got.Memory.OfLimit != .1 {
		t.Errorf("got %+v, want the limits of the pod", got.UsageLoad)
	}
}
