package derive

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// Input holds everything that [Status] depends on. Only Pod is required.
type Input struct {
	// Pod is the desired pod with its allocated resources. Its Status is the last known status in the API server. For a
	// static pod that is the status of its mirror pod, or empty.
	Pod *v1.Pod
	// Previous is the last published status, or nil. If nil, history is taken from Pod.Status (PH-21).
	Previous *v1.PodStatus
	// Observed is the last known state of the pod in the runtime, or nil if the runtime was not inspected yet.
	Observed *observed.Pod
	Probes   ProbeResults
	// Waiting explains, by container name, why a container was not started. It applies only to containers that are to be
	// started (PH-31).
	Waiting map[string]Waiting
	// Resize holds the pod's resize conditions. They are omitted once the pod has terminated (PH-40).
	Resize Resize
	Node   NodeInfo
	// Eviction is set if the pod must fail, whatever its containers do (PH-19).
	Eviction *Eviction
	// Restarting holds the instances that the agent stopped in order to replace them. They have not completed, whatever their
	// exit code and the restart policy. The kubelet lets a pod succeed or fail if such a container cannot start at once.
	Restarting map[observed.ContainerID]bool
	// RestartAllAt is when the agent began to restart all containers because one exited. Zero if it did not, or if only the
	// exit is known.
	RestartAllAt time.Time
	// Terminating reports that the pod's containers were stopped for good: none restarts, whatever the restart policy (PH-9).
	Terminating bool
	Now         time.Time
}

// Waiting explains why a container waits, in the API's terms: CrashLoopBackOff, ErrImagePull.
type Waiting struct {
	Reason, Message string
	// Until is when the container may start. Zero if unknown. It is not part of the status.
	Until time.Time
}

// Eviction explains why a pod must fail.
type Eviction struct {
	Reason, Message string
}

// NodeInfo describes the node, as far as the status of its pods depends on it.
type NodeInfo struct {
	// HostIPs are the node's addresses, the primary one first, at most one per family; see [HostIPs]. If empty, the
	// published addresses are kept.
	HostIPs []netip.Addr
	// IPv6First puts the IPv6 address of a dual-stack pod first.
	IPv6First bool
	// RecursiveReadOnly reports that the runtime supports recursive read-only mounts.
	RecursiveReadOnly bool
	// PodResources enables the pod-level status.resources and status.allocatedResources. API servers before v1.36 drop
	// them, and a status that is not stored as it was sent would be sent forever. A status that has them already keeps them:
	// the API server has stored what another agent sent.
	PodResources bool
}

// ContainerKind is a container's role in its pod. The zero value is no kind.
type ContainerKind string

// The container kinds.
const (
	InitContainer      ContainerKind = "init"      // runs to completion before the next one starts
	SidecarContainer   ContainerKind = "sidecar"   // an init container that keeps running next to the regular ones
	RegularContainer   ContainerKind = "regular"   // an entry of spec.containers
	EphemeralContainer ContainerKind = "ephemeral" // started once, for debugging
)

// InitContainerKind returns SidecarContainer or InitContainer for an entry of spec.initContainers.
func InitContainerKind(container *v1.Container) ContainerKind {
	if restart.IsSidecar(container) {
		return SidecarContainer
	}
	return InitContainer
}

// MetricLabel returns the kubelet's value of the label container_type. It counts sidecars as init containers.
func (k ContainerKind) MetricLabel() string {
	switch k {
	case InitContainer, SidecarContainer:
		return "init_container"
	case EphemeralContainer:
		return "ephemeral_container"
	default:
		return "container"
	}
}

// Status returns the pod's current status. The result carries over monotonic fields (see [CarryOver]) and is normalized
// (see [Normalize]).
func Status(in Input) v1.PodStatus {
	d := newDerivation(in)
	status := v1.PodStatus{ObservedGeneration: d.Pod.Generation, QOSClass: QOSClass(d.Pod)}
	d.setContainers(&status)
	applyProbeResults(d.Pod, &status, d.Probes)
	d.setPhase(&status)
	status.Conditions = d.conditions(&status)
	d.setAddresses(&status)
	if d.Node.PodResources || d.previous.Resources != nil || d.previous.AllocatedResources != nil {
		status.Resources = d.podResources()
		status.AllocatedResources = podRequests(d.Pod)
	}
	status = CarryOver(d.previous, status, d.Now)
	status, _ = Normalize(d.Pod, status)
	return status
}

