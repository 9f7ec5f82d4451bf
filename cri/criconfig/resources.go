package criconfig

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/podid"
)

// Cgroup drivers.
const (
	CgroupfsDriver = "cgroupfs"
	SystemdDriver  = "systemd"
)

// Limits of the kernel, and OOM scores of the QoS classes.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144

	quotaPeriod = 100_000 // µs
	minQuota    = 1_000   // µs

	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000

	systemNodeCriticalPriority = 2_000_001_000
)

// containerResources returns the container's limits in the terms of cgroup v1. Runtimes translate them to the cgroup version
// of the machine.
func (g *Generator) containerResources(pod *v1.Pod, container *v1.Container) *runtimeapi.LinuxContainerResources {
	spec := container.Resources
	request, requested := spec.Requests[v1.ResourceCPU]
	if !requested {
		request = spec.Limits[v1.ResourceCPU]
	}
	resources := linuxResources(request, spec.Limits[v1.ResourceCPU], spec.Limits[v1.ResourceMemory])
	resources.OomScoreAdj = g.oomScoreAdj(pod, container)
	return resources
}

// overhead returns the resources of the sandbox itself, for runtimes whose sandboxes are virtual machines.
func overhead(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	cpu := pod.Spec.Overhead[v1.ResourceCPU]
	return linuxResources(cpu, cpu, pod.Spec.Overhead[v1.ResourceMemory])
}

func linuxResources(cpuRequest, cpuLimit, memoryLimit resource.Quantity) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuShares:          cpuShares(cpuRequest.MilliValue()),
		CpuQuota:           cpuQuota(cpuLimit.MilliValue()),
		CpuPeriod:          quotaPeriod,
		MemoryLimitInBytes: memoryLimit.Value(),
	}
}

func cpuShares(milliCPU int64) int64 {
	return min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares)
}

// MilliCPU returns the CPU request for CPU shares. It rounds up, since the conversion to shares rounds down.
func MilliCPU(shares int64) int64 {
	return (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
}

// cpuQuota returns the quota for a limit; 0 is no limit. The kernel rejects quotas below minQuota.
func cpuQuota(milliCPU int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*quotaPeriod/1000, minQuota)
}

// oomScoreAdj returns how early the kernel kills the container when memory runs out. Among burstable containers, the smaller
// the share of the machine's memory that a container requests, the earlier.
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
	score := bestEffortOOMScore - bestEffortOOMScore*request/g.MemoryCapacity
	return min(max(score, bestEffortOOMScore+guaranteedOOMScore), bestEffortOOMScore-1)
}

// isNodeCritical also checks the class name: a static pod has no resolved priority.
func isNodeCritical(pod *v1.Pod) bool {
	return pod.Spec.PriorityClassName == "system-node-critical" ||
		pod.Spec.Priority != nil && *pod.Spec.Priority >= systemNodeCriticalPriority
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

// podCgroup returns the pod's cgroup, <parent>/<QoS class>/pod<uid>, in the form of the driver; "" leaves it to the runtime.
// Guaranteed pods are directly below the parent.
func (g *Generator) podCgroup(pod *v1.Pod, driver string) string {
	if g.CgroupParent == "" {
		return ""
	}
	elements := cgroupElements(g.CgroupParent)
	if class := derive.QOSClass(pod); class != v1.PodQOSGuaranteed {
		elements = append(elements, strings.ToLower(string(class)))
	}
	return cgroupName(append(elements, "pod"+string(pod.UID)), driver)
}

// PodCgroups returns every cgroup that a pod with the UID may have, one for each QoS class.
func (g *Generator) PodCgroups(uid podid.UID, driver string) []string {
	if g.CgroupParent == "" {
		return nil
	}
	var names []string
	for _, class := range []string{"", "burstable", "besteffort"} {
		elements := cgroupElements(g.CgroupParent)
		if class != "" {
			elements = append(elements, class)
		}
		names = append(names, cgroupName(append(elements, "pod"+string(uid)), driver))
	}
	return names
}

func cgroupElements(parent string) []string {
	return strings.Split(strings.Trim(path.Clean(parent), "/"), "/")
}

// cgroupName joins the elements in the form of the driver. In a systemd slice name a dash separates levels, so dashes in
// elements are escaped.
func cgroupName(elements []string, driver string) string {
	if driver != SystemdDriver {
		return "/" + path.Join(elements...)
	}
	escaped := make([]string, len(elements))
	for i, element := range elements {
		escaped[i] = strings.ReplaceAll(element, "-", "_")
	}
	return strings.Join(escaped, "-") + ".slice"
}
