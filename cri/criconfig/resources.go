package criconfig

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/podid"
)

// OOM scores of the QoS classes.
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000

	systemNodeCritical = "system-node-critical"
)

// Keys of the unified map, which names files of cgroup version 2.
const (
	oomGroupFile = "memory.oom.group"
	swapMaxFile  = "memory.swap.max"
)

// containerResources returns the container's limits. Most are in the terms of cgroup v1: runtimes translate them to the cgroup
// version of the machine (CGR-24, CGR-25).
func (g *Generator) containerResources(pod *v1.Pod, container *v1.Container) *runtimeapi.LinuxContainerResources {
	cpuLimit := effectiveLimit(pod, container, v1.ResourceCPU)
	cpuRequest, requested := container.Resources.Requests[v1.ResourceCPU]
	if !requested {
		cpuRequest = cpuLimit
	}
	resources := g.linuxResources(cpuRequest, cpuLimit, effectiveLimit(pod, container, v1.ResourceMemory))
	resources.OomScoreAdj = g.oomScoreAdj(pod, container)
	resources.HugepageLimits = g.hugePageLimits(pod, container)
	g.forbidSwap(resources)
	return resources
}

// effectiveLimit returns the container's limit, or the pod's if it has none.
func effectiveLimit(pod *v1.Pod, container *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := container.Resources.Limits[name]
	if limit.IsZero() && pod.Spec.Resources != nil {
		return pod.Spec.Resources.Limits[name]
	}
	return limit
}

// sandboxResources returns the resources of all containers together. Runtimes whose sandboxes are virtual machines size them
// by it (CGR-30).
func (g *Generator) sandboxResources(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)
	cpuRequest, requested := requests[v1.ResourceCPU]
	if !requested {
		cpuRequest = limits[v1.ResourceCPU]
	}
	return g.linuxResources(cpuRequest, limits[v1.ResourceCPU], limits[v1.ResourceMemory])
}

// overhead returns the resources of the sandbox itself, for runtimes whose sandboxes are virtual machines (CGR-30).
func (g *Generator) overhead(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	if pod.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	cpu := pod.Spec.Overhead[v1.ResourceCPU]
	return g.linuxResources(cpu, cpu, pod.Spec.Overhead[v1.ResourceMemory])
}

func (g *Generator) linuxResources(cpuRequest, cpuLimit, memoryLimit resource.Quantity) *runtimeapi.LinuxContainerResources {
	resources := &runtimeapi.LinuxContainerResources{
		CpuShares:          cgroup.CPUShares(cpuRequest.MilliValue()),
		CpuQuota:           cgroup.CPUQuota(cpuLimit.MilliValue()),
		CpuPeriod:          cgroup.QuotaPeriod,
		MemoryLimitInBytes: memoryLimit.Value(),
	}
	if g.NoCPUQuota { // CGR-15
		resources.CpuQuota, resources.CpuPeriod = 0, 0
	}
	if g.CgroupHost.V2 && !g.SingleProcessOOMKill { // kill the container as a whole (CGR-27)
		resources.Unified = map[string]string{oomGroupFile: "1"}
	}
	return resources
}

// hugePageLimits returns a limit for every page size of the machine, 0 for sizes that the spec does not limit (CGR-29).
func (g *Generator) hugePageLimits(pod *v1.Pod, container *v1.Container) []*runtimeapi.HugepageLimit {
	limits := map[int64]uint64{}
	add := func(list v1.ResourceList) {
		for name, quantity := range list {
			if size, isHugePage := cgroup.HugePageSize(name); isHugePage {
				limits[size] = uint64(quantity.Value())
			}
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources.Limits)
	}
	add(container.Resources.Limits)
	var all []*runtimeapi.HugepageLimit
	for _, size := range g.CgroupHost.HugePageSizes {
		all = append(all, &runtimeapi.HugepageLimit{PageSize: cgroup.HugePageSizeName(size), Limit: limits[size]})
	}
	return all
}

// forbidSwap keeps the container out of swap if the machine can limit it (CGR-28).
func (g *Generator) forbidSwap(resources *runtimeapi.LinuxContainerResources) {
	switch {
	case !g.CgroupHost.SwapController:
	case !g.CgroupHost.V2: // the limit is for memory and swap together
		resources.MemorySwapLimitInBytes = resources.MemoryLimitInBytes
	case resources.Unified == nil:
		resources.Unified = map[string]string{swapMaxFile: "0"}
	default:
		resources.Unified[swapMaxFile] = "0"
	}
}

// oomScoreAdj returns how early the kernel kills the container when memory runs out. Among burstable containers, the smaller
// the share of the machine's memory that a container requests, the earlier (CGR-26).
func (g *Generator) oomScoreAdj(pod *v1.Pod, container *v1.Container) int64 {
	switch class := derive.QOSClass(pod); {
	case isNodeCritical(pod), class == v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case class == v1.PodQOSBestEffort || g.MemoryCapacity <= 0:
		return bestEffortOOMScore
	}
	request := container.Resources.Requests.Memory().Value()
	if restart.IsSidecar(container) { // never killed before the containers that it serves
		request = max(request, minMemoryRequest(pod.Spec.Containers))
	}
	request += unassignedMemoryRequest(pod)
	score := bestEffortOOMScore - bestEffortOOMScore*request/g.MemoryCapacity
	if score == bestEffortOOMScore {
		score--
	}
	return max(score, bestEffortOOMScore+guaranteedOOMScore)
}

// isNodeCritical reports whether the pod has the class system-node-critical and is critical: static pods are, others by their
// priority.
func isNodeCritical(pod *v1.Pod) bool {
	return (derive.IsCritical(pod) || podid.IsMirror(pod)) && pod.Spec.PriorityClassName == systemNodeCritical
}

func minMemoryRequest(containers []v1.Container) int64 {
	var least int64
	for i := range containers {
		if request := containers[i].Resources.Requests.Memory().Value(); i == 0 || request < least {
			least = request
		}
	}
	return least
}

// unassignedMemoryRequest returns each container's share of the pod's own memory request that containers do not request.
func unassignedMemoryRequest(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	unassigned := pod.Spec.Resources.Requests.Memory().Value() - requests.Memory().Value()
	return unassigned / int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
}

// cgroupParent returns the pod's cgroup as cgroup_parent; "" leaves it to the runtime.
func (g *Generator) cgroupParent(pod *v1.Pod, driver string) string {
	if g.CgroupParent == "" {
		return ""
	}
	return cgroup.PodName(cgroup.ParseName(g.CgroupParent), derive.QOSClass(pod), podid.UID(pod.UID)).Path(driver)
}

// UpdatedResources returns the limits of a running container with these resources in place of its own.
func (g *Generator) UpdatedResources(
	pod *v1.Pod, container *v1.Container, resources v1.ResourceRequirements,
) *runtimeapi.LinuxContainerResources {
	updated := *container
	updated.Resources = *container.Resources.DeepCopy() // it may have huge pages
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		setResource(&updated.Resources.Requests, name, resources.Requests)
		setResource(&updated.Resources.Limits, name, resources.Limits)
	}
	return g.containerResources(pod, &updated)
}

func setResource(list *v1.ResourceList, name v1.ResourceName, values v1.ResourceList) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	if quantity, found := values[name]; found {
		(*list)[name] = quantity
	} else {
		delete(*list, name)
	}
}

// SandboxUpdate returns the resources of all containers together and the overhead of the sandbox (RSZ-18).
func (g *Generator) SandboxUpdate(pod *v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return g.sandboxResources(pod), g.overhead(pod)
}
