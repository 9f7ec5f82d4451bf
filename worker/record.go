package worker

import (
	"context"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// record is one pod, by its UID, from its first update until housekeeping forgets it.
type record struct {
	uid   podid.UID
	inbox chan struct{} // capacity 1: look again
	// memory belongs to the pod's goroutine alone.
	memory memory

	// Workers.mu guards all below.

	life      plan.Lifecycle
	since     time.Time // of the first update of this life
	held      bool      // admission is being asked: nothing happens yet
	admission admission
	live      bool               // has a goroutine, or is about to get one
	hurried   bool               // somebody wants something: rest no longer
	interrupt context.CancelFunc // of the step that runs; nil: none runs
	waiters   []chan<- struct{}  // closed when the pod's containers have stopped
	orphan    bool               // no source wants it
	trouble   error              // of the last step
	finished  time.Time          // when the pod was last found to hold nothing
}

// admission is whether the node runs the pod.
type admission struct {
	asked bool
	err   error
}

// memory is what one step leaves to the next.
type memory struct {
	// newerThan is when we last did something, or first heard of the pod: what was seen before says nothing (PW-26).
	newerThan time.Time
	backoff   plan.Backoff
	// failed are the containers that could not be started, until they were.
	failed map[string]failedStart
	// busy counts the steps in a row that did something.
	busy int
	// rejections counts those in a row.
	rejections int
	// notBefore is when what failed may be tried again.
	notBefore time.Time
	// stopBy is when the grace of the stop that was interrupted is over; zero: none was.
	stopBy time.Time
	// waits is until when each container in a crash loop is known, and was told, to wait.
	waits map[string]time.Time
	// started tells that the pod was seen to run: its start was measured (BUG-34).
	started bool
}

// failedStart is why a container could not be started (PH-31), and when it may be tried again: a failed attempt makes the
// runtime speak of the pod, which is no reason to try at once.
type failedStart struct {
	waiting   derive.Waiting
	err       error
	notBefore time.Time
}

func newRecord(uid podid.UID, now time.Time) *record {
	return &record{uid: uid, inbox: make(chan struct{}, 1), memory: memory{newerThan: now}, since: now}
}

// releaseLocked tells all who wait that there is nothing to wait for.
func (r *record) releaseLocked() {
	for _, done := range r.waiters {
		close(done)
	}
	r.waiters = nil
}
