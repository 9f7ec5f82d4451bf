package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// Config configures an Engine.
type Config struct {
	// NodeName and Instance are the labels node and instance of every alert.
	NodeName, Instance string
	// MaxAlerts and MaxPerRule limit the number of alerts. Those that exist are never dropped. 0 means 1000 and 200.
	MaxAlerts, MaxPerRule int
}

// Edge is a change of an alert: of its state, of what mutes it while it fires, or of whether its answer is known.
type Edge struct {
	// Alert is the alert after the change. Its state is empty if it is forgotten: a pending alert that did not fire, or a resolved one
	// after 15 minutes.
	Alert alert.Alert
	// Rule is the rule of the alert; nil if it was removed while the agent did not run.
	Rule   *rule.Rule
	Before alert.State
	At     time.Time
}

// Engine keeps alerts.
type Engine struct {
	config Config
	// clock is the latest time of any call.
	clock time.Time

	rules   ruleTable
	node    *view.NodeView
	objects map[podid.FullName]*object // the node is at the zero name
	names   map[podid.UID]podid.FullName
	recent  recent.Counter

	alerts     map[string]*instance // by key
	suppressed int
	mutes      mutes

	timers      timerHeap
	edges       []Edge
	saving      saving
	evaluations counts
}

// New returns an engine without rules and objects.
func New(config Config) *Engine {
	if config.MaxAlerts == 0 {
		config.MaxAlerts = 1000
	}
	if config.MaxPerRule == 0 {
		config.MaxPerRule = 200
	}
	e := &Engine{
		config: config, objects: map[podid.FullName]*object{}, names: map[podid.UID]podid.FullName{}, alerts: map[string]*instance{},
		rules: ruleTable{byID: map[ruleID]*ruleState{}}, mutes: mutes{silences: map[string]*silence{}},
	}
	e.objects[podid.FullName{}] = newObject(podid.FullName{})
	return e
}

// Next returns the earliest instant at which something changes by time alone; zero if never. It may be in the past.
func (e *Engine) Next() time.Time {
	if len(e.timers) == 0 {
		return time.Time{}
	}
	return e.timers[0].at
}

// Advance runs all timers that are due, in order, each at its own instant.
func (e *Engine) Advance(now time.Time) {
	for len(e.timers) > 0 && !e.timers[0].at.After(now) {
		t := e.timers[0]
		e.runTimer(t, onClock(t.at, now))
	}
	e.note(now)
}

func (e *Engine) runTimer(t *timer, at time.Time) {
	e.note(at)
	if t.silence != nil {
		e.runSilence(t.silence, at)
	} else {
		e.runCell(t.cell, at)
	}
}

// onClock returns t with the wall clock of now, which may have been set since t was computed.
func onClock(t, now time.Time) time.Time { return now.Add(t.Sub(now)) }

func (e *Engine) note(at time.Time) { e.clock = later(e.clock, at) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Take returns what changed since the last call, in order. An alert that changed several times is in it several times.
func (e *Engine) Take() []Edge {
	edges := e.edges
	e.edges = nil
	return edges
}

// Alerts returns all alerts, also pending and resolved ones, ordered by their keys. The caller must not modify their maps and slices.
func (e *Engine) Alerts() []alert.Alert {
	alerts := make([]alert.Alert, 0, len(e.alerts))
	for _, key := range slices.Sorted(maps.Keys(e.alerts)) {
		alerts = append(alerts, e.alerts[key].alert())
	}
	return alerts
}

// counts counts evaluations since the engine was created.
type counts struct{ all, failed uint64 }

// Due returns when time alone changes the state of an alert; zero if never, or if that is not known.
func (e *Engine) Due(key string) time.Time {
	i := e.alerts[key]
	if i == nil || i.isWaiting {
		return time.Time{}
	}
	return i.state.Due(i.cell.rule.timing)
}

// Evaluations returns how many rules were evaluated since the engine was created.
func (e *Engine) Evaluations() uint64 { return e.evaluations.all }

// Failures returns how many evaluations failed since the engine was created.
func (e *Engine) Failures() uint64 { return e.evaluations.failed }

// eval evaluates a rule.
func (e *Engine) eval(r *rule.Rule, in rule.Input) outcome {
	out := outcome{Result: r.Eval(in), in: in}
	e.evaluations.all++
	if out.Err != nil {
		e.evaluations.failed++
	}
	return out
}
