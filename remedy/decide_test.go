package remedy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/remedy"
)

var start = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// newFacts returns facts that allow everything: a container of a pod of a ReplicaSet, and an alert of a minute ago.
func newFacts() remedy.Facts {
	return remedy.Facts{
		Object: remedy.Object{Namespace: "shop", Pod: "web", Container: "app"}, FiredAt: start.Add(-time.Minute), OnlyIf: true,
		Pod: &remedy.Pod{
			OwnerKind: "ReplicaSet", RestartPolicy: "Always", StartedAt: start.Add(-time.Hour),
			Container: &remedy.Container{Kind: "regular", Running: true, StartedAt: start.Add(-time.Hour)},
		},
		Node: remedy.Node{StartedAt: start.Add(-time.Hour), Pods: 40},
	}
}

func enforced(t remedy.Type) remedy.Policy {
	policy := remedy.Policy{Type: t, Enforce: true}
	if t.HasTarget() {
		policy.Target = "helper"
	}
	return policy
}

func TestDecide_Refusals(t *testing.T) {
	const all, disruptive = "all", "disruptive"
	tests := map[string]struct {
		types  string // a type, all, or disruptive
		change func(*remedy.Facts)
		reason remedy.Reason
		until  time.Time
	}{
		"nothing":     {all, func(*remedy.Facts) {}, "", time.Time{}},
		"muted":       {all, func(f *remedy.Facts) { f.Muted = true }, remedy.ReasonMuted, time.Time{}},
		"opted out":   {all, func(f *remedy.Facts) { f.Pod.OptedOut = true }, remedy.ReasonOptedOut, time.Time{}},
		"pod gone":    {all, func(f *remedy.Facts) { f.Pod = nil }, remedy.ReasonGone, time.Time{}},
		"only if":     {all, func(f *remedy.Facts) { f.OnlyIf = false }, remedy.ReasonCondition, time.Time{}},
		"critical":    {disruptive, func(f *remedy.Facts) { f.Pod.Priority = 2_000_000_000 }, remedy.ReasonProtected, time.Time{}},
		"kube-system": {disruptive, func(f *remedy.Facts) { f.Object.Namespace, f.Pod.Static = "kube-system", true }, remedy.ReasonProtected, time.Time{}},
		"runtime":     {disruptive, func(f *remedy.Facts) { f.Node.RuntimeUnknown = true }, remedy.ReasonUnknown, time.Time{}},
		"start of the agent": {
			disruptive, func(f *remedy.Facts) { f.Node.StartedAt = start.Add(-time.Minute) }, remedy.ReasonStarting, start.Add(time.Minute),
		},
		"fired just now": {disruptive, func(f *remedy.Facts) { f.FiredAt = start }, remedy.ReasonSettling, start.Add(30 * time.Second)},
		"suspended": {
			disruptive, func(f *remedy.Facts) { f.Breaker, f.SuspendedUntil = "many", start.Add(1) }, remedy.ReasonSuspended, start.Add(1),
		},
		"policy Never": {"restart-container", func(f *remedy.Facts) { f.Pod.RestartPolicy = "Never" }, remedy.ReasonState, time.Time{}},
		"job":          {"restart-container", func(f *remedy.Facts) { f.Pod.OwnerKind = "Job" }, remedy.ReasonState, time.Time{}},
		"init":         {"restart-container", func(f *remedy.Facts) { f.Pod.Container.Kind = "init" }, remedy.ReasonState, time.Time{}},
		"terminating":  {"restart-container", func(f *remedy.Facts) { f.Pod.Terminating = true }, remedy.ReasonState, time.Time{}},
		"not running":  {"restart-container", func(f *remedy.Facts) { f.Pod.Container.Running = false }, remedy.ReasonState, time.Time{}},
		"young": {
			"restart-container", func(f *remedy.Facts) { f.Pod.Container.StartedAt = start.Add(-time.Minute) }, remedy.ReasonYoung, start.Add(4 * time.Minute),
		},
		"of a pod":             {"restart-container", func(f *remedy.Facts) { f.Object.Container, f.Pod.Container = "", nil }, remedy.ReasonObject, time.Time{}},
		"bare":                 {"restart-pod", func(f *remedy.Facts) { f.Pod.OwnerKind = "" }, remedy.ReasonState, time.Time{}},
		"static":               {"restart-pod", func(f *remedy.Facts) { f.Pod.OwnerKind, f.Pod.Static = "", true }, "", time.Time{}},
		"pod of a job":         {"restart-pod", func(f *remedy.Facts) { f.Pod.OwnerKind = "Job" }, remedy.ReasonState, time.Time{}},
		"young pod":            {"restart-pod", func(f *remedy.Facts) { f.Pod.StartedAt = start }, remedy.ReasonYoung, start.Add(5 * time.Minute)},
		"probe of stopped":     {"probe", func(f *remedy.Facts) { f.Pod.Container.Running = false }, remedy.ReasonState, time.Time{}},
		"snapshot of the node": {"snapshot", func(f *remedy.Facts) { f.Object, f.Pod = remedy.Object{}, nil }, "", time.Time{}},
		"probe of the node": {
			"probe", func(f *remedy.Facts) { f.Object, f.Pod = remedy.Object{}, nil }, remedy.ReasonObject, time.Time{},
		},
		"cordon for the node": {"cordon", func(f *remedy.Facts) { f.Object, f.Pod = remedy.Object{}, nil }, "", time.Time{}},
	}
	for name, test := range tests {
		for _, kind := range remedy.Types() {
			if test.types != all && (test.types != disruptive || !kind.IsDisruptive()) && test.types != string(kind) {
				continue
			}
			facts := newFacts()
			test.change(&facts)
			got := remedy.Decide(enforced(kind), &remedy.Ledger{}, facts, start)
			if isRefused := got.Verdict == remedy.Refuse; isRefused != (test.reason != "") || got.Reason != test.reason || !got.Until.Equal(test.until) {
				t.Errorf("%s, %s: got %+v, want %q until %v", name, kind, got, test.reason, test.until)
			}
		}
	}
}

