package cgroup

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/heraldnode/herald/derive"
)

// Limits of the kernel.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144

	// QuotaPeriod is the period in microseconds over which the kernel enforces CPU limits.
	QuotaPeriod = 100_000
	minQuota    = 1_000 // µs

	unlimitedHugePages = 1 << 62
)

// ResourcePIDs is the kubelet's name for process IDs in reservations.
const ResourcePIDs v1.ResourceName = "pid"

// Resources are the values of a cgroup, in the terms of cgroup version 1. A nil value is left as the kernel has it.
type Resources struct {
	CPUShares *int64
	CPUQuota  *int64 // µs per QuotaPeriod
	Memory    *int64 // limit in bytes
	PIDs      *int64
	CPUs      string // list of CPUs; "" leaves it
	// HugePages limits the bytes in huge pages of each size. Sizes that are not listed are limited to 0.
	HugePages map[int64]int64
}

// PodResources returns the values of a pod's cgroup (CGR-11, CGR-12, CGR-13). A pidsLimit above 0 limits the pod's
// processes (CGR-14).
func PodResources(pod *v1.Pod, pidsLimit int64) Resources {
	options := resourcehelper.PodResourcesOptions{}
	requests := resourcehelper.PodRequests(pod, options)
	cpuLimited, memoryLimited := true, true // every container has a limit
	options.ContainerFn = func(limits v1.ResourceList, _ resourcehelper.ContainerType) {
		cpuLimited = cpuLimited && !limits.Cpu().IsZero()
		memoryLimited = memoryLimited && !limits.Memory().IsZero()
	}
	limits := resourcehelper.PodLimits(pod, options)
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		cpuLimited = cpuLimited || !pod.Spec.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited || !pod.Spec.Resources.Limits.Memory().IsZero()
	}
	class := derive.QOSClass(pod)
	result := Resources{CPUShares: new(int64(minShares)), HugePages: hugePages(requests)}
	if class != v1.PodQOSBestEffort {
		result.CPUShares = new(CPUShares(requests.Cpu().MilliValue()))
	}
	if class == v1.PodQOSGuaranteed || class == v1.PodQOSBurstable && cpuLimited {
		result.CPUQuota = new(CPUQuota(limits.Cpu().MilliValue()))
	}
	if class == v1.PodQOSGuaranteed || class == v1.PodQOSBurstable && memoryLimited {
		result.Memory = new(limits.Memory().Value())
	}
	if pidsLimit > 0 {
		result.PIDs = new(pidsLimit)
	}
	return result
}

// QOSResources returns the values of the cgroup of a QoS class. pods are the active pods of all classes; only burstable ones
// count (CGR-9).
func QOSResources(class v1.PodQOSClass, pods []*v1.Pod, hugePageSizes []int64) Resources {
	result := Resources{CPUShares: new(int64(minShares)), HugePages: map[int64]int64{}}
	if class == v1.PodQOSBurstable {
		var milliCPU int64
		for _, pod := range pods {
			if derive.QOSClass(pod) == v1.PodQOSBurstable {
				requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
				milliCPU += requests.Cpu().MilliValue()
			}
		}
		result.CPUShares = new(CPUShares(milliCPU))
	}
	for _, size := range hugePageSizes {
		result.HugePages[size] = unlimitedHugePages
	}
	return result
}

// NodeResources returns the values of the cgroup of all pods. available is what pods may use together: the node's
// capacity, or what remains of it after reservations (CGR-8).
func NodeResources(available v1.ResourceList) Resources {
	result := Resources{HugePages: hugePages(available)}
	if cpu, found := available[v1.ResourceCPU]; found {
		result.CPUShares = new(CPUShares(cpu.MilliValue()))
	}
	if memory, found := available[v1.ResourceMemory]; found {
		result.Memory = new(memory.Value())
	}
	if pids, found := available[ResourcePIDs]; found {
		result.PIDs = new(pids.Value())
	}
	return result
}

// hugePages returns the bytes in huge pages of each size.
func hugePages(list v1.ResourceList) map[int64]int64 {
	sizes := map[int64]int64{}
	for name, quantity := range list {
		if size, isHugePage := HugePageSize(name); isHugePage {
			sizes[size] += quantity.Value()
		}
	}
	return sizes
}

// HugePageSize returns the page size in bytes of a resource such as hugepages-2Mi.
func HugePageSize(name v1.ResourceName) (int64, bool) {
	text, isHugePage := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !isHugePage {
		return 0, false
	}
	size, err := resource.ParseQuantity(text)
	return size.Value(), err == nil
}

// CPUShares returns the CPU shares of a CPU request (CGR-15).
func CPUShares(milliCPU int64) int64 {
	return min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares)
}

// MilliCPU returns the CPU request for CPU shares. It rounds up, since the conversion to shares rounds down.
func MilliCPU(shares int64) int64 {
	return (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
}

// CPUQuota returns the quota per QuotaPeriod of a CPU limit; 0 is no limit. The kernel rejects smaller quotas than 1 ms
// (CGR-15).
func CPUQuota(milliCPU int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*QuotaPeriod/1000, minQuota)
}

// SystemdCPUQuota returns the quota per QuotaPeriod that systemd applies instead of quota: it rounds up to whole percents of a
// CPU. The kubelet writes rounded quotas too (CGR-15).
func SystemdCPUQuota(quota int64) int64 {
	const percent = QuotaPeriod / 100
	if quota <= 0 {
		return quota // no limit
	}
	return (quota + percent - 1) / percent * percent
}

// CPUWeight returns the weight of cgroup version 2 for CPU shares, by the kubelet's formula for its own cgroups (CGR-16).
func CPUWeight(shares int64) int64 {
	if shares >= maxShares {
		return 10_000
	}
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}
