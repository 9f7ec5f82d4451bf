package cri

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
)

// The kernel's scales, and where each quality of service stands when memory is used up.
const (
	sharesPerCPU     = 1024
	fewestShares     = 2
	mostShares       = 262144
	quotaPeriod      = 100_000 // µs
	smallestQuota    = 1_000   // µs
	guaranteedOOM    = -997
	bestEffortOOM    = 1000
	criticalPriority = 2_000_001_000 // of system-node-critical
)

// containerResources are the container's limits in the kernel's terms. Runtimes translate them to the cgroup version
// that the machine has.
func (c *Config) containerResources(pod *v1.Pod, container *v1.Container) *runtimeapi.LinuxContainerResources {
	resources := container.Resources
	request, asked := resources.Requests[v1.ResourceCPU]
	if !asked {
		request = resources.Limits[v1.ResourceCPU]
	}
	limits := cpuAndMemory(request, resources.Limits[v1.ResourceCPU], resources.Limits[v1.ResourceMemory])
	limits.OomScoreAdj = c.oomScore(pod, container)
	return limits
}

// overhead is what the sandbox itself needs, for runtimes whose sandboxes are machines.
func overhead(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	cpu := pod.Spec.Overhead[v1.ResourceCPU]
	return cpuAndMemory(cpu, cpu, pod.Spec.Overhead[v1.ResourceMemory])
}

func cpuAndMemory(request, limit, memory resource.Quantity) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuShares:          cpuShares(request.MilliValue()),
		CpuQuota:           cpuQuota(limit.MilliValue()),
		CpuPeriod:          quotaPeriod,
		MemoryLimitInBytes: memory.Value(),
	}
}

func cpuShares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, fewestShares), mostShares)
}

// cpuQuota is 0 without a limit, and never so small that the kernel refuses it.
func cpuQuota(milli int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*quotaPeriod/1000, smallestQuota)
}

// oomScore says how soon the kernel is to kill the container when the machine's memory is used up: the less of the
// machine a burstable one has asked for, the sooner.
func (c *Config) oomScore(pod *v1.Pod, container *v1.Container) int64 {
	switch class := derive.QOSClass(pod); {
	case isNodeCritical(pod), class == v1.PodQOSGuaranteed:
		return guaranteedOOM
	case class == v1.PodQOSBestEffort || c.MemoryCapacity <= 0:
		return bestEffortOOM
	}
	asked := container.Resources.Requests.Memory().Value()
	if restart.IsSidecar(container) { // it must not be killed before those that it serves
		asked = max(asked, leastMemory(pod.Spec.Containers))
	}
	score := bestEffortOOM - bestEffortOOM*asked/c.MemoryCapacity
	return min(max(score, bestEffortOOM+guaranteedOOM), bestEffortOOM-1)
}

// isNodeCritical goes by the name too: a static pod has no other priority.
func isNodeCritical(pod *v1.Pod) bool {
	return pod.Spec.PriorityClassName == "system-node-critical" ||
		pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

func leastMemory(containers []v1.Container) int64 {
	var least int64
	for i := range containers {
		if asked := containers[i].Resources.Requests.Memory().Value(); i == 0 || asked < least {
			least = asked
		}
	}
	return least
}
