package engine_test

import (
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

const (
	oomRule = `
- alert: OOM
  on: container
  expr: container.ended('OOMKilled', '10m') >= 1
`
	notReadyRule = `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
  for: 5m
`
	memoryRule = `
- alert: Memory
  on: container
  expr: container.load.memory_limit > 0.9
  for: 10m
  keep_firing_for: 5m
`
	runtimeRule = `
- alert: RuntimeDown
  on: node
  expr: "!node.runtime_ready"
`
)

// TestOOMOfMilliseconds is the case that no scrape can see: the container is killed and runs again 3 ms later.
func TestOOMOfMilliseconds(t *testing.T) {
	s := newSimulation(t, parseRules(t, oomRule), engine.Config{})
	s.status(after(0), "web", nil)
	s.status(after(10*time.Second), "web", end("OOMKilled"))
	s.expect("10s OOM web ->firing")
	s.advance(after(10*time.Minute + 9*time.Second))
	s.expect()
	if next := s.engine.Next(); !next.Equal(after(10*time.Minute + 10*time.Second)) {
		t.Errorf("got the next instant %s", next)
	}
	s.advance(after(time.Hour))
	s.expect("10m10s OOM web firing>resolved", "25m10s OOM web resolved>-")
	if next := s.engine.Next(); !next.IsZero() {
		t.Errorf("got the next instant %s, want none", next)
	}
}

func TestForAndLabels(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule+`  labels: {severity: warning, team: shop}
  annotations: {summary: '{{ $labels.pod }} is not ready'}
`), engine.Config{})
	s.status(after(0), "web", nil)
	s.status(after(time.Minute), "web", ready(false))
	s.status(after(2*time.Minute), "web", end("Error")) // still not ready
	s.expect("1m0s NotReady web ->pending")
	s.advance(after(7 * time.Minute))
	s.expect("6m0s NotReady web pending>firing")
	a := s.find("NotReady", "web")
	if got := a.Key(); got != `{alertname="NotReady",instance="n1:1",job="herald",namespace="shop",node="n1",pod="web",scope="pod",severity="warning",team="shop"}` {
		t.Errorf("got %s", got)
	}
	if !a.ActiveAt.Equal(after(time.Minute)) || !a.StartsAt.Equal(after(6*time.Minute)) || a.Annotations["summary"] != "web is not ready" || a.Episode == 0 {
		t.Errorf("got %+v", a)
	}
	s.status(after(8*time.Minute), "web", ready(true))
	s.expect("8m0s NotReady web firing>resolved")
}

// TestTimerBeforeLateCall checks that what was due before a change happens before it, although nobody called Advance.
func TestTimerBeforeLateCall(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.status(after(time.Hour), "web", ready(true))
	s.expect("0s NotReady web ->pending", "5m0s NotReady web pending>firing", "1h0m0s NotReady web firing>resolved")
}