// RejectedStatus returns the final status of a pod that this node does not run (PH-49). It has no container statuses: none
// were ever created.
func RejectedStatus(pod *v1.Pod, reason, message string) v1.PodStatus {
	return v1.PodStatus{
		ObservedGeneration: pod.Generation,
		QOSClass:           QOSClass(pod),
		Phase:              v1.PodFailed,
		Reason:             reason,
		Message:            "Pod was rejected: " + message,
	}
}

// derivation is an Input with defaults filled in, and facts that several rules need.
type derivation struct {
	Input
	previous      *v1.PodStatus // never nil
	runtimePod    *observed.Pod // never nil
	initialized   bool          // a regular container of the current sandbox was created
	restartingAll bool          // all containers restart in place
}

func newDerivation(in Input) *derivation {
	d := &derivation{Input: in, previous: in.Previous, runtimePod: in.Observed}
	if d.previous == nil {
		d.previous = &in.Pod.Status
	}
	if d.runtimePod == nil {
		d.runtimePod = &observed.Pod{}
	}
	d.initialized = hasCreatedRegular(&in.Pod.Spec, d.runtimePod)
	d.restartingAll = isRestartingAll(&in.Pod.Spec, d.runtimePod, d.previous)
	return d
}

// setContainers fills the three lists: regular and ephemeral containers sorted by name, init containers in spec order
// (PH-41).
func (d *derivation) setContainers(status *v1.PodStatus) {
	spec, previous := &d.Pod.Spec, d.previous
	status.InitContainerStatuses = d.containerStatuses(spec.InitContainers, InitContainer, previous.InitContainerStatuses)
	status.ContainerStatuses = d.containerStatuses(spec.Containers, RegularContainer, previous.ContainerStatuses)
	ephemeral := make([]v1.Container, 0, len(spec.EphemeralContainers))
	for i := range spec.EphemeralContainers {
		ephemeral = append(ephemeral, v1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	status.EphemeralContainerStatuses = d.containerStatuses(ephemeral, EphemeralContainer, previous.EphemeralContainerStatuses)
	sortByName(status.ContainerStatuses)
	sortByName(status.EphemeralContainerStatuses)
}

func sortByName(statuses []v1.ContainerStatus) { slices.SortStableFunc(statuses, compareNames) }

func compareNames(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }

// conditions returns the pod's conditions in the order of GEN-35: conditions of other writers first, as the API server has
// them, then the owned ones.
func (d *derivation) conditions(status *v1.PodStatus) []v1.PodCondition {
	conditions := make([]v1.PodCondition, 0, len(d.Pod.Status.Conditions)+len(ownedConditions)+1)
	for _, condition := range d.Pod.Status.Conditions {
		if !IsOwnedCondition(condition.Type) {
			conditions = append(conditions, condition)
		}
	}
	if !d.Terminating {
		conditions = append(conditions, d.resizeConditions()...)
	}
	if disruption := findCondition(d.previous.Conditions, v1.DisruptionTarget); disruption != nil {
		conditions = setCondition(conditions, *disruption) // GEN-33: set once by the kill, never computed
	}
	statuses := initAndRegular(status)
	conditions = append(conditions,
		ReadyToStartContainersCondition(d.Pod, d.runtimePod),
		InitializedCondition(d.Pod, d.previous.Conditions, statuses, status.Phase),
		ReadyCondition(d.Pod, conditions, statuses, status.Phase),
		ContainersReadyCondition(d.Pod, statuses, status.Phase),
		newCondition(d.Pod, v1.PodScheduled, v1.ConditionTrue), // GEN-32
	)
	if restarting, ok := AllContainersRestartingCondition(d.Pod, d.runtimePod, d.previous, status.Phase); ok {
		conditions = append(conditions, restarting)
	}
	return conditions
}

// resizeConditions returns the resize conditions. They keep their own observed generation, unless the pod has none (SM-38).
func (d *derivation) resizeConditions() []v1.PodCondition {
	conditions := d.Resize.Conditions()
	if d.Pod.Generation == 0 {
		for i := range conditions {
			conditions[i].ObservedGeneration = 0
		}
	}
	return conditions
}
