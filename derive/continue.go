package derive

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Continue is next as the continuation of old, the status before it: what must not move in a pod's life does not.
//
//   - A condition's transition time changes when its status does, and only then; it never moves backwards, whatever the
//     clock does (SM-24, I6). Resize conditions and those of others keep the times that they came with.
//   - The start time is the first one that was ever set (SM-25, I4).
//   - The observed generation never falls (SM-27, I5).
func CarryOver(old *v1.PodStatus, next v1.PodStatus, now time.Time) v1.PodStatus {
	next.Conditions = timedConditions(old.Conditions, next.Conditions, now)
	switch {
	case !old.StartTime.IsZero():
		next.StartTime = old.StartTime
	case next.StartTime.IsZero():
		start := second(now)
		next.StartTime = &start
	}
	next.ObservedGeneration = max(next.ObservedGeneration, old.ObservedGeneration)
	return next
}

// timedConditions copies the list only when a time in it is not right yet.
func timedConditions(old, next []v1.PodCondition, now time.Time) []v1.PodCondition {
	copied := false
	for i := range next {
		if !slices.Contains(timed[:], next[i].Type) {
			continue
		}
		at := transition(conditionOf(old, next[i].Type), next[i].Status, now)
		if at == next[i].LastTransitionTime {
			continue
		}
		if !copied {
			next, copied = slices.Clone(next), true
		}
		next[i].LastTransitionTime = at
	}
	return next
}

// transition is when the condition turned to this status, old being the condition before or nil.
func transition(old *v1.PodCondition, status v1.ConditionStatus, now time.Time) metav1.Time {
	at := second(now)
	if old == nil {
		return at
	}
	if old.Status == status || at.Before(&old.LastTransitionTime) {
		return old.LastTransitionTime
	}
	return at
}

// Termination is the end of one container.
type Termination struct {
	Kind     ContainerKind
	Name     string
	ExitCode int32
	Reason   string
}

// NewlyTerminated lists the containers that next shows as terminated and old did not, so that each end is counted once
// (SM-31).
func NewlyTerminated(old, next *v1.PodStatus) []Termination {
	var ends []Termination
	note := func(kind ContainerKind, old, next []v1.ContainerStatus) {
		for i := range next {
			end := next[i].State.Terminated
			if end == nil {
				continue
			}
			if before := statusOf(old, next[i].Name); before == nil || before.State.Terminated == nil {
				ends = append(ends, Termination{kind, next[i].Name, end.ExitCode, end.Reason})
			}
		}
	}
	note(InitContainer, old.InitContainerStatuses, next.InitContainerStatuses)
	note(RegularContainer, old.ContainerStatuses, next.ContainerStatuses)
	note(EphemeralContainer, old.EphemeralContainerStatuses, next.EphemeralContainerStatuses)
	return ends
}
