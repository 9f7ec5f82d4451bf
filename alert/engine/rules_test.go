package engine_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/view"
)

func (s *simulation) setRules(at time.Time, set *rule.Set) {
	s.set = set
	s.engine.SetRules(set, at)
	s.take()
}

func TestRuleEdits(t *testing.T) {
	waits := func(duration string) *rule.Set {
		return parseRules(t, "- alert: NotReady\n  on: pod\n  expr: '!pod.ready'\n  for: "+duration)
	}
	s := newSimulation(t, waits("5m"), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.advance(after(6 * time.Minute))
	s.expect("0s NotReady web ->pending", "5m0s NotReady web pending>firing")
	s.setRules(after(6*time.Minute), waits("5m")) // the file was read again
	s.setRules(after(6*time.Minute), waits("1m"))
	s.expect()
	s.setRules(after(7*time.Minute), waits("10m"))
	s.expect("7m0s NotReady web firing>resolved (the rule waits longer now)", "7m0s NotReady web resolved>pending")
	if a := s.find("NotReady", "web"); !a.ActiveAt.Equal(after(0)) {
		t.Errorf("got active since %s", a.ActiveAt)
	}
	s.setRules(after(8*time.Minute), waits("6m")) // due two minutes ago: it fires now
	s.expect("8m0s NotReady web pending>firing flaps=1")
	s.setRules(after(9*time.Minute), parseRules(t, "- alert: NotReady\n  on: pod\n  expr: pod.phase == 'Running' && !pod.ready\n  for: 6m"))
	s.expect()
	s.setRules(after(10*time.Minute), parseRules(t, "- alert: NotReady\n  on: pod\n  expr: pod.phase == 'Failed'"))
	s.expect("10m0s NotReady web firing>recovering flaps=1")
	s.setRules(after(11*time.Minute), parseRules(t, "- alert: Renamed\n  on: pod\n  expr: '!pod.ready'"))
	s.expect("11m0s NotReady web recovering>resolved flaps=1 (rule removed)", "11m0s Renamed web ->firing")
	s.setRules(after(12*time.Minute), parseRules(t, "- alert: Renamed\n  on: container\n  expr: '!pod.ready'"))
	s.expect("12m0s Renamed web firing>resolved (rule removed)", "12m0s Renamed web ->firing")
	s.setRules(after(13*time.Minute), parseRules(t, ""))
	s.advance(after(time.Hour))
	if alerts := s.engine.Alerts(); len(alerts) != 0 {
		t.Errorf("got %v", alerts)
	}
}

func TestKeepShortened(t *testing.T) {
	keep := func(duration string) *rule.Set {
		return parseRules(t, "- alert: NotReady\n  on: pod\n  expr: '!pod.ready'\n  keep_firing_for: "+duration)
	}
	s := newSimulation(t, keep("1h"), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.status(after(time.Minute), "web", ready(true))
	s.log = nil
	s.setRules(after(30*time.Minute), keep("10m"))
	s.expect("30m0s NotReady web recovering>resolved")
}

func TestLimits(t *testing.T) {
	set := parseRules(t, `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
- alert: Other
  on: pod
  expr: "!pod.ready"
`)
	s := newSimulation(t, set, engine.Config{MaxAlerts: 5, MaxPerRule: 3})
	for i := range 5 {
		s.status(after(time.Duration(i)*time.Second), fmt.Sprint("web", i), ready(false))
	}
	if h := s.engine.Health(); h.Firing != 5 || h.Suppressed != 5 {
		t.Errorf("got %+v, want 5 alerts and 5 suppressed ones", h)
	}
	s.log = nil
	s.status(after(time.Minute), "web0", ready(true)) // two alerts are resolved, and remembered
	s.remove(after(time.Minute), "web4")
	if h := s.engine.Health(); h.Firing != 3 || h.Suppressed != 3 {
		t.Errorf("got %+v", h)
	}
	s.status(after(2*time.Minute), "web3", nil)
	s.expect("1m0s NotReady web0 firing>resolved", "1m0s Other web0 firing>resolved")
	s.advance(after(20 * time.Minute))
	s.status(after(20*time.Minute), "web3", nil) // the next evaluation is below the limit
	s.expect("16m0s NotReady web0 resolved>-", "16m0s Other web0 resolved>-", "20m0s NotReady web3 ->firing", "20m0s Other web3 ->firing")
	if h := s.engine.Health(); h.Firing != 5 || h.Suppressed != 1 {
		t.Errorf("got %+v", h)
	}
	for i := range 4 {
		s.remove(after(21*time.Minute), fmt.Sprint("web", i))
	}
	if h := s.engine.Health(); h.Firing != 0 || h.Suppressed != 0 {
		t.Errorf("got %+v", h)
	}
}

// TestLimits_RestoredStay checks that a smaller limit drops nothing that exists.
func TestLimits_RestoredStay(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule), engine.Config{})
	for i := range 10 {
		s.status(after(0), fmt.Sprint("web", i), ready(false))
	}
	s.restart(after(0), engine.Config{MaxAlerts: 2})
	if h := s.engine.Health(); h.Pending != 10 || h.Suppressed != 0 {
		t.Errorf("got %+v", h)
	}
}

