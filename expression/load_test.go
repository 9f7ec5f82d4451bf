package expression_test

import (
	"testing"

	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

func windows(mean float64) *view.Windows {
	return &view.Windows{Last1m: view.Window{Mean: mean, Max: mean}}
}

// newLoadedPod returns a pod of which everything was measured but the pressures.
func newLoadedPod() *view.PodView {
	pod := newPod()
	usage := view.UsageLoad{
		CPU:    view.CPULoad{Cores: windows(.25), OfLimit: new(.5), Throttled: windows(.1)},
		Memory: view.MemoryLoad{WorkingSetBytes: windows(600 << 20), OfLimit: new(.9)},
	}
	pod.Load = &view.PodLoad{UsageLoad: usage, PIDs: new(int64(7)), Containers: []view.ContainerLoad{{Name: "web", UsageLoad: usage}}}
	return pod
}

func loadedNode() *view.NodeView {
	n := node()
	n.Agent.Latencies.StatusLagP99Ms = new(int64(1500))
	n.Load = &view.NodeLoad{
		Saturation: new(.83), Culprit: "memory", Level: "busy", CPU: view.NodeCPULoad{Use: windows(0), Pressure: &view.Pressure{Some: new(.2)}},
		FileSystems: []view.FileSystemLoad{
			{Name: "data", Use: new(.4), HoursToFull: new(30.), ReadOnly: true}, {Name: "images", Use: new(.9), HoursToFull: new(2.5)},
		},
	}
	return n
}

func TestMatch_Load(t *testing.T) {
	tests := map[string]bool{
		"node.load.saturation > 0.8":                              true,
		"node.load.saturation > 0.8 && node.load.level == 'busy'": true,
		"node.load.culprit == 'memory'":                           true,
		"node.load.disk == 0.9 && node.load.hours_to_full < 3":    true,
		"node.load.read_only":                                     true,
		"node.load.psi_cpu > 0.1":                                 true,
		"has(node.load.cpu) && node.load.cpu == 0.0":              true,
		"has(node.load.memory)":                                   false,
		"node.load.lag_p99 == 1.5 && !has(node.load.cri_p99)":     true,
		"pod.load.memory > quantity('500Mi')":                     true,
		"pod.load.memory > 700000000":                             false, // compares a double with an int
		"pod.load.cpu > 0.2 && pod.load.cpu_limit >= 0.5":         true,
		"pod.load.throttled > 0.05 && pod.load.pids == 7":         true,
		"pod.containers.exists(c, c.load.memory_limit > 0.8)":     true,
	}
	environment := newEnvironment(t)
	for text, want := range tests {
		compiled, err := environment.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := compiled.Match(expression.Input{Now: now, Pod: newLoadedPod(), Node: loadedNode})
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

// TestL3_UnknownLoad checks that a load that was not measured is neither small nor large.
func TestL3_UnknownLoad(t *testing.T) {
	tests := map[string]bool{
		"pod.load.cpu < 1000":                                         false,
		"pod.load.cpu >= 0":                                           false,
		"!(pod.load.cpu > 1)":                                         false,
		"pod.load.cpu == 0.0":                                         false,
		"pod.load.cpu != 0.0":                                         false,
		"has(pod.load.cpu)":                                           false,
		"!has(pod.load.cpu)":                                          true,
		"pod.load.cpu > 1 || pod.restarts > 10":                       true,
		"pod.restarts > 10 || pod.load.cpu > 1":                       true,
		"pod.load.cpu > 1 && pod.restarts > 1000":                     false,
		"pod.containers.exists(c, c.load.cpu < 1 || c.name == 'web')": true,
		"pod.containers.all(c, c.load.cpu < 1)":                       false,
		"node.load.saturation < 2":                                    false,
		"node.load.read_only || !node.load.read_only":                 false,
		"node.load.level == 'idle' || node.load.level != 'idle'":      false,
	}
	environment := newEnvironment(t)
	for text, want := range tests {
		compiled, err := environment.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := compiled.Match(expression.Input{Now: now, Pod: newPod(), Node: node})
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestReadsLoad(t *testing.T) {
	environment := newEnvironment(t)
	for text, want := range map[string]bool{
		"pod.load.cpu > 1":                                  true,
		"has(pod.load.cpu)":                                 true,
		"pod.containers.exists(c, c.load.memory > 1)":       true,
		"pod.ready || [pod].exists(p, p.load.cpu > 1)":      true,
		"node.load.cpu > 0.5":                               false, // measured anyway
		"pod.name == 'load' || pod.label('load.cpu') == ''": false,
	} {
		compiled, err := environment.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := compiled.ReadsLoad(); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}
