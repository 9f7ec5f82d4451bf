package load_test

import (
	"math"
	"testing"
	"time"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

func requireValue(t *testing.T, what string, got load.Value, want float64) {
	t.Helper()
	if number, known := got.Get(); !known || math.Abs(number-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s: got %v (known %v), want %v", what, number, known, want)
	}
}

// machineSample returns a sample of a machine with four CPUs, of which one and a half are in use.
func machineSample(at time.Duration, workingSet float64) load.MachineSample {
	seconds := at.Seconds()
	return load.MachineSample{
		CPUs: load.Known(4), CPUTotal: load.Known(4 * seconds), CPUBusy: load.Known(1.5 * seconds),
		CPUIOWait: load.Known(.4 * seconds), CPUSteal: load.Known(0),
		MemoryTotal: load.Known(1000), MemoryAvailable: load.Known(1000 - workingSet), WorkingSet: load.Known(workingSet),
		PIDs: load.Known(100), MaxPIDs: load.Known(1000),
		Network: load.Network{RxBytes: load.Known(50 * seconds), TxBytes: load.Known(5 * seconds)},
		FileSystems: []load.FileSystem{{
			Name: "data", Capacity: load.Known(1000), Used: load.Known(400), Available: load.Known(500), ReadOnly: true,
		}},
	}
}

func TestNodeMonitor(t *testing.T) {
	var monitor load.NodeMonitor
	at := time.Duration(0)
	for range 12 {
		at += 10 * time.Second
		monitor.Add(at, machineSample(at, 900))
	}
	node := monitor.Load(at)
	requireValue(t, "cpu", node.CPU.OneMinute.Mean, 1.5/4)
	requireValue(t, "iowait", node.IOWait.FiveMinutes.Mean, .1)
	requireValue(t, "steal", node.Steal.OneMinute.Mean, 0)
	requireValue(t, "cores", node.Cores, 1.5)
	requireValue(t, "memory", node.Memory.FifteenMinutes.Max, .9)
	requireValue(t, "received", node.Received.OneMinute.Mean, 50)
	requireValue(t, "use of the disk", node.FileSystems[0].Use, 400./900)
	requireValue(t, "saturation", node.Saturation.Value, .2/.3)
	if node.Saturation.Culprit != load.Memory || node.Level != load.LevelBusy || !node.FileSystems[0].ReadOnly {
		t.Errorf("got culprit %q, level %s, read-only %v", node.Saturation.Culprit, node.Level, node.FileSystems[0].ReadOnly)
	}
}

func TestL3_NodeWithoutSamples(t *testing.T) {
	var monitor load.NodeMonitor
	for at := 10 * time.Second; at <= 2*time.Minute; at += 10 * time.Second {
		monitor.Add(at, machineSample(at, 500))
	}
	node := monitor.Load(2*time.Minute + load.NodeMaxAge + time.Second)
	if node.Saturation.Value.IsKnown() || node.CPU.OneMinute.Mean.IsKnown() || node.MemoryBytes.WorkingSet.IsKnown() ||
		node.Cores.IsKnown() || len(node.FileSystems) != 0 {
		t.Errorf("a node without recent samples has %+v", node)
	}
	if node.Level != load.LevelIdle {
		t.Errorf("got level %s, want the last one", node.Level)
	}
}

func podSample(uid podid.UID, containerID string, cpu, workingSet float64) load.PodSample {
	usage := load.Usage{
		CPUSeconds: load.Known(cpu), WorkingSet: load.Known(workingSet),
		Throttling: load.Throttling{Periods: load.Known(cpu * 10), Throttled: load.Known(cpu)},
	}
	return load.PodSample{
		UID: uid, Usage: usage, PIDs: load.Known(3),
		Containers: []load.ContainerSample{{Name: "web", ID: containerID, Usage: usage, WritableLayer: load.Known(7)}},
	}
}

func TestPodMonitor(t *testing.T) {
	const maxAge = 45 * time.Second
	var monitor load.PodMonitor
	for i := range 5 {
		at := time.Duration(i) * 15 * time.Second
		monitor.Add(at, []load.PodSample{podSample("a", "1", float64(i)*3, 100), podSample("b", "2", 0, 5)})
	}
	pod, found := monitor.Load("a", time.Minute, maxAge)
	if !found {
		t.Fatal("the pod has no load")
	}
	requireValue(t, "cpu", pod.CPU.OneMinute.Mean, .2)
	requireValue(t, "memory", pod.Memory.FiveMinutes.Max, 100)
	requireValue(t, "throttled", pod.Throttled.OneMinute.Mean, .1)
	requireValue(t, "container", pod.Containers[0].CPU.OneMinute.Mean, .2)
	requireValue(t, "layer", pod.Containers[0].WritableLayer, 7)
	idle, _ := monitor.Load("b", time.Minute, maxAge)
	requireValue(t, "cpu of an idle pod", idle.CPU.OneMinute.Mean, 0)
	requireValue(t, "throttled share of an idle pod", idle.Throttled.OneMinute.Mean, 0)

	// A new instance of the container starts anew; the other pod is gone.
	monitor.Add(75*time.Second, []load.PodSample{podSample("a", "9", .1, 50)})
	pod, _ = monitor.Load("a", 75*time.Second, maxAge)
	if pod.Containers[0].CPU.OneMinute.Mean.IsKnown() {
		t.Error("the first sample of an instance has a rate")
	}
	if _, found := monitor.Load("b", 75*time.Second, maxAge); found || monitor.Size() != 1 {
		t.Error("a pod that is gone has a load")
	}
}

func TestL3_PodStale(t *testing.T) {
	var monitor load.PodMonitor
	monitor.Add(0, []load.PodSample{podSample("a", "1", 0, 100)})
	pod, found := monitor.Load("a", time.Hour, 45*time.Second)
	if !found || pod.Memory.OneMinute.Mean.IsKnown() || pod.PIDs.IsKnown() || pod.Containers[0].WritableLayer.IsKnown() {
		t.Errorf("got %+v, want everything unknown", pod)
	}
}

// TestNodeMonitor_FirstSample checks that the first sample, from which the use of the CPU is not known, sets no level.
func TestNodeMonitor_FirstSample(t *testing.T) {
	var monitor load.NodeMonitor
	sample := load.MachineSample{CPUTotal: load.Known(100), CPUBusy: load.Known(50), PIDs: load.Known(1), MaxPIDs: load.Known(100)}
	monitor.Add(0, sample)
	if node := monitor.Load(0); node.Level != load.LevelUnknown || !node.Saturation.Value.IsKnown() {
		t.Errorf("got level %s, saturation %v, want no level", node.Level, node.Saturation)
	}
	sample.CPUTotal, sample.CPUBusy = load.Known(110), load.Known(60)
	monitor.Add(10*time.Second, sample)
	if node := monitor.Load(10 * time.Second); node.Level != load.LevelSaturated || node.LevelSince != 10*time.Second {
		t.Errorf("got level %s since %v, want saturated", node.Level, node.LevelSince)
	}
}
