package derive

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// The reasons of the agent's own conditions, under the kubelet's names.
const (
	ReasonUnknownContainerStatuses    = "UnknownContainerStatuses"
	ReasonPodCompleted                = "PodCompleted"
	ReasonPodFailed                   = "PodFailed"
	ReasonContainersNotReady          = "ContainersNotReady"
	ReasonContainersNotInitialized    = "ContainersNotInitialized"
	ReasonReadinessGatesNotReady      = "ReadinessGatesNotReady"
	ReasonRestartAllContainersStarted = "RestartAllContainersStarted"
)

// newCondition carries the generation that was observed (SM-38). Its transition time is set by [Continue].
func newCondition(pod *v1.Pod, kind v1.PodConditionType, status v1.ConditionStatus) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: status, ObservedGeneration: pod.Generation}
}

func newFalse(pod *v1.Pod, kind v1.PodConditionType, reason, message string) v1.PodCondition {
	condition := newCondition(pod, kind, v1.ConditionFalse)
	condition.Reason, condition.Message = reason, message
	return condition
}

// replaced is a list of its own in which the condition of that type is this one, at its place or at the end.
func replaced(conditions []v1.PodCondition, condition v1.PodCondition) []v1.PodCondition {
	return put(slices.Clone(conditions), condition)
}

// ContainersReady is True when all sidecars and regular containers are ready. statuses are those of init and regular
// containers; nil means that they were never computed (GEN-1 to GEN-9).
func ContainersReadyCondition(pod *v1.Pod, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	if statuses == nil {
		return newFalse(pod, v1.ContainersReady, ReasonUnknownContainerStatuses, "")
	}
	unknown, unready := unreadyContainers(&pod.Spec, statuses)
	switch {
	case phase == v1.PodFailed, phase == v1.PodSucceeded && len(unknown) == 0:
		return newFalse(pod, v1.ContainersReady, reasonOfEnd(phase), "")
	case len(unknown)+len(unready) > 0:
		return newFalse(pod, v1.ContainersReady, ReasonContainersNotReady, blame(unknown, unready, "unready"))
	default:
		return newCondition(pod, v1.ContainersReady, v1.ConditionTrue)
	}
}

func reasonOfEnd(phase v1.PodPhase) string {
	if phase == v1.PodFailed {
		return ReasonPodFailed
	}
	return ReasonPodCompleted
}

func unreadyContainers(spec *v1.PodSpec, statuses []v1.ContainerStatus) (unknown, unready []string) {
	look := func(container *v1.Container) {
		status := statusOf(statuses, container.Name)
		if status == nil {
			unknown = append(unknown, container.Name)
		} else if !status.Ready {
			unready = append(unready, container.Name)
		}
	}
	for i := range spec.InitContainers {
		if restart.IsSidecar(&spec.InitContainers[i]) {
			look(&spec.InitContainers[i])
		}
	}
	for i := range spec.Containers {
		look(&spec.Containers[i])
	}
	return unknown, unready
}

// blame names the containers that hold a condition up, those that are not known first.
func blame(unknown, lacking []string, what string) string {
	parts := make([]string, 0, 2)
	if len(unknown) > 0 {
		parts = append(parts, "containers with unknown status: ["+strings.Join(unknown, " ")+"]")
	}
	if len(lacking) > 0 {
		parts = append(parts, "containers with "+what+" status: ["+strings.Join(lacking, " ")+"]")
	}
	return strings.Join(parts, ", ")
}

// Ready is True when the containers are ready and every readiness gate has a True condition among conditions: those
// that others wrote, never our own (GEN-11 to GEN-15).
func ReadyCondition(pod *v1.Pod, conditions []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	return gated(pod, conditions, ContainersReadyCondition(pod, statuses, phase))
}

// gated is the Ready condition of a pod whose ContainersReady is that one.
func gated(pod *v1.Pod, conditions []v1.PodCondition, containers v1.PodCondition) v1.PodCondition {
	if containers.Status != v1.ConditionTrue {
		containers.Type = v1.PodReady
		return containers
	}
	if closed := closedGates(pod.Spec.ReadinessGates, conditions); closed != "" {
		return newFalse(pod, v1.PodReady, ReasonReadinessGatesNotReady, closed)
	}
	return newCondition(pod, v1.PodReady, v1.ConditionTrue)
}

