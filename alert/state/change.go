package state

import (
	"time"

	"github.com/heraldnode/herald/alert"
)

// MustWaitAgain reports whether a firing alert has not been active for long enough after its rule's For was lengthened. Then it must be
// resolved, and be pending again.
func (i Instance) MustWaitAgain(before, after Timing, at time.Time) bool {
	return i.State == alert.Firing && i.Freeze == nil && after.For > before.For && at.Sub(i.ActiveAt) < after.For
}

// WaitAgain returns a resolved alert as pending since it became active before.
func (i Instance) WaitAgain() Instance {
	i.State, i.Reason = alert.Pending, ""
	return i.startClock(i.ActiveAt)
}

// Retime returns the instance after the durations of its rule changed at that time. What became due by it is due now, not earlier.
func (i Instance) Retime(timing Timing, at time.Time) Instance {
	duration, hasClock := i.duration(timing)
	if due := i.Due(timing); hasClock && !due.IsZero() && due.Before(at) {
		i.Since, i.Held = at, duration
	}
	return i
}

// Rebase returns an instance of an earlier run with times of this run's clock: with a monotonic clock reading, and none in the future.
func (i Instance) Rebase(now time.Time) Instance {
	i.ActiveAt, i.StartsAt, i.EndsAt, i.Since = rebase(i.ActiveAt, now), rebase(i.StartsAt, now), rebase(i.EndsAt, now), rebase(i.Since, now)
	if i.Freeze != nil {
		i.Freeze = &alert.Freeze{Since: rebase(i.Freeze.Since, now), Reason: i.Freeze.Reason}
	}
	return i
}

func rebase(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(min(0, t.Sub(now)))
}
