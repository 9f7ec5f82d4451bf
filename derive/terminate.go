package derive

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"

	"github.com/heraldnode/herald/internal/restart"
)

// Terminate is the last status of a pod, made from the last one that is known when all that the pod had on the node is
// gone (SM-17 to SM-20). A container whose end nobody saw has failed: a lost container never makes a pod look
// successful, and one that never ran does not look killed. Unless the pod is static its phase becomes terminal, and
// with the phase its readiness ends.
//
// The evidence is the status itself; the kubelet reads it from the pod's copy in the API server, which may be older.
// Hand the result to [Continue].
func Terminate(pod *v1.Pod, status v1.PodStatus) v1.PodStatus {
	regular, reached := 0, reachedInit(status.InitContainerStatuses)
	if hasInitialized(&pod.Spec, &status) {
		regular = len(status.ContainerStatuses)
	}
	status.ContainerStatuses = endFirst(status.ContainerStatuses, regular)
	status.InitContainerStatuses = endFirst(status.InitContainerStatuses, reached)
	if podid.IsStatic(pod) {
		return status
	}
	if !IsTerminal(status.Phase) {
		status.Phase = v1.PodFailed
	}
	status.Conditions = unready(status.Conditions, status.Phase, pod.Generation)
	return status
}

// endFirst gives an end to those of the first n containers that have none (SM-18).
func endFirst(statuses []v1.ContainerStatus, n int) []v1.ContainerStatus {
	statuses = slices.Clone(statuses)
	for i := range n {
		if statuses[i].State.Terminated == nil {
			statuses[i].State = v1.ContainerState{Terminated: killed(reasonStatusUnknown, messageLostAtTermination)}
		}
	}
	return statuses
}

// reachedInit counts the init containers up to the last of which there is a sign that it was started; at least the
// first was tried (SM-19).
func reachedInit(statuses []v1.ContainerStatus) int {
	for i := len(statuses) - 1; i > 0; i-- {
		if wasTried(&statuses[i]) {
			return i + 1
		}
	}
	return min(1, len(statuses))
}

func wasTried(status *v1.ContainerStatus) bool {
	return status.State.Waiting == nil || status.LastTerminationState.Terminated != nil
}

// hasInitialized reports whether there is a sign that the init containers were done, so that regular containers may
// have run (SM-18).
func hasInitialized(spec *v1.PodSpec, status *v1.PodStatus) bool {
	if len(spec.InitContainers) == 0 {
		return true
	}
	for i := range status.ContainerStatuses {
		if wasTried(&status.ContainerStatuses[i]) {
			return true
		}
	}
	place := len(status.InitContainerStatuses) - 1
	if place < 0 {
		return false
	}
	container, last := initAt(spec, status.InitContainerStatuses, place), &status.InitContainerStatuses[place]
	switch {
	case container == nil:
		return false
	case restart.IsSidecar(container):
		return last.State.Running != nil && isStarted(last)
	default:
		return succeeded(&last.State) || succeeded(&last.LastTerminationState)
	}
}

func succeeded(state *v1.ContainerState) bool {
	return state.Terminated != nil && state.Terminated.ExitCode == 0
}
