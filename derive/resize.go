package derive

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Resize is where a pod's change of resources stands: waiting to be allocated, being applied, both, or neither. It is a
// value: methods return a changed one, and say whether a user should hear of it.
type Resize struct {
	pending, inProgress v1.PodCondition // without a type: absent
}

// ResizeOf reads the state back from published conditions, after a restart of the agent. Their times are kept; the
// kubelet starts them anew (SM-92).
func ResizeFromConditions(conditions []v1.PodCondition) Resize {
	var r Resize
	if pending := conditionOf(conditions, v1.PodResizePending); pending != nil {
		r.pending = *pending
	}
	if inProgress := conditionOf(conditions, v1.PodResizeInProgress); inProgress != nil {
		r.inProgress = *inProgress
	}
	return r
}

// Conditions lists what is there, pending first (SM-93). The list is the caller's.
func (r Resize) Conditions() []v1.PodCondition {
	var conditions []v1.PodCondition
	if r.pending.Type != "" {
		conditions = append(conditions, r.pending)
	}
	if r.inProgress.Type != "" {
		conditions = append(conditions, r.inProgress)
	}
	return conditions
}

// ResizeVerdict is why a resize is where it is, and for which generation of the pod.
type ResizeCondition struct {
	Reason, Message string
	Generation      int64
}

// Pend records that a resize waits. A reason other than Infeasible is shown as Deferred. It is news when the reason or
// the generation changed; a new message alone is not (SM-88).
func (r Resize) WithPending(why ResizeCondition, now time.Time) (next Resize, news bool) {
	if why.Reason != v1.PodReasonInfeasible {
		why.Reason = v1.PodReasonDeferred
	}
	next = r
	next.pending = resizeCondition(v1.PodResizePending, &r.pending, why, now)
	return next, why.Reason != r.pending.Reason || why.Generation != r.pending.ObservedGeneration
}

// Progress records that a resize is being applied. One that is under way keeps its generation: a newer spec does not
// relabel it, it must be finished first. Without reason and message the old ones stay. It is news when anything but the
// times changed (SM-89).
func (r Resize) WithInProgress(why ResizeCondition, now time.Time) (next Resize, news bool) {
	if r.inProgress.Type != "" {
		why.Generation = r.inProgress.ObservedGeneration
		if why.Reason == "" && why.Message == "" {
			why.Reason, why.Message = r.inProgress.Reason, r.inProgress.Message
		}
	}
	next = r
	next.inProgress = resizeCondition(v1.PodResizeInProgress, &r.inProgress, why, now)
	return next, r.inProgress.Type == "" || why.Reason != r.inProgress.Reason || why.Message != r.inProgress.Message
}

// Accept removes the waiting resize, if there is one (SM-90).
func (r Resize) WithoutPending() Resize {
	r.pending = v1.PodCondition{}
	return r
}

// Finish removes the resize under way. done is false when there was none; else generation is the one that was applied,
// so that its completion is told once (SM-90).
func (r Resize) WithoutInProgress() (next Resize, generation int64, done bool) {
	generation, done = r.inProgress.ObservedGeneration, r.inProgress.Type != ""
	r.inProgress = v1.PodCondition{}
	return r, generation, done
}

// InProgress is the generation that is being applied, and whether one is.
func (r Resize) InProgress() (generation int64, ok bool) {
	return r.inProgress.ObservedGeneration, r.inProgress.Type != ""
}

// IsDeferred reports whether the resize waits for room on the node (SM-91).
func (r Resize) IsDeferred() bool { return r.pending.Reason == v1.PodReasonDeferred }

// IsInfeasible reports whether the resize can never be done on this node (SM-91).
func (r Resize) IsInfeasible() bool { return r.pending.Reason == v1.PodReasonInfeasible }

// resizeCondition moves its transition time when the reason changes: the condition is True all along.
func resizeCondition(kind v1.PodConditionType, old *v1.PodCondition, why ResizeCondition, now time.Time) v1.PodCondition {
	changed := old.LastTransitionTime
	if old.Type == "" || old.Reason != why.Reason {
		changed = second(now)
	}
	return v1.PodCondition{
		Type:               kind,
		Status:             v1.ConditionTrue,
		ObservedGeneration: why.Generation,
		LastProbeTime:      second(now),
		LastTransitionTime: changed,
		Reason:             why.Reason,
		Message:            why.Message,
	}
}
