package worker

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

// maxRejections is how often the time between two questions about a rejected static pod doubles: up to 5 min.
const maxRejections = 5

// askAbout has a static pod admitted or not in its own turn, until it is admitted; one that already runs, which must have been
// looked at, has its place.
func (w *Workers) askAbout(ctx context.Context, t *turn) error {
	runs := false
	if t.life.IsStatic() {
		seen, err := w.observe(ctx, t)
		if err != nil {
			return err
		}
		runs = seen.Running()
	}
	t.admission = w.admit(t.record, t.life.Pod, runs)
	return nil
}

// admit asks whether the node runs the pod, unless it has its place already. One pod is asked about at a time, and has its
// place before the next is: of two that want the last one, exactly one gets it. A static pod waits for a place from before
// it is asked about, so that none becomes free unseen.
func (w *Workers) admit(r *record, pod *v1.Pod, placed bool) admission {
	w.door.Lock()
	defer w.door.Unlock()
	got := admission{asked: true}
	if !placed {
		w.await(r)
		got.err = w.config.Admit(pod)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got.err == nil {
		delete(w.waiting, r.uid)
	}
	if got.err == nil || !r.life.IsStatic() { // a static pod is asked about again
		r.admission = got
	}
	return got
}

// await has a static pod asked about again when a place becomes free.
func (w *Workers) await(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.life.IsStatic() {
		w.waiting[r.uid] = true
	}
}

// wakeWaitingLocked has those static pods asked about again for which there was no place: one has become free (BUG-29).
func (w *Workers) wakeWaitingLocked() {
	for uid := range w.waiting {
		if r, known := w.records[uid]; known {
			r.hurried = true
			w.wakeLocked(r)
		}
	}
	clear(w.waiting)
}

// reject tells that the node will not run the pod (PH-49). A static pod has nobody who would make it anew: it waits, and
// is asked about again (BUG-29). Any other goes the way of all pods that end, at once (BUG-33).
func (w *Workers) reject(t *turn) result {
	reason, message := rejectionReason(t.admission.err), t.admission.err.Error()
	status := derive.RejectedStatus(t.life.Pod, reason, message)
	w.metrics.rejected(reason)
	w.config.Events.Event(t.life.Pod, v1.EventTypeWarning, reason, message)
	if !t.life.IsStatic() {
		w.config.Statuses.SetPodStatus(t.life.Pod, status)
		w.move(t, plan.Lifecycle.Reject)
		return result{}
	}
	status.Phase = v1.PodPending
	w.config.Statuses.SetPodStatus(t.life.Pod, status)
	after := jittered(w.config.Backoff << min(t.memory.rejections, maxRejections))
	t.memory.rejections++
	return result{after: after, rest: after, err: t.admission.err, known: t.memory.rejections > 1}
}

func rejectionReason(err error) string {
	var said interface{ RejectionReason() string }
	if errors.As(err, &said) {
		return said.RejectionReason()
	}
	return "UnexpectedAdmissionError"
}