func TestDecide_DryRunByDefault(t *testing.T) {
	for _, kind := range remedy.Types() {
		policy := remedy.Default(kind)
		if kind.HasTarget() {
			policy.Target = "x"
		}
		want := remedy.Do
		if kind.IsDisruptive() {
			want = remedy.DryRun
		}
		if got := remedy.Decide(policy, &remedy.Ledger{}, newFacts(), start); got.Verdict != want {
			t.Errorf("%s: got %+v, want %s", kind, got, want)
		}
	}
}

func TestDecide_NamedPods(t *testing.T) {
	facts := newFacts()
	facts.Pod.Priority = 2_000_001_000
	policy := enforced(remedy.RestartContainer)
	for pods, want := range map[string]remedy.Verdict{
		"": remedy.Refuse, "shop/web": remedy.Do, "shop/web2": remedy.Refuse, "shop/*": remedy.Refuse, "web": remedy.Refuse, "other/web,shop/web": remedy.Do,
	} {
		policy.Pods = nil
		if pods != "" {
			policy.Pods = strings.Split(pods, ",")
		}
		if got := remedy.Decide(policy, &remedy.Ledger{}, facts, start); got.Verdict != want {
			t.Errorf("pods %q: got %+v, want %s", pods, got, want)
		}
	}
}

// entry returns a deed of an hour ago plus the offset.
func entry(id uint64, kind remedy.Type, object remedy.Object, at time.Time, outcome remedy.Outcome) remedy.Entry {
	return remedy.Entry{ID: id, Type: kind, Object: object, Instant: remedy.Instant{At: at}, Outcome: outcome}
}

