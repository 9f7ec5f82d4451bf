package stats_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats"
)

// fakeRuntime measures one pod that uses a quarter of a core.
type fakeRuntime struct {
	mu      sync.Mutex
	start   time.Time
	calls   int
	hanging bool
	err     error
}

func (r *fakeRuntime) ListPodStats(ctx context.Context) ([]load.PodSample, error) {
	r.mu.Lock()
	r.calls++
	hanging, err := r.hanging, r.err
	r.mu.Unlock()
	if hanging {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return []load.PodSample{{
		UID: "a", Usage: load.Usage{CPUSeconds: load.Known(time.Since(r.start).Seconds() / 4), WorkingSet: load.Known(100)},
	}}, nil
}

func (r *fakeRuntime) set(hanging bool, err error) (calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls, r.calls, r.hanging, r.err = r.calls, 0, hanging, err
	return calls
}

// startCollector runs a collector until the end of the test.
func startCollector(t *testing.T, config stats.Config) *stats.Collector {
	t.Helper()
	config.Machine = newMachine(t, "testdata/ok")
	collector, err := stats.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collector.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return collector
}

func cpuOf(t *testing.T, collector *stats.Collector, uid podid.UID) load.Value {
	t.Helper()
	synctest.Wait()
	pod, found := collector.Pod(uid)
	if !found {
		t.Fatalf("pod %s has no load", uid)
	}
	return pod.CPU.OneMinute.Mean
}

func TestCollector_Pods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := &fakeRuntime{start: time.Now()}
		collector := startCollector(t, stats.Config{Pods: runtime})
		time.Sleep(10 * time.Minute)
		if calls := runtime.set(false, nil); calls < 9 || calls > 12 {
			t.Errorf("got %d measurements in ten minutes in which nobody asked, want about 10", calls)
		}
		requireValue(t, "cpu", cpuOf(t, collector, "a"), .25)
		if _, found := collector.Pod("b"); found {
			t.Error("an unknown pod has a load")
		}
		for range 10 {
			time.Sleep(time.Minute)
			requireValue(t, "cpu", cpuOf(t, collector, "a"), .25)
		}
		if calls := runtime.set(false, nil); calls < 36 || calls > 46 {
			t.Errorf("got %d measurements in ten minutes in which somebody asked, want about 40", calls)
		}
		samples, at := collector.PodSamples()
		if len(samples) != 1 || time.Since(at) > 20*time.Second {
			t.Errorf("got %v of %v", samples, at)
		}
	})
}

func TestL3_RuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := &fakeRuntime{start: time.Now()}
		collector := startCollector(t, stats.Config{Pods: runtime})
		time.Sleep(3 * time.Minute)
		runtime.set(true, nil)
		time.Sleep(10 * time.Minute)
		if cpuOf(t, collector, "a").IsKnown() {
			t.Error("the load of a pod is known although the runtime hangs")
		}
		if samples, _ := collector.PodSamples(); samples != nil {
			t.Errorf("got samples %v although the runtime hangs", samples)
		}
		if node := collector.Node(); !node.MemoryBytes.WorkingSet.IsKnown() {
			t.Error("a runtime that hangs made the numbers of the node unknown")
		}
		runtime.set(false, errors.New("broken"))
		time.Sleep(time.Minute)
		runtime.set(false, nil)
		time.Sleep(2 * time.Minute)
		requireValue(t, "cpu", cpuOf(t, collector, "a"), .25)
	})
}

// While somebody asks, three ticks are less than a minute: each takes 15 seconds and the deadline of the call.
func TestL3_ThreeTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := &fakeRuntime{start: time.Now()}
		collector := startCollector(t, stats.Config{Pods: runtime})
		for range 60 {
			cpuOf(t, collector, "a")
			time.Sleep(time.Second)
		}
		runtime.set(true, nil)
		known := 0
		for calls := 0; calls < 5; calls += runtime.set(true, nil) {
			if cpuOf(t, collector, "a").IsKnown() {
				known++
			}
			time.Sleep(time.Second)
		}
		// Three calls of 5 seconds, with about 15 seconds before each.
		if known < 40 || known > 75 {
			t.Errorf("the load was known for %d s after the runtime hung, want three ticks", known)
		}
		if samples, _ := collector.PodSamples(); samples != nil {
			t.Errorf("got samples %v although the runtime hangs", samples)
		}
		runtime.set(false, nil)
		time.Sleep(time.Minute)
		requireValue(t, "cpu", cpuOf(t, collector, "a"), .25)
	})
}

func TestCollector_Level(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var levels []load.Level
		collector := startCollector(t, stats.Config{OnLevel: func(_, after load.Node) { levels = append(levels, after.Level) }})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		// The recorded machine has a memory pressure of 10 percent.
		if node := collector.Node(); node.Level != load.LevelNormal || node.Saturation.Culprit != load.Memory || len(levels) != 0 {
			t.Errorf("got level %s because of %q, changes %v", node.Level, node.Saturation.Culprit, levels)
		}
	})
}

func TestCollector_MachineRequired(t *testing.T) {
	if _, err := stats.New(stats.Config{}); err == nil {
		t.Error("got no error without a machine")
	}
}

func TestCollector_Callbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes, pods atomic.Int32
		runtime := &fakeRuntime{start: time.Now()}
		collector := startCollector(t, stats.Config{
			Pods: runtime, OnNode: func() { nodes.Add(1) }, OnPods: func() { pods.Add(1) },
		})
		for range 20 {
			time.Sleep(30 * time.Second)
			if _, found := collector.PeekPod("a"); !found {
				t.Fatal("the pod has no load")
			}
		}
		calls := runtime.set(false, nil)
		if got := int(pods.Load()); got != calls || got > 12 {
			t.Errorf("got %d callbacks after %d measurements of pods in ten minutes, want one each, about 10: peeking does not count", got, calls)
		}
		if got := nodes.Load(); got < 50 || got > 70 {
			t.Errorf("got %d callbacks of the node in ten minutes, want about 60", got)
		}
	})
}
