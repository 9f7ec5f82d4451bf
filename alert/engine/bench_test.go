package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

func defaultRules(t fataler) *rule.Set {
	t.Helper()
	set, err := rule.Merge(nil, rule.Default())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return set
}

// newNode returns a node with pods, under the default rules.
func newNode(t fataler, pods int) *simulation {
	t.Helper()
	s := newSimulation(t, defaultRules(t), engine.Config{})
	for i := range pods {
		s.status(after(0), fmt.Sprint("web", i), nil)
		s.load(after(0), fmt.Sprint("web", i), new(0.5))
	}
	return s
}

// TestIdle checks that a node with 110 pods and the default rules evaluates nothing while nothing happens, but for its timers.
func TestIdle(t *testing.T) {
	s := newNode(t, 110)
	before := s.engine.Evaluations()
	timers := 0
	for next := s.engine.Next(); !next.IsZero() && next.Before(after(24*time.Hour)); next = s.engine.Next() {
		timers++
		s.advance(next)
	}
	if got := s.engine.Evaluations() - before; got > 110 {
		t.Errorf("got %d evaluations at %d instants in 24 hours, want at most one for each pod", got, timers)
	}
}

// BenchmarkTransition is one version of the status of one of 110 pods under the default rules: its container ends, or is ready again.
func BenchmarkTransition(b *testing.B) {
	s := newNode(b, 110)
	pod := s.pods["web50"]
	before, stopped := pod.status.DeepCopy(), pod.status.DeepCopy()
	ready(false)(stopped)
	toStopped, toRunning := transition.AppendPod(nil, before, stopped), transition.AppendPod(nil, stopped, before)
	runningView := pod.view()
	pod.status = *stopped
	stoppedView := pod.view()
	at := after(time.Minute)
	evaluations := s.engine.Evaluations()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at = at.Add(20 * time.Minute)
		change := engine.PodChange{UID: "web50", View: stoppedView, Changes: toStopped, Trigger: rule.OnStatus, At: at}
		if i%2 == 1 {
			change.View, change.Changes = runningView, toRunning
		}
		s.engine.PodChanged(change)
		s.engine.Take()
	}
	b.ReportMetric(float64(s.engine.Evaluations()-evaluations)/float64(b.N), "evaluations/op")
}

// BenchmarkNodeChanged is a change of the node with 110 pods: rules that read it are evaluated for all of them.
func BenchmarkNodeChanged(b *testing.B) {
	s := newNode(b, 110)
	at := after(time.Minute)
	node := s.node
	evaluations := s.engine.Evaluations()
	for b.Loop() {
		at = at.Add(time.Second)
		s.engine.NodeChanged(&node, rule.OnNode, at)
		s.engine.Take()
	}
	b.ReportMetric(float64(s.engine.Evaluations()-evaluations)/float64(b.N), "evaluations/op")
}

// BenchmarkSample is a sample of the load of 110 pods.
func BenchmarkSample(b *testing.B) {
	s := newNode(b, 110)
	views := map[podid.UID]*view.PodView{}
	for uid, pod := range s.pods {
		views[podid.UID(uid)] = pod.view()
	}
	at := after(time.Minute)
	for b.Loop() {
		at = at.Add(10 * time.Second)
		for uid, v := range views {
			s.engine.PodChanged(engine.PodChange{UID: uid, View: v, Trigger: rule.OnLoad, At: at})
		}
		s.engine.Take()
	}
}

// BenchmarkAlertMemory reports the bytes that one firing alert takes.
func BenchmarkAlertMemory(b *testing.B) {
	const alerts = 1000
	measure := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for b.Loop() {
		s := newSimulation(b, parseRules(b, `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
  labels: {severity: warning}
  annotations: {summary: '{{ $labels.namespace }}/{{ $labels.pod }} is not ready: look at its probes, and what it waits for'}
`), engine.Config{MaxPerRule: alerts})
		for i := range alerts {
			s.status(after(0), fmt.Sprint("web", i), nil)
		}
		before := measure()
		for i := range alerts {
			s.status(after(time.Minute), fmt.Sprint("web", i), ready(false))
			s.edges, s.log = nil, nil
		}
		b.ReportMetric((float64(measure())-float64(before))/alerts, "bytes/alert")
		if got := s.engine.Health().Firing; got != alerts {
			b.Fatalf("got %d", got)
		}
	}
}
