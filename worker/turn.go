package worker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/heraldnode/herald/plan"
)

// turn is one step of one pod: what was true when it began. Its record's memory is its own meanwhile.
type turn struct {
	*record
	step      plan.Step
	life      plan.Lifecycle
	admission admission
	hurried   bool
	waits     time.Duration // a static pod that may not begin yet asks again then
	now       time.Time
}

// result is how a step ended.
type result struct {
	// after is when to look again; 0: at once.
	after time.Duration
	// rest is how long nothing is tried again, unless somebody wants something: hints from the runtime, which a failed
	// attempt itself may cause, do not count.
	rest time.Duration
	// err is what keeps the pod from going on. It is known when an earlier step told it.
	err   error
	known bool
}

// failed is the result of a step that could not do its work: it is tried again after a rest, or when the error says
// (PW-31).
func (w *Workers) failed(err error) result {
	rest := jittered(w.config.Backoff)
	var said interface{ RetryAfter() time.Duration }
	if errors.As(err, &said) && said.RetryAfter() > 0 {
		rest = min(said.RetryAfter(), w.config.Resync)
	}
	return result{after: rest, rest: rest, err: err}
}

// resting is the result of a step that may not try anything now, and reports whether it is so.
func (t *turn) resting() (result, bool) {
	left := t.memory.notBefore.Sub(t.now)
	return result{after: left, rest: left, err: t.trouble, known: true}, left > 0 && !t.hurried
}

// identity is how errors name a pod.
func (t *turn) identity() string { return fmt.Sprintf("%s (%s)", t.life.Name, t.uid) }

// jittered is d and up to half of it more, so that what failed together is not tried again together.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*float64(d)/2) //nolint:gosec // spreads load, guards nothing
}