// TestUnknownFreezes checks that a runtime that does not answer, or a load that is not known, changes no state and stops all clocks.
func TestUnknownFreezes(t *testing.T) {
	s := newSimulation(t, parseRules(t, memoryRule+oomRule), engine.Config{})
	s.status(after(0), "web", nil)
	s.load(after(0), "web", new(0.95))
	s.expect("0s Memory web ->pending")
	s.changeNode(after(4*time.Minute), rule.OnNode, func(v *view.NodeView) { v.Runtime.Stale = true })
	s.expect("4m0s Memory web pending frozen")
	s.advance(after(time.Hour))
	s.expect()
	if got := s.engine.Health(); got.RulesUnknown != 2 || got.Pending != 1 {
		t.Errorf("got %+v, want both rules unknown after ten minutes", got)
	}
	s.changeNode(after(time.Hour), rule.OnNode, func(v *view.NodeView) { v.Runtime.Stale = false })
	s.advance(after(65 * time.Minute))
	s.load(after(65*time.Minute), "web", nil)
	s.load(after(75*time.Minute), "web", new(0.96))
	s.advance(after(80 * time.Minute))
	s.expect("1h0m0s Memory web pending", "1h5m0s Memory web pending frozen", "1h15m0s Memory web pending", "1h16m0s Memory web pending>firing")
	s.load(after(81*time.Minute), "web", new(0.5))
	s.load(after(82*time.Minute), "web", nil)
	s.load(after(90*time.Minute), "web", new(0.5))
	s.advance(after(95 * time.Minute))
	s.expect("1h21m0s Memory web firing>recovering", "1h22m0s Memory web recovering frozen", "1h30m0s Memory web recovering",
		"1h34m0s Memory web recovering>resolved")
	if got := s.engine.Health(); got.RulesUnknown != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestObjectGone(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule+`
- alert: Kept
  on: pod
  expr: "!pod.ready"
  keep_firing_for: 10m
`), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.advance(after(6 * time.Minute))
	s.log = nil
	s.remove(after(7*time.Minute), "web")
	s.expect("7m0s Kept web firing>recovering (object gone)", "7m0s NotReady web firing>resolved (object gone)")
	s.status(after(10*time.Minute), "web#2", ready(false)) // another pod of the name
	s.expect("10m0s NotReady web resolved>pending", "10m0s Kept web recovering>firing")
	s.remove(after(11*time.Minute), "web#2")
	s.advance(after(time.Hour))
	s.expect(
		"11m0s Kept web firing>recovering (object gone)", "11m0s NotReady web pending>resolved",
		"21m0s Kept web recovering>resolved (object gone)", "22m0s NotReady web resolved>-",
		"36m0s Kept web resolved>- (object gone)",
	)
}

// TestTwoPodsOfOneName checks that the pods of one name share the alert while one replaces the other.
func TestTwoPodsOfOneName(t *testing.T) {
	s := newSimulation(t, parseRules(t, `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
`), engine.Config{})
	s.status(after(0), "web#1", ready(false))
	s.status(after(1), "web#2", nil)
	s.status(after(2), "web#1", ready(true))
	s.expect("0s NotReady web ->firing", "2ns NotReady web firing>resolved")
	s.status(after(3), "web#2", ready(false))
	s.remove(after(4), "web#1")
	s.expect("3ns NotReady web resolved>firing flaps=1")
}

// TestContainersChange checks alerts of a container that the next pod of the name does not have, and of one that is added to a pod.
func TestContainersChange(t *testing.T) {
	s := newSimulation(t, parseRules(t, `
- alert: NotReady
  on: container
  expr: "!pod.ready"
  labels: {severity: info}
`), engine.Config{})
	pod := &simulatedPod{uid: "web", name: "web", status: running()}
	ready(false)(&pod.status)
	change := func(at time.Time, uid podid.UID, containers ...string) {
		v := pod.view()
		v.Spec.Containers = nil
		for _, name := range containers {
			v.Spec.Containers = append(v.Spec.Containers, view.Container{Name: name})
		}
		s.engine.PodChanged(engine.PodChange{UID: uid, View: v, Trigger: rule.OnStatus, At: at})
		for _, edge := range s.engine.Take() {
			s.log = append(s.log, describe(edge)+" "+edge.Alert.Labels[alert.LabelContainer])
		}
	}
	change(after(0), "1", "c", "old")
	change(after(1), "1", "c", "old", "debugger")
	s.expect("0s NotReady web ->firing c", "0s NotReady web ->firing old", "1ns NotReady web ->firing debugger")
	change(after(2), "2", "c", "new") // while the first is still there
	s.expect("2ns NotReady web ->firing new")
	s.engine.PodRemoved("1", after(3))
	for _, edge := range s.engine.Take() {
		s.log = append(s.log, describe(edge)+" "+edge.Alert.Labels[alert.LabelContainer])
	}
	s.expect("3ns NotReady web firing>resolved (object gone) debugger", "3ns NotReady web firing>resolved (object gone) old")
	change(after(4), "2", "c")
	s.expect("4ns NotReady web firing>resolved (object gone) new")
}
