package state

import (
	"time"

	"github.com/heraldnode/herald/alert"
)

const (
	// Memory is how long a resolved alert is remembered.
	Memory = 15 * time.Minute
	// FlapWindow is the time after the end of an episode within which a firing continues it.
	FlapWindow = 5 * time.Minute
)

// Timing has the durations of a rule.
type Timing struct {
	// For is how long the expression must be true until the alert fires, Keep how long it must be false until a firing alert is resolved.
	For, Keep time.Duration
}

// Instance is an alert in time. The zero value is an inactive one. Times keep their monotonic clock readings, so that durations do not
// change when the clock is set.
type Instance struct {
	State alert.State
	// The following are as in alert.Alert. A pending alert still has those of its last episode.
	ActiveAt, StartsAt, EndsAt time.Time
	Episode                    uint64
	Flaps                      int
	// Reason says why the alert was resolved, or why it will be if it is recovering.
	Reason string
	// Freeze is set while the answer is unknown.
	Freeze *alert.Freeze
	// Since is when the clock of the state was started last, Held what it showed then. It stands at Held while the answer is unknown.
	Since time.Time
	Held  time.Duration
}

// True returns the instance after the expression was true at that time.
func (i Instance) True(timing Timing, at time.Time) Instance {
	i = i.unfreeze(at)
	switch i.State {
	case alert.Pending, alert.Firing:
		return i
	case alert.Recovering:
		i.State, i.Reason = alert.Firing, ""
		return i.startClock(at)
	default:
		i.ActiveAt = at
		if timing.For <= 0 {
			return i.fire(at)
		}
		i.State, i.Reason = alert.Pending, ""
		return i.startClock(at)
	}
}

// False returns the instance after the expression was false at that time. The reason is empty, or says why it is false: the object is gone.
func (i Instance) False(timing Timing, at time.Time, reason string) Instance {
	i = i.unfreeze(at)
	switch i.State {
	case alert.Pending:
		return i.withdraw(at)
	case alert.Firing:
		if timing.keep(i) <= 0 {
			return i.Resolve(at, reason)
		}
		i.State, i.Reason = alert.Recovering, reason
		return i.startClock(at)
	case alert.Recovering:
		i.Reason = reason
	}
	return i
}

// Unknown returns the instance after the answer was unknown at that time, and why.
func (i Instance) Unknown(at time.Time, reason string) Instance {
	switch {
	case i.State == "":
	case i.Freeze == nil:
		i.Held += max(0, at.Sub(i.Since))
		i.Freeze = &alert.Freeze{Since: at, Reason: reason}
	case i.Freeze.Reason != reason:
		i.Freeze = &alert.Freeze{Since: i.Freeze.Since, Reason: reason}
	}
	return i
}

// Resolve ends the alert at once, whatever the durations of its rule and whether or not the answer is known.
func (i Instance) Resolve(at time.Time, reason string) Instance {
	i = i.unfreeze(at)
	switch i.State {
	case alert.Pending:
		return i.withdraw(at)
	case alert.Firing, alert.Recovering:
		i.State, i.EndsAt, i.Reason = alert.Resolved, at, reason
		return i.startClock(at)
	default:
		return i
	}
}

// Due returns when time alone changes the state; zero if never.
func (i Instance) Due(timing Timing) time.Time {
	if i.Freeze != nil {
		return time.Time{}
	}
	duration, hasClock := i.duration(timing)
	if !hasClock {
		return time.Time{}
	}
	return i.Since.Add(max(0, duration-i.Held))
}

// Elapse returns the instance after the change of Due, if that is not after the time given, and whether there was one. A caller repeats it
// until there is none.
func (i Instance) Elapse(timing Timing, at time.Time) (Instance, bool) {
	due := i.Due(timing)
	if due.IsZero() || due.After(at) {
		return i, false
	}
	due = at.Add(due.Sub(at)) // the wall clock of now, which may have been set since
	switch i.State {
	case alert.Pending:
		return i.fire(due), true
	case alert.Recovering:
		return i.Resolve(due, i.Reason), true
	default:
		return Instance{}, true
	}
}

// duration returns how long the state lasts if nothing happens.
func (i Instance) duration(timing Timing) (time.Duration, bool) {
	switch i.State {
	case alert.Pending:
		return timing.For, true
	case alert.Recovering:
		return timing.keep(i), true
	case alert.Resolved:
		return Memory, true
	default:
		return 0, false
	}
}

// keep returns how long the instance recovers.
func (t Timing) keep(i Instance) time.Duration {
	if i.Flaps > 0 {
		return max(t.Keep, FlapWindow)
	}
	return t.Keep
}

// fire begins an episode, or continues the last one.
//
// The number of an episode is the time of its start in milliseconds, so that it differs from those of episodes that were forgotten. If the
// clock was set back, it is the number after the last.
func (i Instance) fire(at time.Time) Instance {
	if !i.EndsAt.IsZero() && at.Sub(i.EndsAt) < FlapWindow {
		i.Flaps++
	} else {
		i.Episode, i.StartsAt, i.Flaps = max(i.Episode+1, uint64(max(0, at.UnixMilli()))), at, 0
	}
	i.State, i.EndsAt, i.Reason = alert.Firing, time.Time{}, ""
	return i.startClock(at)
}

// withdraw ends a pending alert. An episode that ended a short time ago is remembered again.
func (i Instance) withdraw(at time.Time) Instance {
	if i.EndsAt.IsZero() || at.Sub(i.EndsAt) >= Memory {
		return Instance{}
	}
	i.State, i.ActiveAt = alert.Resolved, i.StartsAt
	return i.startClock(i.EndsAt)
}

func (i Instance) startClock(at time.Time) Instance {
	i.Since, i.Held = at, 0
	return i
}

func (i Instance) unfreeze(at time.Time) Instance {
	if i.Freeze != nil {
		i.Since, i.Freeze = at, nil
	}
	return i
}
