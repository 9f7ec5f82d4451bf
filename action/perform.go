package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/transition"
)

// result is the end of a deed.
type result struct {
	entry remedy.Entry // with its outcome
	key   string       // of the alert
	task  int          // -1 without one
}

const (
	// disruptiveTimeout must be longer than the grace periods of most containers.
	disruptiveTimeout = 10 * time.Minute
	otherTimeout      = time.Minute
)

// newEntry returns an entry about an action that has no number yet.
func (a *Actor) newEntry(f *firing, policy remedy.Policy, now remedy.Instant) remedy.Entry {
	return remedy.Entry{
		Rule: f.alert.Labels[alert.LabelName], Alert: f.key, Episode: f.alert.Episode, Type: policy.Type, Target: policy.Target,
		Object: policy.Type.Subject(f.object), Policy: policy.String(), DryRun: !policy.Enforce, Instant: now,
	}
}

// begin writes the intent of an action and begins the deed. A dry-run ends here.
func (a *Actor) begin(ctx context.Context, f *firing, i int, policy remedy.Policy, now remedy.Instant) error {
	entry := a.newEntry(f, policy, now)
	entry.ID, entry.Outcome, entry.ResolvedWithinMs = a.ledger.LastID+1, remedy.Running, policy.ResolvedWithin.Milliseconds()
	if entry.DryRun {
		entry.Outcome, entry.ResolvedWithinMs = remedy.Done, 0
	}
	change := remedy.Ledger{Entries: []remedy.Entry{entry}}
	if entry.Type == remedy.Cordon && !entry.DryRun {
		change.Cordons = a.cordonsWith(f.key)
	}
	if err := a.intend(change); err != nil {
		return err
	}
	a.config.OnRecord(newRecord(entry))
	if entry.DryRun {
		a.metrics.total.WithLabelValues(string(entry.Type), resultOf(&entry)).Inc()
		return nil
	}
	f.tasks[i].running = true
	a.perform(ctx, entry, f.alert, i)
	return nil
}

// perform begins the deed of an entry that is on disk.
func (a *Actor) perform(ctx context.Context, entry remedy.Entry, about alert.Alert, task int) {
	timeout := otherTimeout
	if entry.Type.IsDisruptive() {
		a.work.disruptive, timeout = true, disruptiveTimeout
	} else {
		a.work.others++
	}
	request := Request{ID: entry.ID, Type: entry.Type, Target: entry.Target, Object: entry.Object, Alert: about}
	a.deeds.Go(func() {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		begun := time.Now()
		message, err := a.do(limited, request)
		entry.TookMs = time.Since(begun).Milliseconds()
		switch {
		case err != nil && ctx.Err() != nil:
			entry.Outcome, message = remedy.Unknown, "the agent ended meanwhile: "+err.Error()
		case errors.Is(err, ErrRefused):
			entry.Outcome, message = remedy.Refused, err.Error()
		case err != nil:
			entry.Outcome, message = remedy.Failed, err.Error()
		default:
			entry.Outcome = remedy.Done
		}
		entry.Message = transition.Truncate(message, transition.MaxMessage)
		a.results <- result{entry: entry, key: entry.Alert, task: task}
	})
}

// do calls Deeds. A deed that panics has failed: it must not end the agent, which would only repeat it.
func (a *Actor) do(ctx context.Context, request Request) (message string, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	return a.config.Deeds.Do(ctx, request)
}

// finish writes the outcome of a deed.
func (a *Actor) finish(r result) {
	entry := r.entry
	change := remedy.Ledger{Entries: []remedy.Entry{entry}}
	if entry.Type.IsDisruptive() {
		a.work.disruptive = false
	} else {
		a.work.others--
	}
	if entry.Type == remedy.Uncordon {
		a.work.uncordon.update(entry.Outcome == remedy.Done, a.config.Now().At)
		if entry.Outcome == remedy.Done {
			change.Cordons = &remedy.Cordons{}
		}
	}
	a.note(change)
	a.work.verify.now = true
	a.metrics.total.WithLabelValues(string(entry.Type), resultOf(&entry)).Inc()
	a.config.OnRecord(newRecord(entry))
	if entry.Outcome == remedy.Failed {
		a.config.Logger.Warn("An action failed", "type", entry.Type, "object", entry.Object.String(), "rule", entry.Rule, "err", entry.Message)
	}
	if f, found := a.alerts[r.key]; found && r.task >= 0 && r.task < len(f.tasks) {
		f.tasks[r.task].running = false
		f.tasks[r.task].next = entry.VerifyAt()
	}
}

// intend writes a change of the ledger that must be on disk before what follows. If that fails, the ledger stays as it was.
func (a *Actor) intend(change remedy.Ledger) error {
	if err := a.write(change); err != nil {
		return err
	}
	a.apply(change)
	return nil
}

// note writes a change of the ledger that has happened. If that fails, it is written together with the next one.
func (a *Actor) note(change remedy.Ledger) {
	a.apply(change)
	if err := a.write(change); err != nil {
		a.metrics.writeErrors.Inc()
		a.config.Logger.Error("Failed to write the outcome of an action", "err", err)
	}
}

// apply merges a change into the ledger.
func (a *Actor) apply(change remedy.Ledger) {
	a.mu.Lock()
	a.ledger.Apply(change)
	a.mu.Unlock()
	a.publish()
}

// write writes a change, which the ledger may include already.
func (a *Actor) write(change remedy.Ledger) error {
	return a.log.Append(change, func() remedy.Ledger {
		a.mu.Lock()
		a.ledger.Prune(a.config.Now().At)
		a.mu.Unlock()
		ledger := a.ledger.Clone()
		ledger.Apply(change)
		return ledger
	})
}

// verify decides for the actions that are done whether they helped, and returns when the next one is due.
func (a *Actor) verify(now time.Time) (next time.Time) {
	for _, entry := range slices.Clone(a.ledger.Entries) {
		due := entry.VerifyAt()
		if due.IsZero() {
			continue
		}
		if now.Before(due) {
			next = earliest(next, due)
			continue
		}
		f, found := a.alerts[entry.Alert]
		switch {
		case !found && now.Before(a.startedAt.Add(startup)):
			next = earliest(next, a.startedAt.Add(startup)) // not all alerts of earlier runs are known yet
			continue
		case found && f.isActive() && f.alert.Freeze != nil:
			next = earliest(next, now.Add(recheck)) // whether it still fires is not known
			continue
		case found && f.isActive() && f.alert.Episode == entry.Episode:
			entry.Outcome = remedy.NotHelped
		default:
			entry.Outcome = remedy.Helped
		}
		a.note(remedy.Ledger{Entries: []remedy.Entry{entry}})
		a.metrics.verified.WithLabelValues(string(entry.Type), string(entry.Outcome)).Inc()
		a.config.OnRecord(newRecord(entry))
	}
	return next
}
