package resize

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Quantities are the resources of a container or a pod that can be resized. Zero means none: a limit of zero is no limit.
type Quantities struct {
	MilliCPURequest int64 `json:"milliCPURequest,omitempty"`
	MilliCPULimit   int64 `json:"milliCPULimit,omitempty"`
	MemoryRequest   int64 `json:"memoryRequest,omitempty"` // bytes
	MemoryLimit     int64 `json:"memoryLimit,omitempty"`   // bytes
}

// PodLevel is the name of the pod itself in a State. No container has an empty name.
const PodLevel = ""

// State has the quantities of the containers of a pod by name, and those of the pod as a whole under PodLevel.
type State map[string]Quantities

// Of returns the quantities that a pod's spec asks for. A container without a limit of its own has the pod's (RSZ-25). Those of
// the pod are what its cgroup is computed from: sums, or the values of the pod level.
func Of(pod *v1.Pod) State {
	state := State{}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			state[containers[i].Name] = containerQuantities(pod, &containers[i])
		}
	}
	options := resourcehelper.PodResourcesOptions{}
	state[PodLevel] = newQuantities(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))
	return state
}

func containerQuantities(pod *v1.Pod, container *v1.Container) Quantities {
	quantities := newQuantities(container.Resources.Requests, container.Resources.Limits)
	if pod.Spec.Resources == nil {
		return quantities
	}
	whole := newQuantities(nil, pod.Spec.Resources.Limits)
	if quantities.MilliCPULimit == 0 {
		quantities.MilliCPULimit = whole.MilliCPULimit
	}
	if quantities.MemoryLimit == 0 {
		quantities.MemoryLimit = whole.MemoryLimit
	}
	return quantities
}

func newQuantities(requests, limits v1.ResourceList) Quantities {
	return Quantities{
		MilliCPURequest: requests.Cpu().MilliValue(), MilliCPULimit: limits.Cpu().MilliValue(),
		MemoryRequest: requests.Memory().Value(), MemoryLimit: limits.Memory().Value(),
	}
}

// Requirements returns the quantities in the API's form. Those that are zero are left out.
func (q Quantities) Requirements() v1.ResourceRequirements {
	requirements := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	set := func(list v1.ResourceList, name v1.ResourceName, quantity *resource.Quantity) {
		if !quantity.IsZero() {
			list[name] = *quantity
		}
	}
	set(requirements.Requests, v1.ResourceCPU, resource.NewMilliQuantity(q.MilliCPURequest, resource.DecimalSI))
	set(requirements.Requests, v1.ResourceMemory, resource.NewQuantity(q.MemoryRequest, resource.BinarySI))
	set(requirements.Limits, v1.ResourceCPU, resource.NewMilliQuantity(q.MilliCPULimit, resource.DecimalSI))
	set(requirements.Limits, v1.ResourceMemory, resource.NewQuantity(q.MemoryLimit, resource.BinarySI))
	return requirements
}

// withMemory returns q with the memory of other.
func (q Quantities) withMemory(other Quantities) Quantities {
	q.MemoryRequest, q.MemoryLimit = other.MemoryRequest, other.MemoryLimit
	return q
}

// withCPU returns q with the CPU of other.
func (q Quantities) withCPU(other Quantities) Quantities {
	q.MilliCPURequest, q.MilliCPULimit = other.MilliCPURequest, other.MilliCPULimit
	return q
}

// Unactuated returns what is actuated where it differs from allocated. A name that is missing there is actuated as allocated.
func Unactuated(actuated, allocated State) State {
	differing := maps.Clone(actuated)
	maps.DeleteFunc(differing, func(name string, quantities Quantities) bool {
		want, found := allocated[name]
		return !found || want == quantities
	})
	return differing
}

// Actuated is the reverse of Unactuated: the allocated quantities, with those that differ in their place.
func Actuated(allocated, differing State) State {
	actuated := maps.Clone(allocated)
	maps.Copy(actuated, differing)
	return actuated
}
