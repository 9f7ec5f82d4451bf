package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// OwnedConditions lists the condition types that only the agent of the pod's node writes. All others are somebody
// else's and survive every [Merge].
func OwnedConditions() []v1.PodConditionType { return slices.Clone(ownedConditions[:]) }

var ownedConditions = [...]v1.PodConditionType{
	v1.PodScheduled,
	v1.PodReady,
	v1.PodInitialized,
	v1.ContainersReady,
	v1.PodResizeInProgress,
	v1.PodResizePending,
	v1.PodReadyToStartContainers,
	v1.AllContainersRestarting,
}

// IsOwned reports whether only the agent writes conditions of this type.
func IsOwnedCondition(kind v1.PodConditionType) bool {
	return slices.Contains(ownedConditions[:], kind)
}

// timed are the types whose transition time follows from the status before (SM-24). Resize conditions keep their own.
var timed = [...]v1.PodConditionType{
	v1.ContainersReady,
	v1.PodReady,
	v1.PodInitialized,
	v1.PodReadyToStartContainers,
	v1.PodScheduled,
	v1.DisruptionTarget,
	v1.AllContainersRestarting,
}

// conditionOf finds the condition that counts: of several of one type the last one wins, as it does in a patch.
func conditionOf(conditions []v1.PodCondition, kind v1.PodConditionType) *v1.PodCondition {
	for i := len(conditions) - 1; i >= 0; i-- {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// isTrue reports whether the condition is there and True.
func isTrue(conditions []v1.PodCondition, kind v1.PodConditionType) bool {
	condition := conditionOf(conditions, kind)
	return condition != nil && condition.Status == v1.ConditionTrue
}

// put replaces the condition of that type, or adds it at the end. The list is changed in place: it must be the
// caller's.
func put(conditions []v1.PodCondition, condition v1.PodCondition) []v1.PodCondition {
	if present := conditionOf(conditions, condition.Type); present != nil {
		*present = condition
		return conditions
	}
	return append(conditions, condition)
}