func TestHealth(t *testing.T) {
	s := newSimulation(t, parseRules(t, memoryRule+notReadyRule+`
- alert: Broken
  on: pod
  expr: 1 / (pod.restarts - 1) == 7
`), engine.Config{})
	s.status(after(0), "web", nil)
	s.status(after(0), "web", func(status *v1.PodStatus) { status.ContainerStatuses[0].RestartCount = 1 })
	if h := s.engine.Health(); h.Rules != 3 || h.RulesBroken != 1 || h.RulesUnknown != 0 {
		t.Errorf("got %+v, want a division by zero", h)
	}
	for _, state := range s.engine.Rules() {
		if (state.Err != nil) != (state.Rule.Name == "Broken") || (state.Unknown > 0) != (state.Rule.Name != "NotReady") {
			t.Errorf("got %+v", state)
		}
	}
	s.status(after(time.Minute), "web", func(status *v1.PodStatus) { status.ContainerStatuses[0].RestartCount = 2 })
	if h := s.engine.Health(); h.RulesBroken != 0 {
		t.Errorf("got %+v, want the rule to work again", h)
	}
	if next := s.engine.Next(); !next.Equal(after(10 * time.Minute)) {
		t.Errorf("got the next instant %s, want that at which the load was unknown for ten minutes", next)
	}
	s.advance(after(10 * time.Minute))
	if h := s.engine.Health(); h.RulesUnknown != 1 || !s.engine.Next().IsZero() {
		t.Errorf("got %+v, next at %s", h, s.engine.Next())
	}
	s.load(after(11*time.Minute), "web", new(0.1))
	if h := s.engine.Health(); h.RulesUnknown != 0 {
		t.Errorf("got %+v", h)
	}
}

// TestTriggers checks that only rules that a change concerns are evaluated, and none while nothing happens.
func TestTriggers(t *testing.T) {
	s := newSimulation(t, parseRules(t, memoryRule+notReadyRule+runtimeRule+`
- alert: NotReadyHere
  on: pod
  expr: "!pod.ready && node.runtime_ready"
`), engine.Config{})
	s.status(after(0), "web", nil)
	s.status(after(0), "other", nil)
	count := func(do func()) uint64 {
		before := s.engine.Evaluations()
		do()
		return s.engine.Evaluations() - before
	}
	if got := count(func() { s.load(after(1), "web", new(0.1)) }); got != 1 {
		t.Errorf("got %d evaluations for a sample, want one", got)
	}
	if got := count(func() { s.status(after(2), "web", nil) }); got != 3 {
		t.Errorf("got %d evaluations for a status, want those of the pod and its container", got)
	}
	if got := count(func() { s.changeNode(after(3), rule.OnNode, func(*view.NodeView) {}) }); got != 3 {
		t.Errorf("got %d evaluations for the node, want those that read it", got)
	}
	if got := count(func() { s.changeNode(after(4), rule.OnSource, func(*view.NodeView) {}) }); got != 0 {
		t.Errorf("got %d evaluations for a source, want none", got)
	}
	if got := count(func() { s.runTimers(after(240 * time.Hour)) }); got != 0 {
		t.Errorf("got %d evaluations in ten days in which nothing happened", got)
	}
}

