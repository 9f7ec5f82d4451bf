package resize

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cgroup"
)

// Step is one action of a resize: either the pod's cgroup or one container is updated.
type Step struct {
	// Resource is cpu or memory.
	Resource v1.ResourceName
	// Container is the container to update, or nil for the pod. After are its quantities after the step: the memory step keeps
	// the CPU as it was (RSZ-17).
	Container *Container
	After     Quantities
	// Pod has the values to write to the pod's cgroup.
	Pod cgroup.Resources
}

// Steps returns how to get from the current to the desired values of the pod's cgroup while the containers are updated: memory
// first, then CPU. Each time the pod's limits grow before those of its containers and shrink after them, and containers that
// shrink come first (RSZ-16). A value that desired does not have stays as it is (RSZ-22).
func Steps(current, desired cgroup.Resources, containers []Container) []Step {
	var steps []Step
	add := func(resource v1.ResourceName, pods ...cgroup.Resources) {
		for _, pod := range pods {
			steps = append(steps, Step{Resource: resource, Pod: pod})
		}
	}
	memoryUp, memoryDown := split(current.Memory, desired.Memory, cgroup.Resources{Memory: desired.Memory})
	add(v1.ResourceMemory, memoryUp...)
	steps = append(steps, containerSteps(v1.ResourceMemory, containers)...)
	add(v1.ResourceMemory, memoryDown...)

	quotaUp, quotaDown := split(current.CPUQuota, desired.CPUQuota, cgroup.Resources{CPUQuota: desired.CPUQuota})
	sharesUp, sharesDown := split(current.CPUShares, desired.CPUShares, cgroup.Resources{CPUShares: desired.CPUShares})
	add(v1.ResourceCPU, quotaUp...)
	add(v1.ResourceCPU, sharesUp...)
	steps = append(steps, containerSteps(v1.ResourceCPU, containers)...)
	add(v1.ResourceCPU, sharesDown...)
	add(v1.ResourceCPU, quotaDown...)
	return steps
}

// split returns the write of a value before the containers if it grows, or after them if it shrinks.
func split(current, desired *int64, write cgroup.Resources) (before, after []cgroup.Resources) {
	if desired == nil || *desired == 0 {
		return nil, nil
	}
	switch from, to := limitOf(current), limitOf(desired); {
	case to > from:
		return []cgroup.Resources{write}, nil
	case to < from:
		return nil, []cgroup.Resources{write}
	default:
		return nil, nil
	}
}

// limitOf returns a limit such that no limit is the largest. Otherwise adding a limit would count as raising it (BUG-122).
func limitOf(value *int64) int64 {
	if value == nil || *value <= 0 {
		return math.MaxInt64
	}
	return *value
}

// containerSteps returns the updates of one resource, those that shrink first.
func containerSteps(resource v1.ResourceName, containers []Container) []Step {
	var shrinking, growing []Step
	for i := range containers {
		container := &containers[i]
		step := Step{Resource: resource, Container: container, After: container.Desired}
		changes, limits, requests := container.changesCPU(),
			[2]int64{container.Current.MilliCPULimit, container.Desired.MilliCPULimit},
			[2]int64{container.Current.MilliCPURequest, container.Desired.MilliCPURequest}
		if resource == v1.ResourceMemory {
			step.After = container.Current.withMemory(container.Desired)
			changes, limits, requests = container.changesMemory(),
				[2]int64{container.Current.MemoryLimit, container.Desired.MemoryLimit},
				[2]int64{container.Current.MemoryRequest, container.Desired.MemoryRequest}
		}
		switch {
		case !changes:
		case limitOf(&limits[1]) < limitOf(&limits[0]), limits[0] == limits[1] && requests[1] < requests[0]:
			shrinking = append(shrinking, step)
		default:
			growing = append(growing, step)
		}
	}
	return slices.Concat(shrinking, growing)
}

// Usage is the memory in use in bytes. What is not known is missing.
type Usage struct {
	Pod        *int64
	Containers map[string]int64
}

// NeedsUsage reports whether the steps lower or add a limit of memory, so that CheckMemory needs to know its use.
func NeedsUsage(steps []Step, current cgroup.Resources) bool {
	return CheckMemory(steps, current, Usage{}) != nil
}

// CheckMemory returns an error if a step would set a limit of memory at or below its use, or if the use is not known: the kernel
// would kill processes. It is for limits that are lowered or added, of containers and of the pod (RSZ-19, BUG-122, BUG-124). The
// use may still grow afterwards.
func CheckMemory(steps []Step, current cgroup.Resources, usage Usage) error {
	var failures []string
	for _, step := range steps {
		var failure error
		switch {
		case step.Resource != v1.ResourceMemory:
		case step.Container != nil:
			failure = checkContainer(step.Container, usage)
		case limitOf(step.Pod.Memory) < limitOf(current.Memory):
			failure = checkPod(*step.Pod.Memory, usage)
		}
		if failure != nil {
			failures = append(failures, failure.Error())
		}
	}
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("cannot decrease memory limits: %s", failures[0])
	default:
		return fmt.Errorf("cannot decrease memory limits: [%s]", strings.Join(failures, ", "))
	}
}

func checkPod(limit int64, usage Usage) error {
	switch {
	case usage.Pod == nil:
		return errors.New("missing pod memory usage")
	case *usage.Pod >= limit:
		return fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", limit, *usage.Pod)
	default:
		return nil
	}
}

// checkContainer compares with the container's own usage; the kubelet's message names that of the pod (BUG-123).
func checkContainer(container *Container, usage Usage) error {
	limit := container.Desired.MemoryLimit
	if limitOf(&limit) >= limitOf(&container.Current.MemoryLimit) {
		return nil
	}
	switch used, found := usage.Containers[container.Spec.Name]; {
	case !found:
		return fmt.Errorf("missing container %q memory usage", container.Spec.Name)
	case used >= limit:
		return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", container.Spec.Name, limit, used)
	default:
		return nil
	}
}
