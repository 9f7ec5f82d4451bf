package worker

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Update is what somebody wants of a pod. Nobody changes its pods any more.
type Update = plan.Update

// UpdatePod takes an update in and returns at once. Of several before the pod's next step the newest counts (PW-11).
func (w *Workers) UpdatePod(u Update) { w.update(u, nil) }

// Wake tells that something about the pod may have changed: its containers, a probe's verdict. Any number of calls before
// the next step is one. A pod that nobody spoke of is none of ours.
func (w *Workers) Wake(uid podid.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, known := w.records[uid]; known && r.life.Step() != plan.StepIdle {
		w.wakeLocked(r)
	}
}

// update is UpdatePod with somebody who waits for the containers' end, or nil. done is closed as soon as there is nothing
// to wait for: nobody waits for ever (PW-9, PW-10).
func (w *Workers) update(u Update, done chan<- struct{}) {
	uid, identified := identify(u)
	if !identified {
		if done != nil {
			close(done)
		}
		return
	}
	seen := w.config.PodCache.Get(uid)
	w.mu.Lock()
	r, known := w.records[uid]
	if !known {
		r = newRecord(uid, time.Now())
	}
	next, effects := r.life.Apply(u, seen)
	if done != nil {
		r.waiters = append(r.waiters, done)
	}
	if effects.Ignored {
		if r.life.Stage != plan.Terminating {
			r.releaseLocked()
		}
		w.mu.Unlock()
		return
	}
	asks := !known && next.Stage == plan.Syncing && !next.IsStatic()
	r.held = r.held || asks
	r.hurried = r.hurried || u.Op != plan.OpSync || effects.Interrupt
	w.records[uid] = r
	w.moveLocked(r, next)
	if effects.Interrupt && r.interrupt != nil {
		r.interrupt()
	}
	w.mu.Unlock()
	if asks {
		w.admitHeld(r, u.Pod)
	}
}

func identify(u Update) (podid.UID, bool) {
	switch {
	case u.Pod != nil:
		return podid.UID(u.Pod.UID), true
	case u.RunningPod != nil:
		return u.RunningPod.UID, true
	default:
		return "", false
	}
}

// admitHeld asks about a pod in the caller's turn, and then lets it go.
func (w *Workers) admitHeld(r *record, pod *v1.Pod) {
	w.admit(r, pod, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.held = false
	w.wakeLocked(r)
}

// moveLocked gives the pod its next life, with all that follows for others.
func (w *Workers) moveLocked(r *record, next plan.Lifecycle) {
	if r.life.Stage < plan.Terminated && next.Stage >= plan.Terminated {
		w.wakeWaitingLocked()
	}
	r.life = next
	if next.Stage != plan.Terminating {
		r.releaseLocked()
	}
	switch {
	case next.Stage == plan.Syncing && next.IsStatic() && !next.Started:
		w.names.queue(next.Name, r.uid)
	case next.Stage != plan.Syncing:
		w.names.leave(next.Name, r.uid)
	}
	if next.Stage == plan.Finished {
		w.names.release(next.Name, r.uid)
		r.finished = time.Now()
	}
	w.wakeLocked(r)
	w.wakeFirstLocked(next.Name)
}

// wakeFirstLocked wakes the static pod whose turn at the name it is, so that it need not ask again and again (PW-16).
func (w *Workers) wakeFirstLocked(name podid.FullName) {
	if first, waits := w.names.first(name); waits {
		if r, known := w.records[first]; known {
			w.wakeLocked(r)
		}
	}
}

// KillPod ends the pod and waits until its containers have stopped: at least 10 s, at most one and a half times its
// grace. The error tells that they have not, and the kill goes on (PW-23).
func (w *Workers) KillPod(ctx context.Context, pod *v1.Pod, kill plan.KillOptions) error {
	done := make(chan struct{})
	w.update(Update{Op: plan.OpKill, Pod: pod, Kill: kill}, done)
	grace := plan.GracePeriod(pod)
	if kill.GracePeriod != nil {
		grace = *kill.GracePeriod
	}
	limit := max(minPatience, grace+grace/2)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill pod %s (%s): %w", podid.FullNameOf(pod), pod.UID, ctx.Err())
	case <-timer.C:
		message := fmt.Sprintf("Container runtime did not kill the pod within %v.", limit)
		w.config.Events.Event(pod, v1.EventTypeWarning, "ExceededGracePeriod", message)
		return fmt.Errorf("kill pod %s (%s): it still runs after %v", podid.FullNameOf(pod), pod.UID, limit)
	}
}

const minPatience = 10 * time.Second