func TestSilence(t *testing.T) {
	s := newSimulation(t, parseRules(t, `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
`), engine.Config{})
	s.engine.AddSilence(silence(t, "b", `pod="web"`, after(0), after(10*time.Minute)))
	s.engine.AddSilence(silence(t, "a", `pod=~"w.*"`, after(5*time.Minute), after(20*time.Minute)))
	s.status(after(time.Minute), "web", ready(false))
	s.status(after(time.Minute), "other", ready(false))
	s.expect("1m0s NotReady web ->firing muted", "1m0s NotReady other ->firing")
	s.advance(after(30 * time.Minute))
	s.expect("5m0s NotReady web firing muted", "10m0s NotReady web firing muted", "20m0s NotReady web firing")
	if silences := s.engine.Silences(); len(silences) != 0 {
		t.Errorf("got %v", silences)
	}
	s.engine.AddSilence(silence(t, "c", `pod="web"`, after(30*time.Minute), after(50*time.Minute)))
	s.status(after(31*time.Minute), "web", ready(true))
	s.advance(after(32 * time.Minute))
	if err := s.engine.ExpireSilence("c", after(33*time.Minute)); err != nil {
		t.Error(err)
	}
	s.take()
	s.expect("30m0s NotReady web firing muted", "31m0s NotReady web firing>resolved muted")
	if a := s.find("NotReady", "web"); !a.Mute.IsMuted() {
		t.Error("a resolved alert must keep what muted it, or its episode is told afterwards")
	}
	if err := s.engine.ExpireSilence("c", after(33*time.Minute)); err == nil {
		t.Error("a silence ended twice")
	}
}

func TestInhibition(t *testing.T) {
	s := newSimulation(t, parseRules(t, runtimeRule+`
- alert: NotReady
  on: pod
  expr: "!pod.ready"
`, `{source: ['scope="node"'], target: ['job="herald"']}`), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.changeNode(after(1), rule.OnNode, func(v *view.NodeView) { v.Runtime.Problem = "down" })
	s.status(after(2), "web", nil)
	s.status(after(2), "other", ready(false))
	s.changeNode(after(3), rule.OnNode, func(v *view.NodeView) { v.Runtime.Problem = "" })
	s.expect(
		"0s NotReady web ->firing", "1ns RuntimeDown ->firing", "1ns NotReady web firing muted", "2ns NotReady other ->firing muted",
		"3ns RuntimeDown firing>resolved", "3ns NotReady other firing", "3ns NotReady web firing",
	)
	if a := s.find("RuntimeDown", ""); a.Mute.IsMuted() {
		t.Errorf("an alert inhibits itself: %+v", a.Mute)
	}
}

// TestFlappingIsBounded lets a pod change its readiness every second for an hour.
func TestFlappingIsBounded(t *testing.T) {
	s := newSimulation(t, parseRules(t, `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
`), engine.Config{})
	for i := range 3600 {
		s.status(after(time.Duration(i)*time.Second), "web", ready(i%2 == 1))
	}
	told, episodes := 0, map[uint64]bool{}
	for _, edge := range s.edges {
		before := alert.Alert{State: edge.Before}
		if before.IsFiring() != edge.Alert.IsFiring() {
			told++
		}
		episodes[edge.Alert.Episode] = true
	}
	if told != 3 || len(episodes) != 1 {
		t.Errorf("told %d times in %d episodes, want firing, resolved, firing of one episode", told, len(episodes))
	}
}
