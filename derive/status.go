package derive

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// Status is what the API should say about the pod now. The result continues the status before (see [Continue]) and is
// normal (see [Normalize]).
func Status(in Input) v1.PodStatus {
	d := newDerivation(in)
	status := v1.PodStatus{ObservedGeneration: d.Pod.Generation, QOSClass: QOSClass(d.Pod)}
	d.setContainers(&status)
	applyProbes(d.Pod, &status, d.Probes)
	d.setPhase(&status)
	status.Conditions = d.conditions(&status)
	d.setAddresses(&status)
	if d.Node.PodResources {
		status.Resources = d.podResources()
		status.AllocatedResources = podRequests(d.Pod)
	}
	status = CarryOver(d.previous, status, d.Now)
	status, _ = Normalize(d.Pod, status)
	return status
}

// Rejected is the status of a pod that this node will not run (PH-49). It is final, and says nothing of containers:
// there never were any.
func RejectedStatus(pod *v1.Pod, reason, message string) v1.PodStatus {
	return v1.PodStatus{
		ObservedGeneration: pod.Generation,
		QOSClass:           QOSClass(pod),
		Phase:              v1.PodFailed,
		Reason:             reason,
		Message:            "Pod was rejected: " + message,
	}
}

// derivation is an Input with its gaps filled, and what several rules ask of it.
type derivation struct {
	Input
	previous      *v1.PodStatus
	seen          *observed.Pod
	initialized   bool // a regular container of the current sandbox was created
	restartingAll bool // the whole pod restarts in place
}

func newDerivation(in Input) *derivation {
	d := &derivation{Input: in, previous: in.Previous, seen: in.Observed}
	if d.previous == nil {
		d.previous = &in.Pod.Status
	}
	if d.seen == nil {
		d.seen = &observed.Pod{}
	}
	d.initialized = wasInitialized(&in.Pod.Spec, d.seen)
	d.restartingAll = restartsAll(&in.Pod.Spec, d.seen, d.previous)
	return d
}

// setContainers fills the three lists: regular and ephemeral containers by name, init containers as the spec has them
// (PH-41).
func (d *derivation) setContainers(status *v1.PodStatus) {
	spec, previous := &d.Pod.Spec, d.previous
	status.InitContainerStatuses = d.containerStatuses(spec.InitContainers, InitContainer, previous.InitContainerStatuses)
	status.ContainerStatuses = d.containerStatuses(spec.Containers, RegularContainer, previous.ContainerStatuses)
	added := make([]v1.Container, 0, len(spec.EphemeralContainers))
	for i := range spec.EphemeralContainers {
		added = append(added, v1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	status.EphemeralContainerStatuses = d.containerStatuses(added, EphemeralContainer, previous.EphemeralContainerStatuses)
	sortByName(status.ContainerStatuses)
	sortByName(status.EphemeralContainerStatuses)
}

func sortByName(statuses []v1.ContainerStatus) { slices.SortStableFunc(statuses, byName) }

func byName(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }

// setPhase goes by the flags that this status will show. The kubelet goes by those shown before, so that a sidecar's
// start reaches the phase one look later (PH-2).
func (d *derivation) setPhase(status *v1.PodStatus) {
	statuses := initAndRegular(status)
	t, raw := tallied(d.Pod, statuses, d.Terminating, d.initialized)
	is := d.outcome(raw, &t, statuses)
	status.Phase, status.Reason, status.Message = is.phase, is.reason, is.message
}

// conditions are in the order of GEN-35: others' first, as the API server has them, then ours.
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
	if disruption := conditionOf(d.previous.Conditions, v1.DisruptionTarget); disruption != nil {
		conditions = put(conditions, *disruption) // GEN-33: told once, by the kill; never computed
	}
	statuses := initAndRegular(status)
	conditions = append(conditions,
		ReadyToStartContainersCondition(d.Pod, d.seen),
		InitializedCondition(d.Pod, d.previous.Conditions, statuses, status.Phase),
		ReadyCondition(d.Pod, conditions, statuses, status.Phase),
		ContainersReadyCondition(d.Pod, statuses, status.Phase),
		newCondition(d.Pod, v1.PodScheduled, v1.ConditionTrue), // GEN-32
	)
	if restarting, ok := AllContainersRestartingCondition(d.Pod, d.seen, d.previous, status.Phase); ok {
		conditions = append(conditions, restarting)
	}
	return conditions
}

// resizeConditions show the generation that they were made for, unless the pod has none (SM-38).
func (d *derivation) resizeConditions() []v1.PodCondition {
	conditions := d.Resize.Conditions()
	if d.Pod.Generation == 0 {
		for i := range conditions {
			conditions[i].ObservedGeneration = 0
		}
	}
	return conditions
}
