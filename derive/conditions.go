package derive

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// The kubelet's reasons of the owned conditions.
const (
	ReasonUnknownContainerStatuses    = "UnknownContainerStatuses"
	ReasonPodCompleted                = "PodCompleted"
	ReasonPodFailed                   = "PodFailed"
	ReasonContainersNotReady          = "ContainersNotReady"
	ReasonContainersNotInitialized    = "ContainersNotInitialized"
	ReasonReadinessGatesNotReady      = "ReadinessGatesNotReady"
	ReasonRestartAllContainersStarted = "RestartAllContainersStarted"
)

// ownedConditions are the condition types that only the node's agent writes. v1.DisruptionTarget is not among them: agent
// and controllers share it (SM-65).
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

// timedConditions are the condition types whose transition time follows from the previous status (SM-24). Resize conditions
// keep their own.
var timedConditions = [...]v1.PodConditionType{
	v1.ContainersReady,
	v1.PodReady,
	v1.PodInitialized,
	v1.PodReadyToStartContainers,
	v1.PodScheduled,
	v1.DisruptionTarget,
	v1.AllContainersRestarting,
}

// OwnedConditions returns the condition types that only the node's agent writes. All others belong to other writers and
// survive every [Merge].
func OwnedConditions() []v1.PodConditionType { return slices.Clone(ownedConditions[:]) }

// IsOwnedCondition reports whether only the node's agent writes conditions of this type.
func IsOwnedCondition(conditionType v1.PodConditionType) bool {
	return slices.Contains(ownedConditions[:], conditionType)
}

