package derive

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
)

var (
	// ErrIllegalTransition says that a container which had ended, and may not run again, would be shown as if it did.
	ErrIllegalTransition = errors.New("a terminated container that must not restart would leave its terminated state")
	// ErrInitMismatch says that statuses of init containers do not stand where the spec has the containers.
	ErrInitMismatch = errors.New("statuses of init containers do not follow the pod's spec")
)

// CheckTransition refuses a status that would show a container running again which had ended for good (SM-39 to SM-46).
// The update is to be dropped as a whole: the API server would refuse it too, for ever.
//
//	              ┌── pod policy Always ───────────────────────────> legal
//	              ├── some rule restarts all containers ───────────> legal
//	terminated ───┼── sidecar ─────────────────────────────────────> legal
//	              ├── exit code not 0, pod policy OnFailure ───────> legal
//	              ├── container's own rules or policy restart it ──> legal
//	              └── else: waiting or running ────────────────────> ErrIllegalTransition
//
// A status that is missing in next is no transition, and ephemeral containers are not looked at.
func CheckTransition(pod *v1.Pod, old, next *v1.PodStatus) error {
	spec := &pod.Spec
	if spec.RestartPolicy == v1.RestartPolicyAlways || canRestartAll(spec) {
		return nil
	}
	for i := range old.ContainerStatuses {
		before := &old.ContainerStatuses[i]
		if leavesEnd(before, next.ContainerStatuses) && !mayLeaveEnd(spec, spec.Containers, before) {
			return fmt.Errorf("container %q of pod %s/%s: %w", before.Name, pod.Namespace, pod.Name, ErrIllegalTransition)
		}
	}
	for i := range old.InitContainerStatuses {
		before := &old.InitContainerStatuses[i]
		container := initAt(spec, old.InitContainerStatuses, i)
		if container == nil {
			return fmt.Errorf("init container %q of pod %s/%s: %w", before.Name, pod.Namespace, pod.Name, ErrInitMismatch)
		}
		if restart.IsSidecar(container) {
			continue
		}
		if leavesEnd(before, next.InitContainerStatuses) && !mayLeaveEnd(spec, spec.InitContainers, before) {
			return fmt.Errorf("init container %q of pod %s/%s: %w", before.Name, pod.Namespace, pod.Name, ErrIllegalTransition)
		}
	}
	return nil
}

func leavesEnd(before *v1.ContainerStatus, next []v1.ContainerStatus) bool {
	if before.State.Terminated == nil {
		return false
	}
	after := statusOf(next, before.Name)
	return after != nil && after.State.Terminated == nil
}

func mayLeaveEnd(spec *v1.PodSpec, containers []v1.Container, before *v1.ContainerStatus) bool {
	code := before.State.Terminated.ExitCode
	if code != 0 && spec.RestartPolicy == v1.RestartPolicyOnFailure {
		return true
	}
	container := specOf(containers, before.Name)
	return container != nil && restart.ShouldRestart(spec, container, code)
}
