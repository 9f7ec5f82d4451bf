package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// IsStarting reports whether the status says nothing but that the pod is about to start its first containers: none has run yet, and
// nothing has failed.
func IsStarting(status *v1.PodStatus) bool {
	if (status.Phase != v1.PodPending && status.Phase != "") || status.Reason != "" || status.Message != "" {
		return false
	}
	containers := [...][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses}
	for _, statuses := range containers {
		if slices.ContainsFunc(statuses, func(c v1.ContainerStatus) bool { return !isFirstStart(&c) }) {
			return false
		}
	}
	return !slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool { return !isStartCondition(c.Type) })
}

// isFirstStart reports whether the container waits for its first start.
func isFirstStart(container *v1.ContainerStatus) bool {
	waiting := container.State.Waiting
	return waiting != nil && (waiting.Reason == reasonContainerCreating || waiting.Reason == reasonPodInitializing) &&
		waiting.Message == "" && container.RestartCount == 0 && container.LastTerminationState.Terminated == nil
}

// isStartCondition reports whether every pod has the condition when it starts.
func isStartCondition(conditionType v1.PodConditionType) bool {
	switch conditionType {
	case v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady:
		return true
	default:
		return false
	}
}
