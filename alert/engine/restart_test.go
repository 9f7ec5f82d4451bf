package engine_test

import (
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/view"
)

// TestRestart_ForContinues checks that for goes on by the wall clock while the agent does not run, and that nothing happens until the pod
// is seen.
func TestRestart_ForContinues(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.restore(after(7*time.Minute), engine.Config{}, s.engine.Save())
	s.advance(after(8 * time.Minute))
	s.expect("0s NotReady web ->pending")
	s.resume(after(8*time.Minute), "web")
	if a := s.find("NotReady", "web"); a.State != alert.Firing || !a.StartsAt.Equal(after(5*time.Minute)) || !a.ActiveAt.Equal(after(0)) {
		t.Errorf("got %+v, want firing since the fifth minute", a)
	}
}

func TestRestart_EndedMeanwhile(t *testing.T) {
	set := parseRules(t, `
- alert: NotReady
  on: pod
  expr: "!pod.ready"
- alert: Kept
  on: pod
  expr: "!pod.ready"
  keep_firing_for: 10m
- alert: Pending
  on: pod
  expr: "!pod.ready"
  for: 10m
`)
	s := newSimulation(t, set, engine.Config{})
	s.status(after(0), "web", ready(false))
	s.status(after(0), "gone", ready(false))
	s.log = nil
	saved := s.engine.Save()
	ready(true)(&s.pods["web"].status)
	s.restore(after(30*time.Minute), engine.Config{}, saved)
	s.resume(after(30*time.Minute), "web")
	s.expect("30m0s NotReady web firing>resolved", "30m0s Kept web firing>recovering", "30m0s Pending web pending>-")
	s.engine.EndStartup(after(32 * time.Minute))
	s.take()
	s.expect("32m0s Kept gone firing>recovering (object gone)", "32m0s NotReady gone firing>resolved (object gone)", "32m0s Pending gone pending>-")
}

// TestRestart_Recovering checks that the time of the recovery goes on by the wall clock, and that it ends where it would have ended.
func TestRestart_Recovering(t *testing.T) {
	set := parseRules(t, `
- alert: Kept
  on: pod
  expr: "!pod.ready"
  keep_firing_for: 10m
`)
	s := newSimulation(t, set, engine.Config{})
	s.status(after(0), "web", ready(false))
	s.status(after(time.Minute), "web", ready(true))
	saved := s.engine.Save()
	s.log = nil
	s.restore(after(20*time.Minute), engine.Config{}, saved)
	s.resume(after(20*time.Minute), "web")
	if a := s.find("Kept", "web"); a.State != alert.Resolved || !a.EndsAt.Equal(after(11*time.Minute)) {
		t.Errorf("got %+v, want resolved in minute 11", a)
	}
	ready(false)(&s.pods["web"].status)
	s.restore(after(20*time.Minute), engine.Config{}, saved)
	s.resume(after(20*time.Minute), "web")
	if a := s.find("Kept", "web"); a.State != alert.Firing || a.Flaps != 0 || !a.StartsAt.Equal(after(0)) {
		t.Errorf("got %+v, want firing in the same episode", a)
	}
}

// TestRestart_ClockSetBack checks that times in the future become the present.
func TestRestart_ClockSetBack(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule+oomRule), engine.Config{})
	s.status(after(time.Hour), "web", ready(false))
	s.status(after(time.Hour), "web", end("OOMKilled"))
	s.log = nil
	s.restore(after(0), engine.Config{}, s.engine.Save())
	s.changeNode(after(0), rule.OnNode, func(*view.NodeView) {})
	s.resume(after(0), "web")
	s.advance(after(11 * time.Minute))
	s.expect("5m0s NotReady web pending>firing", "10m0s OOM web firing>resolved")
}

// TestRestart_RulesChangedMeanwhile checks a rule that was removed, and one that waits longer.
func TestRestart_RulesChangedMeanwhile(t *testing.T) {
	s := newSimulation(t, parseRules(t, `
- alert: Removed
  on: pod
  expr: "!pod.ready"
- alert: Edited
  on: pod
  expr: "!pod.ready"
`), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.log = nil
	s.set = parseRules(t, `
- alert: Edited
  on: pod
  expr: "!pod.ready"
  for: 30m
`)
	s.restore(after(10*time.Minute), engine.Config{}, s.engine.Save())
	s.expect("10m0s Edited web firing>resolved (the rule waits longer now)", "10m0s Edited web resolved>pending", "10m0s Removed web firing>resolved (rule removed)")
	s.resume(after(10*time.Minute), "web")
	s.advance(after(time.Hour))
	s.expect("25m0s Removed web resolved>- (rule removed)", "30m0s Edited web pending>firing")
}

// TestRestart_RestoreAfterSetRules checks the other order of the two calls.
func TestRestart_RestoreAfterSetRules(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule+runtimeRule, `{source: ['alertname="RuntimeDown"'], target: ['scope="pod"']}`), engine.Config{})
	s.status(after(0), "web", ready(false))
	s.changeNode(after(6*time.Minute), rule.OnNode, func(v *view.NodeView) { v.Runtime.Problem = "down" })
	saved := s.engine.Save()
	want := s.engine.Alerts()
	s.engine = engine.New(engine.Config{NodeName: "n1", Instance: "n1:1"})
	s.engine.SetRules(s.set, after(6*time.Minute))
	s.engine.Restore(saved, after(6*time.Minute))
	for i, a := range s.engine.Alerts() {
		if a.Key() != want[i].Key() || a.State != want[i].State || !a.StartsAt.Equal(want[i].StartsAt) || a.Mute.IsMuted() != want[i].Mute.IsMuted() {
			t.Errorf("got %+v, want %+v", a, want[i])
		}
	}
	s.engine.SetRules(parseRules(t, notReadyRule), after(6*time.Minute))
	s.log = nil
	s.take()
	s.expect("6m0s RuntimeDown firing>resolved (rule removed)", "6m0s NotReady web firing")
}

func TestSaveChanged(t *testing.T) {
	s := newSimulation(t, parseRules(t, notReadyRule), engine.Config{})
	first := s.engine.SaveChanged()
	if !first.IsComplete || first.IsEmpty() {
		t.Errorf("got %+v, want everything first", first)
	}
	s.status(after(0), "web", ready(false))
	s.status(after(1), "other", nil)
	changed := s.engine.SaveChanged()
	if len(changed.Alerts) != 1 || changed.IsComplete || changed.IsEmpty() {
		t.Errorf("got %+v, want one alert", changed)
	}
	s.status(after(2), "web", ready(false))
	if again := s.engine.SaveChanged(); !again.IsEmpty() {
		t.Errorf("got %+v, want nothing", again)
	}
	s.status(after(3), "web", ready(true))
	s.engine.AddSilence(silence(t, "s", `pod="web"`, after(3), after(time.Hour)))
	forgotten := s.engine.SaveChanged()
	if len(forgotten.Forgotten) != 1 || len(forgotten.Alerts) != 0 || len(forgotten.Silences) != 1 || len(forgotten.Recent) != 1 {
		t.Errorf("got %+v, want an alert less, a silence and a change of Ready", forgotten)
	}
	if all := engine.Join(first, changed, forgotten); len(all.Alerts) != 0 || len(all.Silences) != 1 || len(all.Recent) != 1 {
		t.Errorf("got %+v", all)
	}
}
