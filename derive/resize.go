package derive

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Resize is the state of a pod's resource change: pending, in progress, both, or neither. It is an immutable value: methods
// return a changed copy and report whether it is worth an event.
type Resize struct {
	pending, inProgress v1.PodCondition // absent if Type is empty
}

// ResizeFromConditions restores the state from published conditions after a restart of the agent. It keeps their times; the
// kubelet resets them (SM-92).
func ResizeFromConditions(conditions []v1.PodCondition) Resize {
	var r Resize
	if pending := findCondition(conditions, v1.PodResizePending); pending != nil {
		r.pending = *pending
	}
	if inProgress := findCondition(conditions, v1.PodResizeInProgress); inProgress != nil {
		r.inProgress = *inProgress
	}
	return r
}

// Conditions returns the resize conditions, pending first (SM-93). The caller owns the list.
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

// ResizeCondition explains a resize condition and names the pod generation that it belongs to.
type ResizeCondition struct {
	Reason, Message string
	Generation      int64
}

// WithPending records a pending resize. Any reason other than Infeasible becomes Deferred. changed reports a new reason or
// generation; a new message alone does not count (SM-88).
func (r Resize) WithPending(condition ResizeCondition, now time.Time) (updated Resize, changed bool) {
	if condition.Reason != v1.PodReasonInfeasible {
		condition.Reason = v1.PodReasonDeferred
	}
	changed = condition.Reason != r.pending.Reason || condition.Generation != r.pending.ObservedGeneration
	r.pending = newResizeCondition(v1.PodResizePending, &r.pending, condition, now)
	return r, changed
}

// WithInProgress records a resize in progress. A resize that is already in progress keeps its generation: it must complete
// before a newer spec. Without reason and message the old ones stay. changed reports any difference except times (SM-89).
func (r Resize) WithInProgress(condition ResizeCondition, now time.Time) (updated Resize, changed bool) {
	previous := &r.inProgress
	if previous.Type != "" {
		condition.Generation = previous.ObservedGeneration
		if condition.Reason == "" && condition.Message == "" {
			condition.Reason, condition.Message = previous.Reason, previous.Message
		}
	}
	changed = previous.Type == "" || condition.Reason != previous.Reason || condition.Message != previous.Message
	r.inProgress = newResizeCondition(v1.PodResizeInProgress, previous, condition, now)
	return r, changed
}

// WithoutPending removes the pending resize, if any (SM-90).
func (r Resize) WithoutPending() Resize {
	r.pending = v1.PodCondition{}
	return r
}

// WithoutInProgress removes the resize in progress and returns its generation, so that its completion is reported once
// (SM-90). ok is false if there was none.
func (r Resize) WithoutInProgress() (updated Resize, generation int64, ok bool) {
	generation, ok = r.InProgress()
	r.inProgress = v1.PodCondition{}
	return r, generation, ok
}

// InProgress returns the generation of the resize in progress. ok is false if there is none.
func (r Resize) InProgress() (generation int64, ok bool) {
	return r.inProgress.ObservedGeneration, r.inProgress.Type != ""
}

// IsPendingFor reports whether exactly this condition is pending already.
func (r Resize) IsPendingFor(condition ResizeCondition) bool {
	return r.pending.Type != "" && condition == ResizeCondition{
		Reason: r.pending.Reason, Message: r.pending.Message, Generation: r.pending.ObservedGeneration,
	}
}

// Failure returns the message of a resize in progress that failed and is retried, or "".
func (r Resize) Failure() string {
	if r.inProgress.Reason != v1.PodReasonError {
		return ""
	}
	return r.inProgress.Message
}

// PendingSince returns when the resize became pending with its current reason. Zero if none is.
func (r Resize) PendingSince() time.Time { return r.pending.LastTransitionTime.Time }

// IsDeferred reports whether the resize waits for free resources on the node (SM-91).
func (r Resize) IsDeferred() bool { return r.pending.Reason == v1.PodReasonDeferred }

// IsInfeasible reports whether this node can never satisfy the resize (SM-91).
func (r Resize) IsInfeasible() bool { return r.pending.Reason == v1.PodReasonInfeasible }

// newResizeCondition changes the transition time with the reason: the status is always True.
func newResizeCondition(
	conditionType v1.PodConditionType, previous *v1.PodCondition, condition ResizeCondition, now time.Time,
) v1.PodCondition {
	changedAt := previous.LastTransitionTime
	if previous.Type == "" || previous.Reason != condition.Reason {
		changedAt = toSeconds(now)
	}
	return v1.PodCondition{
		Type:               conditionType,
		Status:             v1.ConditionTrue,
		ObservedGeneration: condition.Generation,
		LastProbeTime:      toSeconds(now),
		LastTransitionTime: changedAt,
		Reason:             condition.Reason,
		Message:            condition.Message,
	}
}
