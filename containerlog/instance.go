package containerlog

import (
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// instance is one instance of a container.
type instance struct {
	id observed.ContainerID
	// attempt is the restart count of the instance. It may be lower if isGuess.
	attempt int
	isGuess bool
}

// CheckContainer returns an error if the pod has no such container, of whatever kind (LOG-4).
func CheckContainer(pod *v1.Pod, container string) error {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			return nil
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return nil
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return nil
		}
	}
	return &Error{http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", container, pod.Name)}
}

// chooseInstance returns the instance whose log a request means (LOG-10 to LOG-13, LOG-16).
func chooseInstance(pod *v1.Pod, container string, previous bool) (instance, error) {
	refuse := func(format string, args ...any) (instance, error) {
		message := fmt.Sprintf(format, append([]any{container, pod.Name}, args...)...)
		return instance{}, &Error{http.StatusBadRequest, message}
	}
	status := findStatus(&pod.Status, container)
	if status == nil {
		return refuse("container %q in pod %q is not available")
	}
	restarts := int(status.RestartCount)
	last, lastID := status.LastTerminationState.Terminated, ""
	if last != nil {
		lastID = last.ContainerID
	}
	current, state := "", status.State
	switch {
	case state.Running != nil:
		current = status.ContainerID
	case state.Terminated != nil:
		current = state.Terminated.ContainerID
	}
	terminated := instance{observed.ParseContainerID(lastID), restarts, false} // the next one was not created yet
	if current != "" && current != lastID {
		terminated.attempt, terminated.isGuess = max(0, restarts-1), true
	}
	switch {
	case previous && lastID == "":
		return refuse("previous terminated container %q in pod %q not found")
	case previous:
		return terminated, nil
	case state.Running != nil || current != "":
		return instance{observed.ParseContainerID(current), restarts, false}, nil
	case lastID != "":
		return terminated, nil
	case state.Terminated != nil || last != nil:
		return refuse("container %q in pod %q is terminated")
	case state.Waiting == nil:
		return refuse("container %q in pod %q is waiting to start - no logs yet")
	default:
		return refuse("container %q in pod %q is waiting to start: %v", waitingFor(state.Waiting.Reason))
	}
}

// waitingFor describes the reason of a container that waits (LOG-13).
func waitingFor(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	default:
		return reason
	}
}

// findStatus looks among containers, then init containers, then ephemeral ones.
func findStatus(status *v1.PodStatus, container string) *v1.ContainerStatus {
	for _, statuses := range [][]v1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if statuses[i].Name == container {
				return &statuses[i]
			}
		}
	}
	return nil
}