func TestDecide_Limits(t *testing.T) {
	object := newFacts().Object
	other := remedy.Object{Namespace: "shop", Pod: "cart", Container: "app"}
	restart := remedy.RestartContainer
	tests := map[string]struct {
		entries []remedy.Entry
		reason  remedy.Reason
		until   time.Time
	}{
		"cool-down":      {[]remedy.Entry{entry(1, restart, object, start.Add(-9*time.Minute), remedy.Helped)}, remedy.ReasonCoolDown, start.Add(time.Minute)},
		"cool-down over": {[]remedy.Entry{entry(1, restart, object, start.Add(-10*time.Minute), remedy.Helped)}, "", time.Time{}},
		"three in an hour": {[]remedy.Entry{
			entry(1, restart, object, start.Add(-50*time.Minute), remedy.Helped), entry(2, restart, object, start.Add(-30*time.Minute), remedy.Helped),
			entry(3, restart, object, start.Add(-20*time.Minute), remedy.Unknown),
		}, remedy.ReasonLimit, start.Add(10 * time.Minute)},
		"twice without help": {[]remedy.Entry{
			entry(1, restart, object, start.Add(-3*time.Hour), remedy.NotHelped), entry(2, restart, object, start.Add(-2*time.Hour), remedy.NotHelped),
		}, remedy.ReasonExhausted, start.Add(22 * time.Hour)},
		"helped between": {[]remedy.Entry{
			entry(1, restart, object, start.Add(-4*time.Hour), remedy.NotHelped), entry(2, restart, object, start.Add(-3*time.Hour), remedy.Helped),
			entry(3, restart, object, start.Add(-2*time.Hour), remedy.NotHelped),
		}, "", time.Time{}},
		"in the future": {[]remedy.Entry{entry(1, restart, object, start.Add(time.Hour), remedy.Helped)}, remedy.ReasonCoolDown, start.Add(10 * time.Minute)},
		"busy":          {[]remedy.Entry{entry(1, remedy.RestartPod, other, start.Add(-time.Hour), remedy.Running)}, remedy.ReasonBusy, time.Time{}},
		"a tenth of the pods": {[]remedy.Entry{
			entry(1, restart, other, start.Add(-9*time.Minute), remedy.Done), entry(2, restart, remedy.Object{Namespace: "a", Pod: "1"}, start.Add(-8*time.Minute), remedy.Done),
			entry(3, restart, remedy.Object{Namespace: "a", Pod: "2"}, start.Add(-7*time.Minute), remedy.Done),
			entry(4, restart, remedy.Object{Namespace: "a", Pod: "3"}, start.Add(-6*time.Minute), remedy.Done),
		}, remedy.ReasonNodeLimit, start.Add(time.Minute)},
		"less than a tenth": {[]remedy.Entry{
			entry(1, restart, other, start.Add(-10*time.Minute), remedy.Done), entry(2, restart, remedy.Object{Namespace: "a", Pod: "1"}, start.Add(-8*time.Minute), remedy.Done),
			entry(3, restart, remedy.Object{Namespace: "a", Pod: "2"}, start.Add(-7*time.Minute), remedy.Done),
			entry(4, restart, remedy.Object{Namespace: "a", Pod: "3"}, start.Add(-6*time.Minute), remedy.Done),
		}, "", time.Time{}},
	}
	for name, test := range tests {
		ledger := remedy.Ledger{Entries: test.entries}
		got := remedy.Decide(enforced(restart), &ledger, newFacts(), start)
		if got.Reason != test.reason || !got.Until.Equal(test.until) {
			t.Errorf("%s: got %+v, want %q until %v", name, got, test.reason, test.until)
		}
		if isExhausted := len(ledger.Exhausted(start)) == 1; isExhausted != (test.reason == remedy.ReasonExhausted) {
			t.Errorf("%s: got %v exhausted", name, ledger.Exhausted(start))
		}
	}
}

// TestR2_NodeSnapshots checks that no policy allows more than 10 snapshots of pods within 10 minutes. Those of the node count apart.
func TestR2_NodeSnapshots(t *testing.T) {
	policy := enforced(remedy.Snapshot)
	policy.Max, policy.Per = 1000, time.Second
	ledger := remedy.Ledger{}
	for i := range 10 {
		if got := remedy.Decide(policy, &ledger, newFacts(), start); got.Verdict != remedy.Do {
			t.Fatalf("got %+v after %d snapshots, want another one", got, i)
		}
		at := start.Add(-9*time.Minute + time.Duration(i)*time.Second)
		ledger.Apply(remedy.Ledger{Entries: []remedy.Entry{
			entry(uint64(i+1), remedy.Snapshot, remedy.Object{Namespace: "shop", Pod: fmt.Sprintf("cart-%d", i)}, at, remedy.Done),
		}})
	}
	got := remedy.Decide(policy, &ledger, newFacts(), start)
	if until := start.Add(time.Minute); got.Reason != remedy.ReasonNodeLimit || !got.Until.Equal(until) {
		t.Errorf("got %+v, want %s until %v", got, remedy.ReasonNodeLimit, until)
	}
	if got := remedy.Decide(policy, &ledger, newFacts(), got.Until); got.Verdict != remedy.Do {
		t.Errorf("got %+v when the first one is 10 minutes old, want another one", got)
	}
	node := newFacts()
	node.Object, node.Pod = remedy.Object{}, nil
	if got := remedy.Decide(policy, &ledger, node, start); got.Verdict != remedy.Do {
		t.Errorf("got %+v, want a snapshot of the node", got)
	}
}

