package derive

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass is the pod's quality of service: the one that it was given at creation, for it never changes, else computed
// from its resources (PH-48).
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var asked demand
	if whole := pod.Spec.Resources; whole != nil {
		asked.add(whole)
		asked.everyLimit = len(whole.Limits) == 0 || hasBoth(whole.Limits)
	} else {
		asked.everyLimit = true
		asked.addEach(pod.Spec.Containers)
		asked.addEach(pod.Spec.InitContainers)
	}
	return asked.class()
}

// demand is what a pod's containers ask for in sum, of CPU and memory: nothing else counts.
type demand struct {
	cpu, memory struct{ request, limit resource.Quantity }
	everyLimit  bool // every container limits both
}

func (d *demand) addEach(containers []v1.Container) {
	for i := range containers {
		resources := &containers[i].Resources
		d.add(resources)
		d.everyLimit = d.everyLimit && hasBoth(resources.Limits)
	}
}

func (d *demand) add(r *v1.ResourceRequirements) {
	addPositive(&d.cpu.request, r.Requests, v1.ResourceCPU)
	addPositive(&d.cpu.limit, r.Limits, v1.ResourceCPU)
	addPositive(&d.memory.request, r.Requests, v1.ResourceMemory)
	addPositive(&d.memory.limit, r.Limits, v1.ResourceMemory)
}

func addPositive(total *resource.Quantity, list v1.ResourceList, name v1.ResourceName) {
	if quantity, ok := list[name]; ok && quantity.Sign() > 0 {
		total.Add(quantity)
	}
}

func hasBoth(limits v1.ResourceList) bool {
	cpu, memory := limits[v1.ResourceCPU], limits[v1.ResourceMemory]
	return cpu.Sign() > 0 && memory.Sign() > 0
}

func (d *demand) class() v1.PodQOSClass {
	cpu, memory := &d.cpu, &d.memory
	if cpu.request.IsZero() && cpu.limit.IsZero() && memory.request.IsZero() && memory.limit.IsZero() {
		return v1.PodQOSBestEffort
	}
	if d.everyLimit && cpu.request.Cmp(cpu.limit) == 0 && memory.request.Cmp(memory.limit) == 0 {
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
