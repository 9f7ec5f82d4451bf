package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/heraldnode/herald/plan"
)

// live is a pod's goroutine: it takes steps until there is nothing to do for the pod, or ctx ends.
func (w *Workers) live(ctx context.Context, r *record) {
	for {
		step, interrupt := context.WithCancel(ctx)
		t, busy := w.begin(r, interrupt)
		if !busy {
			interrupt()
			return
		}
		after := w.take(step, t)
		interrupt()
		if !pause(ctx, r.inbox, after) {
			w.mu.Lock()
			w.sleepLocked(r) // another Run goes on from here
			w.mu.Unlock()
			return
		}
	}
}

// pause lets time pass until somebody wakes the pod. It reports whether the pod goes on.
func pause(ctx context.Context, inbox <-chan struct{}, after time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if after <= 0 {
		return true
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-inbox:
	case <-timer.C:
	}
	return true
}

// begin decides on the next step, or that there is none: then the goroutine ends.
func (w *Workers) begin(r *record, interrupt context.CancelFunc) (*turn, bool) {
	rival := w.rivalOf(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-r.inbox: // what it was about is seen by this step
	default:
	}
	if r.life.NeverStarted() {
		w.moveLocked(r, r.life.FinishUnstarted())
	}
	if r.life.Step() == plan.StepIdle {
		w.retireLocked(r)
		return nil, false
	}
	t := &turn{record: r, step: r.life.Step(), hurried: r.hurried, admission: r.admission, now: time.Now()}
	switch {
	case t.step != plan.StepSync || r.life.Started:
	case rival:
		t.waits = jittered(time.Second)
	case !r.life.IsStatic() || w.names.take(r.life.Name, r.uid):
		r.life = r.life.Start()
		w.metrics.begun(t.now.Sub(r.since))
	default:
		t.waits = jittered(w.config.Backoff) // PW-16: in case that nobody wakes it
	}
	t.life, r.hurried, r.interrupt = r.life, false, interrupt
	return t, true
}

// restart begins the new life of a static pod that was removed and came back, if it still does (PW-5, PW-45).
func (w *Workers) restart(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.life.Step() != plan.StepRestart {
		return
	}
	w.metrics.restarted(r.life.Recreated)
	r.since, r.admission, r.orphan = time.Now(), admission{}, false
	r.memory = memory{newerThan: r.since}
	w.moveLocked(r, r.life.Restart())
}

// retireLocked ends the goroutine. The record of a pod that only the runtime knew is of no more use (PW-30); any other
// keeps late updates from starting the pod again (PW-6).
func (w *Workers) retireLocked(r *record) {
	r.live = false
	if r.life.Pod == nil {
		delete(w.records, r.uid)
	}
}

// rivalOf reports whether the runtime may hold a running pod of the same name that this agent does not drive: one from
// before a restart. Its successor waits until housekeeping has ended it, or, where that one is wanted too, until it had its
// turn: it has the name already.
func (w *Workers) rivalOf(r *record) bool {
	w.mu.Lock()
	life := r.life
	w.mu.Unlock()
	if life.Stage != plan.Syncing || life.Started || !life.IsStatic() {
		return false
	}
	pods, at := w.config.PodCache.Pods()
	if at.IsZero() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range pods {
		if p.Name != life.Name || p.UID == r.uid || !p.Running() {
			continue
		}
		other, known := w.records[p.UID]
		if known && w.names.advance(life.Name, p.UID) {
			w.wakeLocked(other)
		}
		if !known || other.life.CouldHaveRunningContainers() {
			return true
		}
	}
	return false
}

// take runs the step and says when the next one is due.
func (w *Workers) take(ctx context.Context, t *turn) time.Duration {
	switch {
	case t.waits > 0:
		return t.waits
	case t.step == plan.StepRestart:
		w.restart(t.record)
		return 0
	}
	got := w.run(ctx, t)
	w.metrics.took(t.life, time.Since(t.now))
	interrupted := ctx.Err() != nil
	t.memory.notBefore = time.Time{}
	if got.rest > 0 && !interrupted {
		t.memory.notBefore = time.Now().Add(got.rest)
	}
	w.mu.Lock()
	t.interrupt = nil
	if !interrupted {
		t.trouble = got.err
	}
	w.mu.Unlock()
	switch {
	case interrupted:
		return 0 // there is something newer to do
	case got.err != nil && !got.known:
		w.config.Logger.Error("Step failed, will be tried again", "pod", t.life.Name.String(), "uid", t.uid,
			"stage", t.life.Stage.String(), "after", max(got.after, got.rest), "err", got.err)
	}
	return got.after
}

func (w *Workers) run(ctx context.Context, t *turn) result {
	if got, rests := t.resting(); rests && t.step != plan.StepSync { // a sync still tells what it sees
		return got
	}
	switch t.step {
	case plan.StepSync:
		return w.sync(ctx, t)
	case plan.StepTerminate:
		return w.terminate(ctx, t)
	case plan.StepCleanUp:
		return w.cleanUp(ctx, t)
	case plan.StepRemove:
		return w.remove(ctx, t)
	default:
		panic(fmt.Sprintf("worker: pod %s has no step %d", t.uid, t.step))
	}
}

// move takes the pod on in its life, from wherever updates have brought it meanwhile.
func (w *Workers) move(t *turn, next func(plan.Lifecycle) plan.Lifecycle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moveLocked(t.record, next(t.record.life))
}