// TestR5_DryRunPreventsNoDeed checks that dry-runs count for dry-runs only, so that trying a rule changes nothing else.
func TestR5_DryRunPreventsNoDeed(t *testing.T) {
	dry := entry(1, remedy.RestartContainer, newFacts().Object, start.Add(-time.Minute), remedy.Done)
	dry.DryRun = true
	ledger := remedy.Ledger{Entries: []remedy.Entry{dry}}
	policy := enforced(remedy.RestartContainer)
	if got := remedy.Decide(policy, &ledger, newFacts(), start); got.Verdict != remedy.Do {
		t.Errorf("got %+v, want a deed", got)
	}
	policy.Enforce = false
	if got := remedy.Decide(policy, &ledger, newFacts(), start); got.Reason != remedy.ReasonCoolDown {
		t.Errorf("got %+v, want the cool-down of the dry-run", got)
	}
}

func TestBreaker(t *testing.T) {
	at := func(d time.Duration) remedy.Instant { return remedy.Instant{At: start.Add(d)} }
	firing := func(pod string, fired time.Duration, ended bool) remedy.PodFiring {
		return remedy.PodFiring{Rule: "R", Namespace: "shop", Pod: pod, FiredAt: start.Add(fired), Ended: ended}
	}
	two := []remedy.PodFiring{firing("a", 0, false), firing("a", 0, false), firing("b", 0, false)}
	if got := (remedy.Breaker{}).Step(two, 4, at(0)); got.Reason != "" {
		t.Errorf("got %+v for two of four pods, want none: at least three count", got)
	}
	three := append(two, firing("c", time.Minute, true))
	if got := (remedy.Breaker{}).Step(three, 11, at(time.Minute)); got.Reason != "" {
		t.Errorf("got %+v for three of eleven pods", got)
	}
	tripped := remedy.Breaker{}.Step(three, 10, at(time.Minute))
	if tripped.Reason == "" || !tripped.Until().Equal(start.Add(31*time.Minute)) {
		t.Fatalf("got %+v for three of ten pods, want a suspension", tripped)
	}
	if got := tripped.Step(three, 10, at(4*time.Minute)); !got.Last.At.Equal(start.Add(4 * time.Minute)) {
		t.Errorf("got %+v, want no calm while three have fired within five minutes", got)
	}
	lasting := []remedy.PodFiring{firing("a", 0, false), firing("b", 0, false), firing("c", 0, false)}
	if got := tripped.Step(lasting, 10, at(2*time.Hour)); got.Reason == "" {
		t.Error("got no suspension although the pods still fire")
	}
	if got := tripped.Step(nil, 10, at(31*time.Minute-1)); got.Reason == "" {
		t.Error("got no suspension before the time")
	}
	if got := tripped.Step(nil, 10, at(31*time.Minute)); got.Reason != "" {
		t.Errorf("got %+v after 30 minutes of calm", got)
	}
	resumed := tripped.Resume(start.Add(2 * time.Minute))
	if got := resumed.Step(lasting, 10, at(2*time.Minute)); got.Reason != "" {
		t.Errorf("got %+v, want what fired before the resume to be ignored", got)
	}
	if got := resumed.Step([]remedy.PodFiring{
		firing("a", 3*time.Minute, false), firing("b", 3*time.Minute, false), firing("c", 3*time.Minute, false),
	}, 10, at(3*time.Minute)); got.Reason == "" {
		t.Error("got no suspension for new alerts")
	}
}
