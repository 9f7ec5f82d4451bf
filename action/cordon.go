package action

import (
	"context"
	"slices"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/remedy"
)

// cordonsWith returns the cordons of the ledger and one more.
func (a *Actor) cordonsWith(key string) *remedy.Cordons {
	cordons := &remedy.Cordons{}
	if a.ledger.Cordons != nil {
		cordons.Alerts = slices.Clone(a.ledger.Cordons.Alerts)
	}
	if !slices.Contains(cordons.Alerts, key) {
		cordons.Alerts = append(cordons.Alerts, key)
	}
	return cordons
}

// undoCordons makes the node schedulable when none of the alerts fires for which it was made unschedulable. It returns when to call it
// again.
func (a *Actor) undoCordons(ctx context.Context, now remedy.Instant) time.Time {
	if a.ledger.Cordons == nil || len(a.ledger.Cordons.Alerts) == 0 || a.isBusyWithCordon() {
		return time.Time{}
	}
	for _, key := range a.ledger.Cordons.Alerts {
		f, found := a.alerts[key]
		switch {
		case found && f.endedAt.IsZero():
			return time.Time{}
		case !found && now.At.Before(a.work.sweep):
			return a.work.sweep // not all alerts of earlier runs are known yet
		}
	}
	if now.At.Before(a.work.uncordon.at) {
		return a.work.uncordon.at
	}
	key := a.ledger.Cordons.Alerts[0]
	about := alert.Alert{Labels: alert.Labels{}}
	if f, found := a.alerts[key]; found {
		about = f.alert
	}
	entry := remedy.Entry{
		ID: a.ledger.LastID + 1, Rule: about.Labels[alert.LabelName], Alert: key, Type: remedy.Uncordon, Instant: now, Outcome: remedy.Running,
	}
	if err := a.intend(remedy.Ledger{Entries: []remedy.Entry{entry}}); err != nil {
		a.metrics.writeErrors.Inc()
		a.config.Logger.Error("The node stays unschedulable because the intent to change it cannot be written", "err", err)
		a.work.uncordon.update(false, now.At)
		return a.work.uncordon.at
	}
	a.config.OnRecord(newRecord(entry))
	a.perform(ctx, entry, about, -1)
	return time.Time{}
}

// isBusyWithCordon reports whether the node is being made schedulable or unschedulable.
func (a *Actor) isBusyWithCordon() bool {
	return slices.ContainsFunc(a.ledger.Entries, func(e remedy.Entry) bool {
		return e.Outcome == remedy.Running && (e.Type == remedy.Cordon || e.Type == remedy.Uncordon)
	})
}

const (
	minRetry = time.Minute
	maxRetry = 30 * time.Minute
)

// update sets when to try again.
func (r *retry) update(succeeded bool, now time.Time) {
	if succeeded {
		*r = retry{}
		return
	}
	r.delay = min(max(minRetry, 2*r.delay), maxRetry)
	r.at = now.Add(r.delay)
}
