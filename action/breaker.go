package action

import (
	"context"
	"fmt"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/remedy"
)

// breakerPeriod is how long resolved alerts are kept for the breaker, and how often it is looked at while it suspends actions.
const (
	breakerPeriod = 5 * time.Minute
	breakerCheck  = time.Minute
	// breakerPause is how soon it is looked at when an alert that was recovering fires on.
	breakerPause = time.Second
)

// stepBreaker suspends and resumes disruptive actions, and forgets alerts that were resolved. It returns when to call it again.
func (a *Actor) stepBreaker(pods int, now remedy.Instant) (next time.Time) {
	var firings []remedy.PodFiring
	for key, f := range a.alerts {
		if !f.endedAt.IsZero() {
			forget := f.endedAt.Add(breakerPeriod)
			if !now.At.Before(forget) {
				delete(a.alerts, key)
				continue
			}
			next = earliest(next, forget)
		}
		if f.object.Pod != "" {
			firings = append(firings, remedy.PodFiring{
				Rule: f.alert.Labels[alert.LabelName], Namespace: f.object.Namespace, Pod: f.object.Pod, FiredAt: f.firedAt, Ended: !f.isActive(),
			})
		}
	}
	var before remedy.Breaker
	if a.ledger.Breaker != nil {
		before = *a.ledger.Breaker
	}
	after := before.Step(firings, pods, now)
	if after.Reason != "" {
		next = earliest(next, earliest(after.Until(), now.At.Add(breakerCheck)))
	}
	isSwitched := (before.Reason == "") != (after.Reason == "")
	if isSwitched || after.Reason != "" && after.Last.At.Sub(before.Last.At) >= breakerCheck {
		a.setBreaker(after, isSwitched)
	} else if after.Reason != "" {
		next = earliest(next, before.Until()) // decisions look at what is written
	}
	return next
}

// setBreaker writes the breaker. Decisions that depend on it are made again.
func (a *Actor) setBreaker(breaker remedy.Breaker, isSwitched bool) {
	a.note(remedy.Ledger{Breaker: &breaker})
	if !isSwitched {
		return
	}
	if breaker.Reason != "" {
		a.config.Logger.Warn("Disruptive actions are suspended", "reason", breaker.Reason)
	} else {
		a.config.Logger.Info("Disruptive actions are resumed")
	}
	for _, f := range a.alerts {
		for i := range f.tasks {
			if f.tasks[i].refused == remedy.ReasonSuspended {
				f.tasks[i].next = time.Time{}
			}
		}
	}
}

// resume is a request to end the suspension.
type resume struct {
	by     string
	answer chan resumed
}

type resumed struct {
	wasSuspended bool
	err          error
}

// Resume ends the suspension of disruptive actions and returns whether there was one. by is who asked for it.
func (a *Actor) Resume(ctx context.Context, by string) (bool, error) {
	request := resume{by: by, answer: make(chan resumed, 1)}
	select {
	case a.resumes <- request:
	case <-ctx.Done():
		return false, fmt.Errorf("resume actions: %w", ctx.Err())
	}
	answer := <-request.answer
	return answer.wasSuspended, answer.err
}

func (a *Actor) resume(by string) resumed {
	if a.ledger.Breaker == nil || a.ledger.Breaker.Reason == "" {
		return resumed{}
	}
	a.config.Logger.Info("Somebody resumes disruptive actions", "by", by)
	breaker := a.ledger.Breaker.Resume(a.config.Now().At)
	if err := a.intend(remedy.Ledger{Breaker: &breaker}); err != nil {
		return resumed{wasSuspended: true, err: fmt.Errorf("resume actions: %w", err)}
	}
	a.setBreaker(breaker, true)
	a.work.breaker.now = true
	return resumed{wasSuspended: true}
}
