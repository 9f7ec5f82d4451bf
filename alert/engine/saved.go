package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/alert/state"
	"github.com/heraldnode/herald/podid"
)

// SavedVersion is the version of Saved, for checkpoint.NewLog. Fields are only added within a version.
const SavedVersion = 1

// Saved is what an engine must not forget: all of it, or what changed since. Join puts the latter on top of the former.
type Saved struct {
	// IsComplete is set if everything is in it.
	IsComplete bool         `json:"complete,omitempty"`
	Alerts     []SavedAlert `json:"alerts,omitempty"`
	// Forgotten has the keys of alerts that do not exist any more.
	Forgotten []string        `json:"forgotten,omitempty"`
	Silences  []alert.Silence `json:"silences,omitempty"`
	// Ended has the IDs of silences that do not exist any more.
	Ended  []string       `json:"ended,omitempty"`
	Recent []recent.Entry `json:"recent,omitempty"`
}

// SavedAlert is an alert and what the engine needs to continue it.
type SavedAlert struct {
	Rule   string        `json:"rule"` // rule.Rule.ID
	Object recent.Object `json:"object"`
	Alert  alert.Alert   `json:"alert"`
	// UIDs are the pods of that name if there are several.
	UIDs []podid.UID `json:"uids,omitempty"`
	// Since and Held are those of state.Instance, For is that of the rule.
	Since time.Time     `json:"since,omitzero"`
	Held  time.Duration `json:"held,omitempty"`
	For   time.Duration `json:"for,omitempty"`
}

// IsEmpty reports whether nothing changed.
func (s *Saved) IsEmpty() bool {
	return !s.IsComplete && len(s.Alerts)+len(s.Forgotten)+len(s.Silences)+len(s.Ended)+len(s.Recent) == 0
}

// Join returns everything from a value and the changes after it, oldest first.
func Join(values ...Saved) Saved {
	alerts, silences := map[string]SavedAlert{}, map[string]alert.Silence{}
	joined := Saved{IsComplete: true}
	for _, value := range values {
		if value.IsComplete {
			clear(alerts)
			clear(silences)
			joined.Recent = nil
		}
		for _, saved := range value.Alerts {
			alerts[saved.Alert.Key()] = saved
		}
		for _, key := range value.Forgotten {
			delete(alerts, key)
		}
		for _, s := range value.Silences {
			silences[s.ID] = s
		}
		for _, id := range value.Ended {
			delete(silences, id)
		}
		joined.Recent = append(joined.Recent, value.Recent...)
	}
	for _, key := range slices.Sorted(maps.Keys(alerts)) {
		joined.Alerts = append(joined.Alerts, alerts[key])
	}
	for _, id := range slices.Sorted(maps.Keys(silences)) {
		joined.Silences = append(joined.Silences, silences[id])
	}
	return joined
}

// saving notes what changed since SaveChanged, once it was called.
type saving struct {
	alerts, silences map[string]bool
}

func (s *saving) note(key string) {
	if s.alerts != nil {
		s.alerts[key] = true
	}
}

func (s *saving) noteSilence(id string) {
	if s.silences != nil {
		s.silences[id] = true
	}
}

// Save returns everything.
func (e *Engine) Save() Saved {
	saved := Saved{IsComplete: true, Silences: e.Silences(), Recent: e.recent.Entries(e.clock)}
	for _, key := range slices.Sorted(maps.Keys(e.alerts)) {
		saved.Alerts = append(saved.Alerts, e.saveAlert(e.alerts[key]))
	}
	return saved
}

// SaveChanged returns what changed since the last call. The first call returns everything.
func (e *Engine) SaveChanged() Saved {
	alerts, silences, added := e.saving.alerts, e.saving.silences, e.recent.TakeAdded()
	e.saving = saving{alerts: map[string]bool{}, silences: map[string]bool{}}
	if alerts == nil {
		return e.Save()
	}
	saved := Saved{Recent: added}
	for _, key := range slices.Sorted(maps.Keys(alerts)) {
		if i := e.alerts[key]; i != nil {
			saved.Alerts = append(saved.Alerts, e.saveAlert(i))
		} else {
			saved.Forgotten = append(saved.Forgotten, key)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(silences)) {
		if s := e.mutes.silences[id]; s != nil {
			saved.Silences = append(saved.Silences, s.Silence)
		} else {
			saved.Ended = append(saved.Ended, id)
		}
	}
	return saved
}

func (e *Engine) saveAlert(i *instance) SavedAlert {
	saved := SavedAlert{
		Rule: i.cell.rule.id.id, Object: i.cell.name, Alert: i.alert(),
		Since: onClock(i.state.Since, e.clock), Held: i.state.Held, For: i.cell.rule.timing.For,
	}
	if versions := i.cell.object.versions; len(versions) > 1 {
		for k := range versions {
			saved.UIDs = append(saved.UIDs, versions[k].uid)
		}
	}
	return saved
}

// Restore continues what an earlier run has saved. It must be called before any object is known, before or after SetRules. Alerts come back
// as they were; they change when their object is seen or when EndStartup is called. Durations go on by the wall clock.
func (e *Engine) Restore(saved Saved, now time.Time) {
	e.note(now)
	e.recent.Restore(saved.Recent, now)
	for k := range saved.Alerts {
		e.restoreAlert(&saved.Alerts[k], now)
	}
	for _, s := range saved.Silences {
		e.AddSilence(s)
	}
	if e.rules.isSet {
		for _, s := range e.rules.sorted() {
			if s.isRemoved {
				e.removeRule(s, now)
			}
		}
		e.setInhibitions(e.mutes.inhibit, now)
	}
}

func (e *Engine) restoreAlert(saved *SavedAlert, now time.Time) {
	a := &saved.Alert
	if e.alerts[a.Key()] != nil || a.State == "" {
		return
	}
	r := e.rules.get(ruleID{saved.Rule, scopeOf(saved.Object)})
	before := state.Timing{For: saved.For}
	if r.isRemoved {
		r.timing.For = saved.For
	}
	name := podid.FullName{Namespace: saved.Object.Namespace, Name: saved.Object.Pod}
	o := e.objects[name]
	if o == nil {
		o = newObject(name)
		e.objects[name] = o
	}
	c := r.cells[saved.Object]
	if c == nil {
		c = e.newCell(r, o, saved.Object)
	}
	i := &instance{
		cell: c, key: a.Key(), labels: a.Labels, annotations: a.Annotations, value: a.Value, condition: a.Condition, mute: a.Mute,
		isWaiting: true, uids: saved.UIDs,
		state: state.Instance{
			State: a.State, ActiveAt: a.ActiveAt, StartsAt: a.StartsAt, EndsAt: a.EndsAt, Episode: a.Episode, Flaps: a.Flaps,
			Reason: a.Reason, Freeze: a.Freeze, Since: saved.Since, Held: saved.Held,
		}.Rebase(now),
	}
	e.addAlert(i)
	if !r.isRemoved && i.state.MustWaitAgain(before, r.timing, now) {
		e.change(i, i.state.Resolve(now, ReasonForLengthened), nil, now)
		e.change(i, i.state.WaitAgain(), nil, now)
	}
	e.settle(c)
}

func scopeOf(o recent.Object) rule.Scope {
	switch {
	case o.Container != "":
		return rule.Container
	case o.Pod != "":
		return rule.Pod
	default:
		return rule.Node
	}
}
