package resize

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// Change is what a resize has yet to actuate.
type Change struct {
	// Pod reports that the values of the pod's cgroup change.
	Pod bool
	// Containers are the running containers to update.
	Containers []Container
	// Restarts has the containers that are restarted instead, because their policy says so. They get the new values when they
	// start.
	Restarts []string
}

// IsEmpty reports whether nothing is left to do.
func (c Change) IsEmpty() bool { return !c.Pod && len(c.Containers) == 0 && len(c.Restarts) == 0 }

// Container is a running container to update.
type Container struct {
	Spec *v1.Container
	ID   observed.ContainerID
	// Current is what the runtime last accepted, Desired what is allocated.
	Current, Desired Quantities
}

func (c Container) changesMemory() bool { return c.Current.withCPU(c.Desired) != c.Desired }
func (c Container) changesCPU() bool    { return c.Current.withMemory(c.Desired) != c.Desired }

// RequiresRestart reports whether the container must restart for its resize: a resource whose policy is RestartContainer
// changes. A changed request counts like a changed limit (RSZ-15).
func RequiresRestart(container *v1.Container, current, desired Quantities) bool {
	changes := Container{Current: current, Desired: desired}
	for _, policy := range container.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer && (policy.ResourceName == v1.ResourceMemory && changes.changesMemory() ||
			policy.ResourceName == v1.ResourceCPU && changes.changesCPU()) {
			return true
		}
	}
	return false
}

// OfStatus returns the quantities that a pod's status reports.
func OfStatus(status *v1.PodStatus) State {
	state := State{}
	for _, statuses := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			if resources := statuses[i].Resources; resources != nil {
				state[statuses[i].Name] = newQuantities(resources.Requests, resources.Limits)
			}
		}
	}
	if status.Resources != nil {
		state[PodLevel] = newQuantities(status.Resources.Requests, status.Resources.Limits)
	}
	return state
}

// WithActuated returns the pod's state in the runtime with the actuated quantities where the runtime reports none: no runtime
// reports memory requests, and some report no resources at all. Otherwise a status would go on to show what was published
// before a resize. A pod whose published quantities are the actuated ones is returned as it is, unless it is being resized.
func WithActuated(pod *observed.Pod, actuated, published State, isResizing bool) *observed.Pod {
	needs := func(name string) bool {
		reported, found := published[name]
		return isResizing || found && reported != actuated[name]
	}
	filled := *pod
	filled.Containers = make([]observed.Container, len(pod.Containers))
	copy(filled.Containers, pod.Containers)
	isFilled := needs(PodLevel)
	if isFilled {
		filled.Resources = fill(pod.Resources, actuated[PodLevel])
	}
	for i := range filled.Containers {
		container := &filled.Containers[i]
		if quantities, found := actuated[container.Name]; found && container.State == observed.Running && needs(container.Name) {
			container.Resources, isFilled = fill(container.Resources, quantities), true
		}
	}
	if !isFilled {
		return pod
	}
	return &filled
}

func fill(reported *observed.Resources, quantities Quantities) *observed.Resources {
	var filled observed.Resources
	if reported != nil {
		filled = *reported
	}
	set := func(value **int64, quantity int64) {
		if *value == nil && quantity != 0 {
			*value = &quantity
		}
	}
	set(&filled.MilliCPURequest, quantities.MilliCPURequest)
	set(&filled.MilliCPULimit, quantities.MilliCPULimit)
	set(&filled.MemoryRequestBytes, quantities.MemoryRequest)
	set(&filled.MemoryLimitBytes, quantities.MemoryLimit)
	return &filled
}
