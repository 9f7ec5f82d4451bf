package worker

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// admission is the decision whether the node runs the pod.
type admission struct {
	decided bool
	err     error // why the pod was rejected; nil if it was admitted
}

// admitAPIPod decides on an API pod in the goroutine of UpdatePod's caller. The pod is not synced before. After a panic, or if
// the runtime was not listed yet, the pod's own goroutine decides.
func (w *Workers) admitAPIPod(r *record, pod *v1.Pod) {
	defer func() {
		if value := recover(); value != nil {
			_ = w.panicError(podid.FullNameOf(pod), r.uid, value)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		r.admitting = false
		w.wakeLocked(r)
	}()
	if isRunning, known := w.isRunning(r.uid); known {
		w.admit(r, pod, isRunning)
	}
}

// isRunning reports whether a container of the pod runs. known is false if the runtime was not observed yet.
func (w *Workers) isRunning(uid podid.UID) (isRunning, known bool) {
	if cached := w.config.PodCache.Get(uid); !cached.At.IsZero() {
		return cached.Running(), true
	}
	pods, listedAt := w.config.PodCache.Pods()
	if listedAt.IsZero() {
		return false, false
	}
	return slices.ContainsFunc(pods, func(pod *observed.Pod) bool { return pod.UID == uid && pod.Running() }), true
}

// admitInSync decides on a pod in its own goroutine, in each sync until it is admitted. A pod that is already running is
// admitted, so the pod must be observed first.
func (w *Workers) admitInSync(ctx context.Context, iter *iteration) error {
	runtimePod, err := w.observe(ctx, iter)
	if err != nil {
		return err
	}
	iter.admission = w.admit(iter.record, iter.lifecycle.Pod, runtimePod.Running())
	return nil
}

// admit decides whether the node runs the pod. A running pod is always admitted: an agent that starts, or that takes over the
// node from another one, does not kill what runs.
//
// One pod is decided at a time and its decision is stored before the next one, so that exactly one of two pods gets the last
// resources. The pod is registered for a retry before the decision, so that resources that are freed meanwhile are
// not missed.
func (w *Workers) admit(r *record, pod *v1.Pod, isRunning bool) admission {
	w.admitMu.Lock()
	defer w.admitMu.Unlock()
	decision := admission{decided: true}
	if !isRunning {
		w.registerForRetry(r)
		decision.err = w.config.Admit(pod)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.rejected = decision.err
	if decision.err == nil || isFinal(r.lifecycle, decision.err) {
		delete(w.awaitingAdmission, r.uid)
		r.admission = decision
	}
	return decision
}

// isFinal reports whether a rejected pod is not asked for again. That of a static pod is not final, because no controller would
// replace it (BUG-29), and neither is that of a pod for which resources are about to be freed (ADM-4).
func isFinal(lifecycle plan.Lifecycle, rejection error) bool {
	return !lifecycle.IsStatic() && !isTemporary(rejection)
}

// isTemporary reports whether the resources that the pod lacks are about to be freed.
func isTemporary(rejection error) bool {
	var typed interface{ IsTemporary() bool }
	return errors.As(rejection, &typed) && typed.IsTemporary()
}

func (w *Workers) registerForRetry(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaitingAdmission[r.uid] = true
}

// retryAdmissionsLocked wakes the pods whose rejection is not final because resources were freed (BUG-29).
func (w *Workers) retryAdmissionsLocked() {
	for uid := range w.awaitingAdmission {
		if r, found := w.records[uid]; found {
			r.urgent = true
			w.wakeLocked(r)
		}
	}
	clear(w.awaitingAdmission)
}

// maxRejectionDoublings limits the backoff of a pod that is rejected again and again to about 5m.
const maxRejectionDoublings = 5

// reject publishes that the node does not run the pod (PH-49). It is terminated at once (BUG-33), or stays Pending and is retried if
// the rejection is not final.
func (w *Workers) reject(iter *iteration) result {
	pod, err := iter.lifecycle.Pod, iter.admission.err
	reason := rejectionReason(err)
	status := derive.RejectedStatus(pod, reason, err.Error())
	if isTemporary(err) {
		status.Message = "Pod waits for resources: " + err.Error()
		w.config.Events.Event(pod, v1.EventTypeNormal, reason, status.Message)
	} else {
		w.metrics.rejections.WithLabelValues(reason).Inc()
		w.config.Events.Event(pod, v1.EventTypeWarning, reason, err.Error())
	}
	if isFinal(iter.lifecycle, err) {
		w.config.Statuses.SetPodStatus(pod, status)
		w.transition(iter, plan.Lifecycle.Reject)
		return result{}
	}
	status.Phase = v1.PodPending
	w.config.Statuses.SetPodStatus(pod, status)
	backoff := withJitter(w.config.Backoff << min(iter.state.consecutiveRejections, maxRejectionDoublings))
	iter.state.consecutiveRejections++
	return result{requeueAfter: backoff, backoff: backoff, err: err, reported: iter.state.consecutiveRejections > 1}
}

func rejectionReason(err error) string {
	var typed interface{ RejectionReason() string }
	if errors.As(err, &typed) {
		return typed.RejectionReason()
	}
	return "UnexpectedAdmissionError"
}

// staticPodQueue ensures that only one of the static pods with the same full name is started, in the order of their arrival:
// two generations of etcd must never overlap (PW-15). Workers.mu guards it.
type staticPodQueue struct {
	started map[podid.FullName]podid.UID
	waiting map[podid.FullName][]podid.UID // in order of arrival
}

func newStaticPodQueue() staticPodQueue {
	return staticPodQueue{started: map[podid.FullName]podid.UID{}, waiting: map[podid.FullName][]podid.UID{}}
}

// enqueue adds a pod behind those that wait for the same name.
func (q staticPodQueue) enqueue(name podid.FullName, uid podid.UID) {
	if !slices.Contains(q.waiting[name], uid) {
		q.waiting[name] = append(q.waiting[name], uid)
	}
}

// moveToFront moves a waiting pod before all others. It reports whether the order changed.
func (q staticPodQueue) moveToFront(name podid.FullName, uid podid.UID) bool {
	i := slices.Index(q.waiting[name], uid)
	if i > 0 {
		q.waiting[name] = slices.Insert(slices.Delete(q.waiting[name], i, i+1), 0, uid)
	}
	return i > 0
}

// first returns the pod that is started when the name is free.
func (q staticPodQueue) first(name podid.FullName) (podid.UID, bool) {
	if len(q.waiting[name]) == 0 {
		return "", false
	}
	return q.waiting[name][0], true
}

// start reserves the name for the pod. It returns false if the name is not free or another pod is first.
func (q staticPodQueue) start(name podid.FullName, uid podid.UID) bool {
	if _, taken := q.started[name]; taken || len(q.waiting[name]) == 0 || q.waiting[name][0] != uid {
		return false
	}
	q.dequeue(name, uid)
	q.started[name] = uid
	return true
}

// dequeue removes a waiting pod.
func (q staticPodQueue) dequeue(name podid.FullName, uid podid.UID) {
	waiting := slices.DeleteFunc(q.waiting[name], func(other podid.UID) bool { return other == uid })
	if len(waiting) == 0 {
		delete(q.waiting, name)
	} else {
		q.waiting[name] = waiting
	}
}

// release frees the name if the pod holds it (PW-18).
func (q staticPodQueue) release(name podid.FullName, uid podid.UID) {
	if q.started[name] == uid {
		delete(q.started, name)
	}
}
