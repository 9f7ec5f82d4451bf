package remedy

import (
	"cmp"
	"slices"
	"time"
)

// Outcome is what became of an action.
type Outcome string

// Outcomes. An action is running, then done, refused or failed. One that is done and whose policy expects the alert to be resolved then
// becomes helped or not-helped. One that was running when the agent ended is unknown.
const (
	Running   Outcome = "running"
	Done      Outcome = "done"
	Refused   Outcome = "refused" // by the API server or the component that carries it out
	Failed    Outcome = "failed"
	Unknown   Outcome = "unknown"
	Helped    Outcome = "helped"
	NotHelped Outcome = "not-helped"
)

// Entry is an action in the ledger: an intent, and its outcome.
type Entry struct {
	ID uint64 `json:"id"`
	// Rule is the name of the rule, Alert the key of the alert, Episode which firing of it.
	Rule    string `json:"rule"`
	Alert   string `json:"alert"`
	Episode uint64 `json:"episode,omitempty"`
	Type    Type   `json:"type"`
	Target  string `json:"target,omitempty"`
	Object  Object `json:"object,omitzero"`
	// Policy describes the policy.
	Policy string `json:"policy,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Instant is when the intent was written. In one run of the agent it is compared by the monotonic clock.
	Instant
	Outcome Outcome `json:"outcome"`
	// Message says more about the outcome.
	Message string `json:"message,omitempty"`
	TookMs  int64  `json:"tookMs,omitempty"`
	// ResolvedWithinMs is how long after the end of the action the alert must be resolved; 0 if that is not expected.
	ResolvedWithinMs int64 `json:"resolvedWithinMs,omitempty"`
}

// Instant is a time, also by the clock that counts since the machine was booted, which nobody sets.
type Instant struct {
	At time.Time `json:"at"`
	// Boot identifies the boot of the machine; empty if it is not known. UptimeMs is the time since then.
	Boot     string `json:"boot,omitempty"`
	UptimeMs int64  `json:"uptimeMs,omitempty"`
}

// VerifyAt returns when it is known whether the action helped; zero if nothing is expected of it, or the answer is known.
func (e *Entry) VerifyAt() time.Time {
	if e.Outcome != Done || e.DryRun || e.ResolvedWithinMs == 0 {
		return time.Time{}
	}
	return e.At.Add(time.Duration(e.TookMs+e.ResolvedWithinMs) * time.Millisecond)
}

// Ledger is what was done. It is a value and also a change of one: Apply merges a change into a ledger. Its zero value is empty.
type Ledger struct {
	// LastID is the highest number of an entry.
	LastID uint64 `json:"lastID,omitempty"`
	// Entries are in the order of their numbers.
	Entries []Entry `json:"entries,omitempty"`
	// Cordons has the alerts for which Herald made the node unschedulable and has not undone it.
	Cordons *Cordons `json:"cordons,omitempty"`
	// Breaker is nil in a change that does not concern it.
	Breaker *Breaker `json:"breaker,omitempty"`
}

// IsDone reports whether the action was begun for this episode of the alert; a dry-run does not count for a deed.
func (l *Ledger) IsDone(alert string, episode uint64, p Policy) bool {
	return slices.ContainsFunc(l.Entries, func(e Entry) bool {
		return e.Alert == alert && e.Episode == episode && e.Type == p.Type && e.Target == p.Target && e.counts(!p.Enforce)
	})
}

// Cordons are the keys of alerts.
type Cordons struct {
	Alerts []string `json:"alerts"`
}

const (
	// maxEntries bounds the disruptive actions and the others in the ledger, each.
	maxEntries = 1024
	// exhaustedFor is how long an action that did not help is off.
	exhaustedFor = 24 * time.Hour
)

// Apply merges a change into the ledger: new entries, and new versions of entries.
func (l *Ledger) Apply(change Ledger) {
	l.LastID = max(l.LastID, change.LastID)
	for _, entry := range change.Entries {
		l.LastID = max(l.LastID, entry.ID)
		i, found := slices.BinarySearchFunc(l.Entries, entry.ID, func(e Entry, id uint64) int { return cmp.Compare(e.ID, id) })
		if found {
			l.Entries[i] = entry
		} else {
			l.Entries = slices.Insert(l.Entries, i, entry)
		}
	}
	if change.Cordons != nil {
		l.Cordons = &Cordons{Alerts: slices.Clone(change.Cordons.Alerts)}
	}
	if change.Breaker != nil {
		l.Breaker = change.Breaker
	}
}

// Clone returns a copy that shares nothing that Apply modifies.
func (l *Ledger) Clone() Ledger {
	clone := Ledger{LastID: l.LastID, Entries: slices.Clone(l.Entries), Breaker: l.Breaker}
	if l.Cordons != nil {
		clone.Cordons = &Cordons{Alerts: slices.Clone(l.Cordons.Alerts)}
	}
	return clone
}

// Prune removes entries that no limit looks at any more. Running ones stay.
func (l *Ledger) Prune(now time.Time) {
	l.Entries = slices.DeleteFunc(l.Entries, func(e Entry) bool {
		return e.Outcome != Running && e.VerifyAt().IsZero() && now.Sub(e.At) > max(MaxPeriod, exhaustedFor)
	})
}

// Restore adapts a ledger of earlier runs to this one: actions that were running become unknown, and Rebase is called. It returns the
// actions that became unknown.
func (l *Ledger) Restore(now Instant) (unknown []Entry) {
	l.Rebase(now)
	for i := range l.Entries {
		if entry := &l.Entries[i]; entry.Outcome == Running {
			entry.Outcome, entry.Message = Unknown, "the agent ended before the outcome was written"
			unknown = append(unknown, *entry)
		}
	}
	l.Prune(now.At)
	return unknown
}

// Rebase expresses all times relative to now, so that a clock that was set does not change how long ago they are: those of the same boot
// by its own clock, those of another one by the wall clock, where a time in the future counts as now.
func (l *Ledger) Rebase(now Instant) {
	for i := range l.Entries {
		l.Entries[i].Instant = l.Entries[i].rebase(now)
	}
	if l.Breaker != nil {
		restored := *l.Breaker
		restored.Since, restored.Last = restored.Since.rebase(now), restored.Last.rebase(now)
		if restored.Resumed.After(now.At) {
			restored.Resumed = now.At
		}
		l.Breaker = &restored
	}
}

// rebase returns the instant relative to another one, which is now.
func (i Instant) rebase(now Instant) Instant {
	age := now.At.Sub(i.At)
	if i.Boot != "" && i.Boot == now.Boot {
		age = time.Duration(now.UptimeMs-i.UptimeMs) * time.Millisecond
	}
	age = max(0, age)
	return Instant{At: now.At.Add(-age), Boot: now.Boot, UptimeMs: now.UptimeMs - age.Milliseconds()}
}

// counts reports whether the entry counts for the limits of a dry-run, or of a deed. What was refused without being begun counts, too: it
// would be refused again.
func (e *Entry) counts(forDryRun bool) bool { return e.Type != Uncordon && (forDryRun || !e.DryRun) }

// times returns when the action was done for the object, in order. A time in the future counts as now.
func (l *Ledger) times(forDryRun bool, t Type, target string, object Object, now time.Time) []time.Time {
	return l.timesOf(now, func(e *Entry) bool {
		return e.counts(forDryRun) && e.Type == t && e.Target == target && e.Object == object
	})
}

// podTimes returns when pods were acted upon disruptively within the period, in order.
func (l *Ledger) podTimes(forDryRun bool, now time.Time, period time.Duration) []time.Time {
	return l.timesOf(now, func(e *Entry) bool {
		return e.counts(forDryRun) && e.Type.IsDisruptive() && e.Object.Pod != "" && now.Sub(e.At) < period
	})
}

// snapshotTimes returns when snapshots of pods, or of the node, were taken within the period, in order.
func (l *Ledger) snapshotTimes(forDryRun, ofPods bool, now time.Time, period time.Duration) []time.Time {
	return l.timesOf(now, func(e *Entry) bool {
		return e.counts(forDryRun) && e.Type == Snapshot && (e.Object.Pod != "") == ofPods && now.Sub(e.At) < period
	})
}

func (l *Ledger) timesOf(now time.Time, matches func(*Entry) bool) []time.Time {
	var times []time.Time
	for i := range l.Entries {
		if entry := &l.Entries[i]; matches(entry) {
			at := entry.At
			if at.After(now) {
				at = now
			}
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// running returns a disruptive action that is under way, or nil.
func (l *Ledger) running(forDryRun bool) *Entry {
	for i := range l.Entries {
		if e := &l.Entries[i]; e.counts(forDryRun) && e.Outcome == Running && e.Type.IsDisruptive() {
			return e
		}
	}
	return nil
}

// fullUntil returns when there is room for another entry, or zero if there is.
func (l *Ledger) fullUntil(disruptive bool, now time.Time) time.Time {
	if len(l.Entries) < maxEntries {
		return time.Time{}
	}
	times := l.timesOf(now, func(e *Entry) bool { return e.Type.IsDisruptive() == disruptive && now.Sub(e.At) <= MaxPeriod })
	if len(times) < maxEntries {
		return time.Time{}
	}
	return times[len(times)-maxEntries].Add(MaxPeriod)
}

// exhausted returns until when the action is off for the object because its last two did not help, or zero if it is not.
func (l *Ledger) exhausted(t Type, target string, object Object, now time.Time) time.Time {
	var last time.Time
	inRow := 0
	for i := range slices.Backward(l.Entries) {
		e := &l.Entries[i]
		if e.DryRun || e.Type != t || e.Target != target || e.Object != object {
			continue
		}
		switch e.Outcome {
		case Unknown, Running, Refused: // says nothing about whether it helps
			continue
		case Done, Helped:
			return time.Time{}
		}
		if inRow++; inRow == 1 {
			last = e.At
			if last.After(now) {
				last = now
			}
		}
		if inRow == exhaustedAfter {
			if until := last.Add(exhaustedFor); now.Before(until) {
				return until
			}
			return time.Time{}
		}
	}
	return time.Time{}
}

// exhaustedAfter is how often in a row an action must not have helped.
const exhaustedAfter = 2

// Exhausted returns the objects for which an action is off because it did not help twice in a row, each once.
func (l *Ledger) Exhausted(now time.Time) []Object {
	var objects []Object
	for i := range l.Entries {
		e := &l.Entries[i]
		hasFailed := !e.DryRun && (e.Outcome == NotHelped || e.Outcome == Failed) // few have
		if hasFailed && !slices.Contains(objects, e.Object) && !l.exhausted(e.Type, e.Target, e.Object, now).IsZero() {
			objects = append(objects, e.Object)
		}
	}
	return objects
}
