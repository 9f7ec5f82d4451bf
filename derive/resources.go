package derive

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/observed"
)

// The smallest values that a cgroup can hold. Where both the allocated and the enforced number are at or below them,
// the allocated one is shown: the difference is rounding.
const (
	minMilliCPURequest = 2
	minMilliCPULimit   = 10
	noMinimum          = -1
)

// containerResources are the allocated resources, and for a running container those that the runtime enforces. Where
// the runtime is silent, what it said before about this very container stands (PH-39).
func containerResources(spec *v1.Container, c *observed.Container, old *v1.ContainerStatus) *v1.ResourceRequirements {
	resources := spec.Resources.DeepCopy()
	if c.State != observed.Running {
		return resources
	}
	before := &v1.ResourceRequirements{}
	if old != nil && old.Resources != nil && old.State.Running != nil && old.ContainerID == c.ID.String() {
		before = old.Resources
	}
	now := enforced(c.Resources)
	if resources.Limits != nil {
		show(resources.Limits, v1.ResourceCPU, now.cpuLimit, before.Limits, minMilliCPULimit)
		show(resources.Limits, v1.ResourceMemory, now.memoryLimit, before.Limits, noMinimum)
	}
	if resources.Requests != nil {
		show(resources.Requests, v1.ResourceCPU, now.cpuRequest, before.Requests, minMilliCPURequest)
		show(resources.Requests, v1.ResourceMemory, now.memoryRequest, before.Requests, noMinimum)
	}
	return resources
}

// quantities are what a runtime enforces, in the API's form; nil where it does not say.
type quantities struct {
	cpuRequest, cpuLimit, memoryRequest, memoryLimit *resource.Quantity
}

func enforced(seen *observed.Resources) quantities {
	if seen == nil {
		return quantities{}
	}
	milli := func(value *int64) *resource.Quantity {
		if value == nil {
			return nil
		}
		return resource.NewMilliQuantity(*value, resource.DecimalSI)
	}
	bytes := func(value *int64) *resource.Quantity {
		if value == nil {
			return nil
		}
		return resource.NewQuantity(*value, resource.BinarySI)
	}
	return quantities{
		cpuRequest: milli(seen.MilliCPURequest), cpuLimit: milli(seen.MilliCPULimit),
		memoryRequest: bytes(seen.MemoryRequestBytes), memoryLimit: bytes(seen.MemoryLimitBytes),
	}
}

// show puts the value that holds now into the list, or the one shown before when none is known.
func show(list v1.ResourceList, name v1.ResourceName, now *resource.Quantity, before v1.ResourceList, minimum int64) {
	if now == nil {
		if shown, ok := before[name]; ok {
			list[name] = shown
		}
		return
	}
	allocated := list[name]
	if minimum == noMinimum || now.MilliValue() > minimum || allocated.MilliValue() > minimum {
		list[name] = *now
	}
}
