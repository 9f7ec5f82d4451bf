package derive

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/podid"
)

var (
	// ErrIllegalTransition reports that a terminated container that must not restart would leave its terminated state.
	ErrIllegalTransition = errors.New("a terminated container that must not restart would leave its terminated state")
	// ErrInitMismatch reports that the init container statuses do not correspond to the spec.
	ErrInitMismatch = errors.New("init container statuses do not match the pod spec")
)

// CheckTransition rejects a status that shows a container running again although it terminated for good (SM-39 to SM-46).
// Drop the whole update: the API server would reject it too, every time.
//
//	              ┌── pod policy Always ───────────────────────────> legal
//	              ├── some rule restarts all containers ───────────> legal
//	terminated ───┼── sidecar ─────────────────────────────────────> legal
//	              ├── exit code not 0, pod policy OnFailure ───────> legal
//	              ├── container's own rules or policy restart it ──> legal
//	              └── else: waiting or running ────────────────────> ErrIllegalTransition
//
// A container that is missing in status is not a transition. Ephemeral containers are not checked.
func CheckTransition(pod *v1.Pod, previous, status *v1.PodStatus) error {
	spec := &pod.Spec
	if spec.RestartPolicy == v1.RestartPolicyAlways || restart.CanRestartAll(spec) {
		return nil
	}
	for i := range previous.ContainerStatuses {
		before := &previous.ContainerStatuses[i]
		if leavesTerminated(before, status.ContainerStatuses) && !canLeaveTerminated(spec, spec.Containers, before) {
			return fmt.Errorf("container %q of pod %s/%s: %w", before.Name, pod.Namespace, pod.Name, ErrIllegalTransition)
		}
	}
	for i := range previous.InitContainerStatuses {
		before := &previous.InitContainerStatuses[i]
		container := initContainerAt(spec, previous.InitContainerStatuses, i)
		if container == nil {
			return fmt.Errorf("init container %q of pod %s/%s: %w", before.Name, pod.Namespace, pod.Name, ErrInitMismatch)
		}
		if restart.IsSidecar(container) {
			continue
		}
		if leavesTerminated(before, status.InitContainerStatuses) && !canLeaveTerminated(spec, spec.InitContainers, before) {
			return fmt.Errorf("init container %q of pod %s/%s: %w", before.Name, pod.Namespace, pod.Name, ErrIllegalTransition)
		}
	}
	return nil
}

func leavesTerminated(before *v1.ContainerStatus, statuses []v1.ContainerStatus) bool {
	if before.State.Terminated == nil {
		return false
	}
	after := findStatus(statuses, before.Name)
	return after != nil && after.State.Terminated == nil
}

func canLeaveTerminated(spec *v1.PodSpec, containers []v1.Container, before *v1.ContainerStatus) bool {
	exitCode := before.State.Terminated.ExitCode
	if exitCode != 0 && spec.RestartPolicy == v1.RestartPolicyOnFailure {
		return true
	}
	container := findContainer(containers, before.Name)
	return container != nil && restart.ShouldRestart(spec, container, exitCode)
}

// Termination describes how one container terminated.
type Termination struct {
	Kind     ContainerKind
	Name     string
	ExitCode int32
	Reason   string
}

// NewlyTerminated returns the containers that status shows as terminated and previous did not, so that each termination is
// counted once (SM-31). Sidecars are listed as init containers.
func NewlyTerminated(previous, status *v1.PodStatus) []Termination {
	var terminations []Termination
	add := func(kind ContainerKind, previous, statuses []v1.ContainerStatus) {
		for i := range statuses {
			terminated := statuses[i].State.Terminated
			if terminated == nil {
				continue
			}
			if before := findStatus(previous, statuses[i].Name); before == nil || before.State.Terminated == nil {
				terminations = append(terminations, Termination{kind, statuses[i].Name, terminated.ExitCode, terminated.Reason})
			}
		}
	}
	add(InitContainer, previous.InitContainerStatuses, status.InitContainerStatuses)
	add(RegularContainer, previous.ContainerStatuses, status.ContainerStatuses)
	add(EphemeralContainer, previous.EphemeralContainerStatuses, status.EphemeralContainerStatuses)
	return terminations
}

// Terminate returns the final status of a pod whose containers and sandboxes are gone, computed from its last known status
// (SM-17 to SM-20). A container whose exit was not observed has failed: a lost container never makes a pod look successful,
// and one that never ran does not look killed. Unless the pod is static, its phase becomes terminal and it becomes unready.
//
// The evidence is the given status. The kubelet uses the pod's copy from the API server, which may be older. Pass the result
// to [CarryOver].
func Terminate(pod *v1.Pod, status v1.PodStatus) v1.PodStatus {
	regular, init := 0, countStartedInit(status.InitContainerStatuses)
	if hasInitialized(&pod.Spec, &status) {
		regular = len(status.ContainerStatuses)
	}
	status.ContainerStatuses = terminateFirst(status.ContainerStatuses, regular)
	status.InitContainerStatuses = terminateFirst(status.InitContainerStatuses, init)
	if podid.IsStatic(pod) {
		return status
	}
	if !IsTerminal(status.Phase) {
		status.Phase = v1.PodFailed
	}
	status.Conditions = withoutReadiness(status.Conditions, status.Phase, pod.Generation)
	return status
}

// terminateFirst marks the first n containers as terminated unless they already are (SM-18).
func terminateFirst(statuses []v1.ContainerStatus, n int) []v1.ContainerStatus {
	statuses = slices.Clone(statuses)
	for i := range n {
		if statuses[i].State.Terminated == nil {
			statuses[i].State = v1.ContainerState{
				Terminated: newKilled(ReasonContainerStatusUnknown, messageLostAtTermination),
			}
		}
	}
	return statuses
}

// countStartedInit counts the init containers up to the last one with evidence of a start. The first one always counts
// (SM-19).
func countStartedInit(statuses []v1.ContainerStatus) int {
	for i := len(statuses) - 1; i > 0; i-- {
		if wasStarted(&statuses[i]) {
			return i + 1
		}
	}
	return min(1, len(statuses))
}

func wasStarted(status *v1.ContainerStatus) bool {
	return status.State.Waiting == nil || status.LastTerminationState.Terminated != nil
}

// hasInitialized reports whether there is evidence that the init containers completed, so that regular containers may have
// run (SM-18).
func hasInitialized(spec *v1.PodSpec, status *v1.PodStatus) bool {
	if len(spec.InitContainers) == 0 {
		return true
	}
	for i := range status.ContainerStatuses {
		if wasStarted(&status.ContainerStatuses[i]) {
			return true
		}
	}
	index := len(status.InitContainerStatuses) - 1
	if index < 0 {
		return false
	}
	container, last := initContainerAt(spec, status.InitContainerStatuses, index), &status.InitContainerStatuses[index]
	switch {
	case container == nil:
		return false
	case restart.IsSidecar(container):
		return last.State.Running != nil && isStarted(last)
	default:
		return hasSucceeded(&last.State) || hasSucceeded(&last.LastTerminationState)
	}
}

func hasSucceeded(state *v1.ContainerState) bool {
	return state.Terminated != nil && state.Terminated.ExitCode == 0
}
