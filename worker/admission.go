package worker

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

// maxRejections is how often the time between two questions about a rejected static pod doubles: up to 5 min.
const maxRejections = 5

// admitted reports whether the node runs the pod. A static pod is asked about here, in its own turn, until it is admitted;
// one that already runs has its place.
func (w *Workers) admitted(t *turn) bool {
	if !t.admission.asked {
		t.admission.asked = true
		if !t.life.Static() || !w.config.Observations.Get(t.uid).Running() {
			t.admission.err = w.config.Admit(t.life.Pod)
		}
		if t.admission.err == nil {
			w.mu.Lock()
			t.record.admission = t.admission
			w.mu.Unlock()
		}
	}
	return t.admission.err == nil
}

// reject tells that the node will not run the pod (PH-49). A static pod has nobody who would make it anew: it waits, and
// is asked about again (BUG-29). Any other goes the way of all pods that end, at once (BUG-33).
func (w *Workers) reject(t *turn) result {
	reason, message := rejectionReason(t.admission.err), t.admission.err.Error()
	status := derive.Rejected(t.life.Pod, reason, message)
	w.metrics.rejected(reason)
	w.config.Events.Event(t.life.Pod, v1.EventTypeWarning, reason, message)
	if !t.life.Static() {
		w.config.Statuses.SetPodStatus(t.life.Pod, status)
		w.move(t, plan.Lifecycle.Reject)
		return result{}
	}
	status.Phase = v1.PodPending
	w.config.Statuses.SetPodStatus(t.life.Pod, status)
	w.mu.Lock()
	w.rejected[t.uid] = true
	w.mu.Unlock()
	after := jittered(w.config.Backoff << min(t.memory.rejections, maxRejections))
	t.memory.rejections++
	return result{after: after, rest: after, err: t.admission.err}
}

func rejectionReason(err error) string {
	var said interface{ RejectionReason() string }
	if errors.As(err, &said) {
		return said.RejectionReason()
	}
	return "UnexpectedAdmissionError"
}
