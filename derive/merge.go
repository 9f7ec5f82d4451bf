package derive

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Merge is what to send, given what the API server holds and what we would say. What others own stays as they left it;
// what a reader may take for final is final.
//
// couldRun tells that the pod could still have running containers. Then a terminal phase waits, because it releases
// what the pod holds elsewhere (SM-67). Ask it of the pod that runs here: a static pod's mirror has another UID, of
// which nobody on the node knows, and the answer would always be no (SM-69).
func Merge(api, ours v1.PodStatus, couldRun bool, now time.Time) v1.PodStatus {
	ends := !IsTerminal(api.Phase) && IsTerminal(ours.Phase)
	merged := ours
	merged.Conditions = mergeConditions(api.Conditions, ours.Conditions, ends && !couldRun, now)
	if taken := IsTerminal(api.Phase) && api.Phase != ours.Phase; taken || (ends && couldRun) {
		// An end waits (SM-67), and one that somebody else told is not undone (SM-68, I1).
		merged.Phase, merged.Reason, merged.Message = api.Phase, api.Reason, api.Message
	}
	keepForeign(&merged, &api)
	merged.ObservedGeneration = max(api.ObservedGeneration, ours.ObservedGeneration)
	if IsTerminal(merged.Phase) {
		ended := unready(merged.Conditions, merged.Phase, merged.ObservedGeneration)
		merged.Conditions = timedConditions(merged.Conditions, ended, now)
	}
	return merged
}

// keepForeign keeps the fields that the agent does not write (SM-66, I7), and the class that cannot be changed: the
// server would refuse the whole status (I17).
func keepForeign(merged, api *v1.PodStatus) {
	merged.ResourceClaimStatuses = api.ResourceClaimStatuses
	merged.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	merged.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	merged.NominatedNodeName = api.NominatedNodeName
	if api.QOSClass != "" {
		merged.QOSClass = api.QOSClass
	}
}

// mergeConditions keeps all of others, in their order, then ours. An owned one that we no longer have goes (SM-63,
// SM-64).
func mergeConditions(api, ours []v1.PodCondition, ends bool, now time.Time) []v1.PodCondition {
	merged := make([]v1.PodCondition, 0, len(api)+len(ours))
	for _, condition := range api {
		if !IsOwnedCondition(condition.Type) {
			merged = append(merged, condition)
		}
	}
	for _, condition := range ours {
		switch {
		case IsOwnedCondition(condition.Type):
			merged = put(merged, condition)
		case condition.Type == v1.DisruptionTarget && ends:
			// SM-65: told only with the end that it explains, so its time is that of the telling.
			condition.LastTransitionTime = transition(conditionOf(api, condition.Type), condition.Status, now)
			merged = put(merged, condition)
		}
	}
	return merged
}

// unready ends the readiness of a pod that has ended, if one of the two conditions still says True: nobody may see a
// pod that is Failed and Ready (SM-70). Their times are still to be set.
func unready(conditions []v1.PodCondition, phase v1.PodPhase, generation int64) []v1.PodCondition {
	if !isTrue(conditions, v1.PodReady) && !isTrue(conditions, v1.ContainersReady) {
		return conditions
	}
	for _, kind := range []v1.PodConditionType{v1.ContainersReady, v1.PodReady} {
		conditions = replaced(conditions, v1.PodCondition{
			Type: kind, Status: v1.ConditionFalse, Reason: reasonOfEnd(phase), ObservedGeneration: generation,
		})
	}
	return conditions
}