// findCondition returns the condition of this type, or nil. If there are several, the last one wins, as in a patch.
func findCondition(conditions []v1.PodCondition, conditionType v1.PodConditionType) *v1.PodCondition {
	for i := len(conditions) - 1; i >= 0; i-- {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// isConditionTrue reports whether the condition exists and is True.
func isConditionTrue(conditions []v1.PodCondition, conditionType v1.PodConditionType) bool {
	condition := findCondition(conditions, conditionType)
	return condition != nil && condition.Status == v1.ConditionTrue
}

// setCondition replaces the condition of the same type, or appends it. It modifies the list in place.
func setCondition(conditions []v1.PodCondition, condition v1.PodCondition) []v1.PodCondition {
	if existing := findCondition(conditions, condition.Type); existing != nil {
		*existing = condition
		return conditions
	}
	return append(conditions, condition)
}

// SetDisruptionTarget records in the status that the node ends the pod although it is still wanted. A Job can tell that from a failure.
func SetDisruptionTarget(status *v1.PodStatus, pod *v1.Pod, message string, at time.Time) {
	condition := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(at),
	}
	if before := findCondition(status.Conditions, condition.Type); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	status.Conditions = withCondition(status.Conditions, condition)
}

// withCondition is setCondition on a copy of the list.
func withCondition(conditions []v1.PodCondition, condition v1.PodCondition) []v1.PodCondition {
	return setCondition(slices.Clone(conditions), condition)
}

// newCondition returns a condition with the pod's observed generation (SM-38). [CarryOver] sets the transition time.
func newCondition(pod *v1.Pod, conditionType v1.PodConditionType, status v1.ConditionStatus) v1.PodCondition {
	return v1.PodCondition{Type: conditionType, Status: status, ObservedGeneration: pod.Generation}
}

func newFalseCondition(pod *v1.Pod, conditionType v1.PodConditionType, reason, message string) v1.PodCondition {
	condition := newCondition(pod, conditionType, v1.ConditionFalse)
	condition.Reason, condition.Message = reason, message
	return condition
}

// ContainersReadyCondition is True if all sidecars and regular containers are ready. statuses are those of init and regular
// containers; nil means that they were never computed (GEN-1 to GEN-9).
func ContainersReadyCondition(pod *v1.Pod, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	if statuses == nil {
		return newFalseCondition(pod, v1.ContainersReady, ReasonUnknownContainerStatuses, "")
	}
	unknown, unready := unreadyContainers(&pod.Spec, statuses)
	switch {
	case phase == v1.PodFailed, phase == v1.PodSucceeded && len(unknown) == 0:
		return newFalseCondition(pod, v1.ContainersReady, terminalReason(phase), "")
	case len(unknown)+len(unready) > 0:
		message := containerListMessage(unknown, unready, "unready")
		return newFalseCondition(pod, v1.ContainersReady, ReasonContainersNotReady, message)
	default:
		return newCondition(pod, v1.ContainersReady, v1.ConditionTrue)
	}
}

// terminalReason returns the reason of a condition that is False because the pod has terminated.
func terminalReason(phase v1.PodPhase) string {
	if phase == v1.PodFailed {
		return ReasonPodFailed
	}
	return ReasonPodCompleted
}

func unreadyContainers(spec *v1.PodSpec, statuses []v1.ContainerStatus) (unknown, unready []string) {
	check := func(container *v1.Container) {
		status := findStatus(statuses, container.Name)
		if status == nil {
			unknown = append(unknown, container.Name)
		} else if !status.Ready {
			unready = append(unready, container.Name)
		}
	}
	for i := range spec.InitContainers {
		if restart.IsSidecar(&spec.InitContainers[i]) {
			check(&spec.InitContainers[i])
		}
	}
	for i := range spec.Containers {
		check(&spec.Containers[i])
	}
	return unknown, unready
}

// containerListMessage names the containers that keep a condition False, those with unknown status first.
func containerListMessage(unknown, listed []string, adjective string) string {
	parts := make([]string, 0, 2)
	if len(unknown) > 0 {
		parts = append(parts, "containers with unknown status: ["+strings.Join(unknown, " ")+"]")
	}
	if len(listed) > 0 {
		parts = append(parts, "containers with "+adjective+" status: ["+strings.Join(listed, " ")+"]")
	}
	return strings.Join(parts, ", ")
}

// ReadyCondition is True if the containers are ready and every readiness gate has a True condition among conditions. These
// are the conditions of other writers, never the owned ones (GEN-11 to GEN-15).
func ReadyCondition(
	pod *v1.Pod, conditions []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase,
) v1.PodCondition {
	return readyFromContainers(pod, conditions, ContainersReadyCondition(pod, statuses, phase))
}

// readyFromContainers applies the readiness gates to a ContainersReady condition.
func readyFromContainers(pod *v1.Pod, conditions []v1.PodCondition, containersReady v1.PodCondition) v1.PodCondition {
	if containersReady.Status != v1.ConditionTrue {
		containersReady.Type = v1.PodReady
		return containersReady
	}
	if message := closedGatesMessage(pod.Spec.ReadinessGates, conditions); message != "" {
		return newFalseCondition(pod, v1.PodReady, ReasonReadinessGatesNotReady, message)
	}
	return newCondition(pod, v1.PodReady, v1.ConditionTrue)
}

func closedGatesMessage(gates []v1.PodReadinessGate, conditions []v1.PodCondition) string {
	var parts []string
	for _, gate := range gates {
		condition := findCondition(conditions, gate.ConditionType)
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

// NeedToReconcileReadiness reports whether a readiness gate changed in the API server and the pod's Ready condition does not
// show it yet (SM-97). Sidecars count as for [ReadyCondition]. The kubelet forgets them here and always returns true
// (BUG-17).
func NeedToReconcileReadiness(pod *v1.Pod) bool {
	if len(pod.Spec.ReadinessGates) == 0 {
		return false
	}
	published := findCondition(pod.Status.Conditions, v1.PodReady)
	if published == nil {
		return false
	}
	ready := ReadyCondition(pod, pod.Status.Conditions, initAndRegular(&pod.Status), pod.Status.Phase)
	return published.Status != ready.Status || published.Message != ready.Message
}

// initAndRegular returns the statuses that conditions and phase are computed from. The result is read-only. It is nil only
// if the statuses were never computed.
func initAndRegular(status *v1.PodStatus) []v1.ContainerStatus {
	if len(status.InitContainerStatuses) == 0 && status.ContainerStatuses != nil {
		return status.ContainerStatuses
	}
	return append(slices.Clip(status.InitContainerStatuses), status.ContainerStatuses...)
}

// InitializedCondition is True if all init containers have completed and all sidecars have started. It stays True once a
// regular container has run. previous are the conditions of the previous status: a pod that restarts in place does not
// become uninitialized (GEN-16 to GEN-23).
func InitializedCondition(
	pod *v1.Pod, previous []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase,
) v1.PodCondition {
	if statuses == nil && len(pod.Spec.InitContainers) > 0 {
		return newFalseCondition(pod, v1.PodInitialized, ReasonUnknownContainerStatuses, "")
	}
	unknown, incomplete := incompleteContainers(&pod.Spec, statuses)
	initialized := newCondition(pod, v1.PodInitialized, v1.ConditionTrue)
	switch {
	case phase == v1.PodSucceeded && len(unknown) == 0:
		initialized.Reason = ReasonPodCompleted
		return initialized
	case len(unknown)+len(incomplete) == 0, hasRunRegular(&pod.Spec, statuses), isConditionTrue(previous, v1.PodInitialized):
		return initialized
	default:
		message := containerListMessage(unknown, incomplete, "incomplete")
		return newFalseCondition(pod, v1.PodInitialized, ReasonContainersNotInitialized, message)
	}
}

func incompleteContainers(spec *v1.PodSpec, statuses []v1.ContainerStatus) (unknown, incomplete []string) {
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		status := findStatus(statuses, container.Name)
		switch {
		case status == nil:
			unknown = append(unknown, container.Name)
		case restart.IsSidecar(container) && !isStarted(status), !restart.IsSidecar(container) && !status.Ready:
			incomplete = append(incomplete, container.Name)
		}
	}
	return unknown, incomplete
}

func hasRunRegular(spec *v1.PodSpec, statuses []v1.ContainerStatus) bool {
	for i := range statuses {
		state := &statuses[i].State
		if (state.Running != nil || state.Terminated != nil) && findContainer(spec.Containers, statuses[i].Name) != nil {
			return true
		}
	}
	return false
}

func isStarted(status *v1.ContainerStatus) bool { return status.Started != nil && *status.Started }

// NewSandboxReason returns why the pod needs a new sandbox before containers can start, or "" if its sandbox is usable. It
// determines PodReadyToStartContainers, and in the kubelet also the runtime manager's decision (GEN-29).
func NewSandboxReason(pod *v1.Pod, runtimePod *observed.Pod) string {
	if runtimePod == nil {
		runtimePod = &observed.Pod{}
	}
	newest, ok := runtimePod.NewestSandbox()
	switch {
	case !ok:
		return "no pod sandbox exists" // GEN-24
	case runtimePod.ReadySandboxes() > 1:
		return "multiple pod sandboxes are ready and need to be reconciled" // GEN-25
	case !newest.Ready:
		return "pod sandbox is not ready" // GEN-26
	case newest.HostNetwork != pod.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated" // GEN-27
	case !pod.Spec.HostNetwork && newest.Network != nil && len(newest.Network.IPs) == 0:
		return "pod sandbox has no IP address" // GEN-28
	default:
		return ""
	}
}

// ReadyToStartContainersCondition describes the current sandbox. It turns False again when the sandbox is gone (GEN-31). As
// in v1.36, the condition has no reason; see [NewSandboxReason].
func ReadyToStartContainersCondition(pod *v1.Pod, runtimePod *observed.Pod) v1.PodCondition {
	if NewSandboxReason(pod, runtimePod) != "" {
		return newCondition(pod, v1.PodReadyToStartContainers, v1.ConditionFalse)
	}
	return newCondition(pod, v1.PodReadyToStartContainers, v1.ConditionTrue)
}

// WithSandboxReady returns the status with PodReadyToStartContainers set to True. It lets an agent publish a new sandbox
// before minutes of image pulls (GEN-30).
func WithSandboxReady(pod *v1.Pod, status v1.PodStatus) v1.PodStatus {
	status.Conditions = withCondition(status.Conditions, newCondition(pod, v1.PodReadyToStartContainers, v1.ConditionTrue))
	return status
}

// AllContainersRestartingCondition is True while the exit of one container restarts all containers in place, until the
// records of all of them are gone. ok is false if no container has such a rule: the pod does not get the condition (GEN-34).
func AllContainersRestartingCondition(
	pod *v1.Pod, runtimePod *observed.Pod, previous *v1.PodStatus, phase v1.PodPhase,
) (condition v1.PodCondition, ok bool) {
	if !restart.CanRestartAll(&pod.Spec) {
		return v1.PodCondition{}, false
	}
	condition = v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case IsTerminal(phase):
		condition.Reason = terminalReason(phase)
	case isRestartingAll(&pod.Spec, runtimePod, previous) && hasAnyInstance(&pod.Spec, runtimePod):
		condition.Status = v1.ConditionTrue
		condition.Reason = ReasonRestartAllContainersStarted
		condition.Message = "container exited with restart policy rule"
	}
	return condition, true
}

// isRestartingAll reports whether all containers are to restart in place: a published restart is not complete, or a
// container exited with a code that triggers one, according to the runtime or to the previous status.
func isRestartingAll(spec *v1.PodSpec, runtimePod *observed.Pod, previous *v1.PodStatus) bool {
	if isConditionTrue(previous.Conditions, v1.AllContainersRestarting) && !isRestartAllComplete(spec, runtimePod) {
		return true
	}
	for i := range spec.InitContainers {
		if triggersRestartAll(&spec.InitContainers[i], runtimePod, previous.InitContainerStatuses) {
			return true
		}
	}
	for i := range spec.Containers {
		if triggersRestartAll(&spec.Containers[i], runtimePod, previous.ContainerStatuses) {
			return true
		}
	}
	return false
}

// isRestartAllComplete reports whether every container in the runtime was created after the exit that triggered the restart.
// An agent that removes the containers instead, as the kubelet does, has no such exit once it is done.
func isRestartAllComplete(spec *v1.PodSpec, runtimePod *observed.Pod) bool {
	triggered := restart.LastRestartAll(spec, runtimePod)
	if triggered.IsZero() {
		return false
	}
	for _, containers := range [...][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			newest := runtimePod.Newest(containers[i].Name)
			if newest != nil && !newest.CreatedAt.After(triggered) {
				return false
			}
		}
	}
	return true
}

// triggersRestartAll considers the published status only if the runtime has an exited instance.
func triggersRestartAll(container *v1.Container, runtimePod *observed.Pod, previous []v1.ContainerStatus) bool {
	newest := runtimePod.Newest(container.Name)
	if newest == nil || ContainerState(newest) != observed.Exited {
		return false
	}
	if restart.RestartsAll(container, int32(newest.Exit.Code)) {
		return true
	}
	published := findStatus(previous, container.Name)
	return published != nil && published.State.Terminated != nil &&
		restart.RestartsAll(container, published.State.Terminated.ExitCode)
}

// hasAnyInstance reports whether the runtime still has a record of an init or regular container of the pod.
func hasAnyInstance(spec *v1.PodSpec, runtimePod *observed.Pod) bool {
	for _, containers := range [...][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if runtimePod.Newest(containers[i].Name) != nil {
				return true
			}
		}
	}
	return false
}
