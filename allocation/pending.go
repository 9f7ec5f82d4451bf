package allocation

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// Trigger is why pending resizes are tried, as a label of the kubelet's metric (RSZ-4).
type Trigger string

// The triggers.
const (
	TriggerPodUpdated    Trigger = "pod_updated"
	TriggerPodsAdded     Trigger = "pods_added"
	TriggerPodsRemoved   Trigger = "pods_removed"
	TriggerPodTerminated Trigger = "pod_terminated"
	TriggerPodResized    Trigger = "pod_resized"
	TriggerPeriodic      Trigger = "periodic_retry"
)

// RequestResize takes note of an update of a pod: it counts the operations and queues a resize (RSZ-3). A resize that was taken
// back is not pending any more. It reports whether RetryPendingResizes is to be called.
func (m *Manager) RequestResize(before, after *v1.Pod) bool {
	operations, isRequested := resize.Operations(before, after)
	for _, operation := range operations {
		m.metrics.requested.WithLabelValues(operation.Resource, operation.Requirement, operation.Kind).Inc()
	}
	return isRequested && m.QueueResize(after)
}

// QueueResize queues the pod's resize if its desired resources differ from the allocated ones, and reports whether they do.
func (m *Manager) QueueResize(pod *v1.Pod) bool {
	uid := podid.UID(pod.UID)
	allocated, found := m.AllocatedPod(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !found || allocated == pod {
		m.queue = slices.DeleteFunc(m.queue, func(queued podid.UID) bool { return queued == uid })
		m.setResizeLocked(uid, m.resizes[uid].WithoutPending())
		return false
	}
	if !slices.Contains(m.queue, uid) {
		m.queue = append(m.queue, uid)
	}
	return true
}

// HasPendingResizes reports whether a resize waits to be decided or is deferred.
func (m *Manager) HasPendingResizes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue) > 0
}

// RetryPendingResizes decides about all pending resizes in order (RSZ-6), and once more while one that was accepted leaves
// resources for the others. Its calls must not overlap with each other or with admissions of pods: two decisions would give
// the same resources away.
func (m *Manager) RetryPendingResizes(trigger Trigger) {
	for isFirst := true; m.tryPendingResizes(trigger); isFirst = false {
		if isFirst {
			trigger = TriggerPodResized
		}
	}
}

// tryPendingResizes decides about each pending resize once, and reports whether one that was accepted freed resources.
func (m *Manager) tryPendingResizes(trigger Trigger) (freed bool) {
	for _, pending := range m.pendingResizes() {
		uid := podid.UID(pending.Desired.UID)
		before := m.ResizeState(uid)
		if m.tryResize(pending, trigger) {
			freed = freed || pending.LowersRequests()
		}
		if after := m.ResizeState(uid); after != before {
			m.config.OnResize(uid)
		}
	}
	return freed && m.HasPendingResizes()
}

// pendingResizes returns the queue in order. Pods that are gone, or that have what they desire, leave it.
func (m *Manager) pendingResizes() []resize.Pending {
	if m.config.Pod == nil {
		return nil
	}
	m.mu.Lock()
	queue := slices.Clone(m.queue)
	m.mu.Unlock()
	var all []resize.Pending
	for _, uid := range queue {
		pod, found := m.config.Pod(uid)
		if !found {
			m.dequeue(uid)
			continue
		}
		if !m.QueueResize(pod) {
			continue
		}
		allocated, _ := m.AllocatedPod(pod)
		all = append(all, resize.Pending{Desired: pod, Allocated: allocated, Since: m.ResizeState(uid).PendingSince()})
	}
	slices.SortStableFunc(all, resize.Compare)
	return all
}

func (m *Manager) dequeue(uid podid.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = slices.DeleteFunc(m.queue, func(queued podid.UID) bool { return queued == uid })
}

// tryResize decides about one resize and reports whether it was accepted.
func (m *Manager) tryResize(pending resize.Pending, trigger Trigger) bool {
	pod, uid := pending.Desired, podid.UID(pending.Desired.UID)
	if verdict := m.config.Decide(pod); verdict != nil {
		m.refuse(pod, *verdict)
		return false
	}
	if err := m.accept(pod); err != nil { // stays queued
		m.config.Logger.Error("Failed to save pod allocation", "pod", podid.FullNameOf(pod).Key(), "podUID", uid, "err", err)
		return false
	}
	m.dequeue(uid)
	if m.ResizeState(uid).IsDeferred() {
		m.metrics.deferredAccepted.WithLabelValues(string(trigger)).Inc()
	}
	m.ClearPodResizePendingCondition(uid)
	m.ClearPodResizeInProgressCondition(uid) // an error of an earlier resize goes with it (RSZ-10)
	m.SetPodResizeInProgressCondition(uid, derive.ResizeCondition{Generation: pod.Generation})
	m.config.Events.Event(pod, v1.EventTypeNormal, "ResizeStarted", resize.Message("started", pod, pod.Generation, ""))
	return true
}

// refuse tells why a resize is not accepted. A deferred one stays queued, an infeasible one does not (RSZ-9).
func (m *Manager) refuse(pod *v1.Pod, verdict resize.Verdict) {
	uid, reason := podid.UID(pod.UID), "ResizeDeferred"
	if verdict.IsInfeasible() {
		reason = "ResizeInfeasible"
		m.dequeue(uid)
		m.metrics.infeasible.WithLabelValues(verdict.Detail).Inc()
	}
	condition := derive.ResizeCondition{Reason: verdict.Reason, Message: verdict.Message, Generation: pod.Generation}
	if m.ResizeState(uid).IsPendingFor(condition) {
		return
	}
	if m.SetPodResizePendingCondition(uid, condition) {
		m.config.Events.Event(pod, v1.EventTypeWarning, reason, resize.Message(verdict.Reason, pod, pod.Generation, verdict.Message))
	}
}