func closedGates(gates []v1.PodReadinessGate, conditions []v1.PodCondition) string {
	var parts []string
	for _, gate := range gates {
		condition := conditionOf(conditions, gate.ConditionType)
		switch {
		case condition == nil:
			parts = append(parts,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case condition.Status != v1.ConditionTrue:
			parts = append(parts, fmt.Sprintf(`the status of pod readiness gate %q is not "True", but %v`,
				gate.ConditionType, condition.Status))
		}
	}
	return strings.Join(parts, ", ")
}

// ReadinessStale reports whether a readiness gate was turned, in the pod as the API server has it, and its Ready
// condition does not show it yet: time for a new status (SM-97). Sidecars count as they do for [Ready]; the kubelet
// forgets them here and always says yes (BUG-17).
func NeedToReconcileReadiness(pod *v1.Pod) bool {
	if len(pod.Spec.ReadinessGates) == 0 {
		return false
	}
	shown := conditionOf(pod.Status.Conditions, v1.PodReady)
	if shown == nil {
		return false
	}
	ready := ReadyCondition(pod, pod.Status.Conditions, initAndRegular(&pod.Status), pod.Status.Phase)
	return shown.Status != ready.Status || shown.Message != ready.Message
}

// initAndRegular are the statuses that conditions and phase are made from, to be read only; nil only when they were never
// computed.
func initAndRegular(status *v1.PodStatus) []v1.ContainerStatus {
	if len(status.InitContainerStatuses) == 0 && status.ContainerStatuses != nil {
		return status.ContainerStatuses
	}
	return append(slices.Clip(status.InitContainerStatuses), status.ContainerStatuses...)
}

// Initialized is True when all init containers have done their work and all sidecars have started, and stays True once
// a regular container has run. old are the conditions before: a pod that restarts in place does not become
// uninitialized (GEN-16 to GEN-23).
func InitializedCondition(pod *v1.Pod, old []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	if statuses == nil && len(pod.Spec.InitContainers) > 0 {
		return newFalse(pod, v1.PodInitialized, ReasonUnknownContainerStatuses, "")
	}
	unknown, incomplete := incompleteContainers(&pod.Spec, statuses)
	initialized := newCondition(pod, v1.PodInitialized, v1.ConditionTrue)
	switch {
	case phase == v1.PodSucceeded && len(unknown) == 0:
		initialized.Reason = ReasonPodCompleted
		return initialized
	case len(unknown)+len(incomplete) == 0, anyRegularRan(&pod.Spec, statuses), isTrue(old, v1.PodInitialized):
		return initialized
	default:
		return newFalse(pod, v1.PodInitialized, ReasonContainersNotInitialized, blame(unknown, incomplete, "incomplete"))
	}
}

func incompleteContainers(spec *v1.PodSpec, statuses []v1.ContainerStatus) (unknown, incomplete []string) {
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		status := statusOf(statuses, container.Name)
		switch {
		case status == nil:
			unknown = append(unknown, container.Name)
		case restart.IsSidecar(container) && !isStarted(status), !restart.IsSidecar(container) && !status.Ready:
			incomplete = append(incomplete, container.Name)
		}
	}
	return unknown, incomplete
}

func anyRegularRan(spec *v1.PodSpec, statuses []v1.ContainerStatus) bool {
	for i := range statuses {
		state := &statuses[i].State
		if (state.Running != nil || state.Terminated != nil) && isRegular(spec, statuses[i].Name) {
			return true
		}
	}
	return false
}

func isStarted(status *v1.ContainerStatus) bool { return status.Started != nil && *status.Started }

// AllContainersRestarting tells that one container's end is restarting the whole pod in place, until the records of all
// of them are gone. ok is false for a pod that has no such rule: it does not get the condition (GEN-34).
func AllContainersRestartingCondition(
	pod *v1.Pod, seen *observed.Pod, previous *v1.PodStatus, phase v1.PodPhase,
) (condition v1.PodCondition, ok bool) {
	if !canRestartAll(&pod.Spec) {
		return v1.PodCondition{}, false
	}
	condition = v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case IsTerminal(phase):
		condition.Reason = reasonOfEnd(phase)
	case restartsAll(&pod.Spec, seen, previous) && anySeen(&pod.Spec, seen):
		condition.Status = v1.ConditionTrue
		condition.Reason = ReasonRestartAllContainersStarted
		condition.Message = "container exited with restart policy rule"
	}
	return condition, true
}
