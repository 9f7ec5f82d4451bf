package derive

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CarryOver carries monotonic fields over from the previous status:
//
//   - A condition's transition time changes only if its status does. It never decreases, whatever the clock does (SM-24, I6).
//     Resize conditions and conditions of other writers keep their own times.
//   - The start time is the first one that was ever set (SM-25, I4).
//   - The observed generation never decreases (SM-27, I5).
//   - Pod-level resources are kept if the status has none (PH-39).
func CarryOver(previous *v1.PodStatus, status v1.PodStatus, now time.Time) v1.PodStatus {
	status.Conditions = withTransitionTimes(previous.Conditions, status.Conditions, now)
	switch {
	case !previous.StartTime.IsZero():
		status.StartTime = previous.StartTime
	case status.StartTime.IsZero():
		start := toSeconds(now)
		status.StartTime = &start
	}
	status.ObservedGeneration = max(status.ObservedGeneration, previous.ObservedGeneration)
	if status.Resources == nil && status.AllocatedResources == nil { // the status of a static pod may be older than its mirror pod
		status.Resources, status.AllocatedResources = previous.Resources, previous.AllocatedResources
	}
	return status
}

// withTransitionTimes copies the list only if a time in it changes.
func withTransitionTimes(previous, conditions []v1.PodCondition, now time.Time) []v1.PodCondition {
	copied := false
	for i := range conditions {
		if !slices.Contains(timedConditions[:], conditions[i].Type) {
			continue
		}
		changedAt := transitionTime(findCondition(previous, conditions[i].Type), conditions[i].Status, now)
		if changedAt == conditions[i].LastTransitionTime {
			continue
		}
		if !copied {
			conditions, copied = slices.Clone(conditions), true
		}
		conditions[i].LastTransitionTime = changedAt
	}
	return conditions
}

// transitionTime returns when a condition changed to this status. previous is the condition before, or nil.
func transitionTime(previous *v1.PodCondition, status v1.ConditionStatus, now time.Time) metav1.Time {
	changedAt := toSeconds(now)
	if previous == nil {
		return changedAt
	}
	if previous.Status == status || changedAt.Before(&previous.LastTransitionTime) {
		return previous.LastTransitionTime
	}
	return changedAt
}

// Merge returns the status to send, given the status in the API server and the desired one. Fields of other writers stay as
// they are. A terminal phase stays terminal.
//
// couldRun reports that the pod could still have running containers. A terminal phase is withheld until it is false, because
// it releases the pod's resources elsewhere (SM-67). For a static pod, pass the answer for the pod itself: its mirror pod has
// another UID, which is unknown on the node (SM-69).
func Merge(api, desired v1.PodStatus, couldRun bool, now time.Time) v1.PodStatus {
	becomesTerminal := !IsTerminal(api.Phase) && IsTerminal(desired.Phase)
	merged := desired
	merged.Conditions = mergeConditions(api.Conditions, desired.Conditions, becomesTerminal && !couldRun, now)
	if final := IsTerminal(api.Phase) && api.Phase != desired.Phase; final || (becomesTerminal && couldRun) {
		// SM-67: a terminal phase waits. SM-68, I1: a terminal phase of another writer is not undone.
		merged.Phase, merged.Reason, merged.Message = api.Phase, api.Reason, api.Message
	}
	keepForeignFields(&merged, &api)
	merged.ObservedGeneration = max(api.ObservedGeneration, desired.ObservedGeneration)
	if IsTerminal(merged.Phase) {
		unready := withoutReadiness(merged.Conditions, merged.Phase, merged.ObservedGeneration)
		merged.Conditions = withTransitionTimes(merged.Conditions, unready, now)
	}
	return merged
}

// keepForeignFields keeps the fields that the agent does not write (SM-66, I7) and the immutable QoS class: the API server
// would reject the whole status (I17).
func keepForeignFields(merged, api *v1.PodStatus) {
	merged.ResourceClaimStatuses = api.ResourceClaimStatuses
	merged.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	merged.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	merged.NominatedNodeName = api.NominatedNodeName
	if api.QOSClass != "" {
		merged.QOSClass = api.QOSClass
	}
	if merged.Resources == nil && merged.AllocatedResources == nil { // PH-39: another agent's, which the cached status has not seen
		merged.Resources, merged.AllocatedResources = api.Resources, api.AllocatedResources
	}
}

// mergeConditions returns the conditions of other writers in their order, then the desired ones. Owned conditions that are
// no longer desired are removed (SM-63, SM-64).
func mergeConditions(api, desired []v1.PodCondition, becomesTerminal bool, now time.Time) []v1.PodCondition {
	merged := make([]v1.PodCondition, 0, len(api)+len(desired))
	for _, condition := range api {
		if !IsOwnedCondition(condition.Type) {
			merged = append(merged, condition)
		}
	}
	for _, condition := range desired {
		switch {
		case IsOwnedCondition(condition.Type):
			merged = setCondition(merged, condition)
		case condition.Type == v1.DisruptionTarget && becomesTerminal:
			// SM-65: sent only together with the terminal phase that it explains, so this is also when it changes.
			condition.LastTransitionTime = transitionTime(findCondition(api, condition.Type), condition.Status, now)
			merged = setCondition(merged, condition)
		}
	}
	return merged
}

// withoutReadiness sets Ready and ContainersReady to False if either is True: a terminated pod must not look ready (SM-70).
// The caller sets their transition times.
func withoutReadiness(conditions []v1.PodCondition, phase v1.PodPhase, generation int64) []v1.PodCondition {
	if !isConditionTrue(conditions, v1.PodReady) && !isConditionTrue(conditions, v1.ContainersReady) {
		return conditions
	}
	for _, conditionType := range []v1.PodConditionType{v1.ContainersReady, v1.PodReady} {
		conditions = withCondition(conditions, v1.PodCondition{
			Type: conditionType, Status: v1.ConditionFalse, Reason: terminalReason(phase), ObservedGeneration: generation,
		})
	}
	return conditions
}
