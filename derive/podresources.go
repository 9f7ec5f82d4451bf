package derive

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/restart"
)

// podResources are the resources of the pod as a whole: while it runs those that its own cgroup enforces, else those
// that were allocated. The API server's word decides whether it runs, as it does in the kubelet.
func (d *derivation) podResources() *v1.ResourceRequirements {
	resources := d.Pod.Spec.Resources.DeepCopy()
	if resources == nil {
		resources = &v1.ResourceRequirements{}
	}
	if d.Pod.Status.Phase != v1.PodRunning {
		resources.Requests = podRequests(d.Pod)
		resources.Limits = podLimits(d.Pod)
		return resources
	}
	if resources.Requests == nil {
		resources.Requests = v1.ResourceList{}
	}
	if resources.Limits == nil {
		resources.Limits = v1.ResourceList{}
	}
	before := &v1.ResourceRequirements{}
	if d.previous.Phase == v1.PodRunning && d.previous.Resources != nil {
		before = d.previous.Resources
	}
	if _, set := resources.Requests[v1.ResourceMemory]; !set {
		if total, ok := podRequests(d.Pod)[v1.ResourceMemory]; ok {
			resources.Requests[v1.ResourceMemory] = total
		}
	}
	now := enforced(d.seen.Resources)
	show(resources.Requests, v1.ResourceCPU, now.cpuRequest, before.Requests, minMilliCPURequest)
	show(resources.Requests, v1.ResourceMemory, nil, before.Requests, noMinimum) // no cgroup holds a memory request
	show(resources.Limits, v1.ResourceCPU, now.cpuLimit, before.Limits, minMilliCPULimit)
	show(resources.Limits, v1.ResourceMemory, now.memoryLimit, before.Limits, noMinimum)
	return resources
}

// podRequests is what the scheduler counts for the pod: its containers, overridden by what the pod asks for as a whole,
// with its overhead.
func podRequests(pod *v1.Pod) v1.ResourceList {
	total := aggregate(&pod.Spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests })
	if pod.Spec.Resources != nil {
		override(total, pod.Spec.Resources.Requests)
	}
	add(total, pod.Spec.Overhead)
	return total
}

// podLimits is the same for limits. Overhead raises only limits that exist: without one there is nothing to raise.
func podLimits(pod *v1.Pod) v1.ResourceList {
	total := aggregate(&pod.Spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits })
	if pod.Spec.Resources != nil {
		override(total, pod.Spec.Resources.Limits)
	}
	for name, extra := range pod.Spec.Overhead {
		if limit, ok := total[name]; ok && !limit.IsZero() {
			total[name] = sum(limit, extra)
		}
	}
	return total
}

// aggregate is the most that the pod needs at one time: all regular containers and sidecars together, or one init
// container beside the sidecars that were started before it.
func aggregate(spec *v1.PodSpec, of func(*v1.ResourceRequirements) v1.ResourceList) v1.ResourceList {
	total, sidecars, peak := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range spec.Containers {
		add(total, of(&spec.Containers[i].Resources))
	}
	for i := range spec.InitContainers {
		needs := of(&spec.InitContainers[i].Resources)
		if restart.IsSidecar(&spec.InitContainers[i]) {
			add(total, needs)
			add(sidecars, needs)
			raise(peak, sidecars)
			continue
		}
		beside := v1.ResourceList{}
		add(beside, needs)
		add(beside, sidecars)
		raise(peak, beside)
	}
	raise(total, peak)
	return total
}

// override replaces what a pod may ask for as a whole: CPU, memory and huge pages.
func override(total, whole v1.ResourceList) {
	for name, quantity := range whole {
		hugePages := strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
		if hugePages || name == v1.ResourceCPU || name == v1.ResourceMemory {
			total[name] = quantity
		}
	}
}

func add(total, more v1.ResourceList) {
	for name, quantity := range more {
		total[name] = sum(total[name], quantity)
	}
}

func raise(total, least v1.ResourceList) {
	for name, quantity := range least {
		if have, ok := total[name]; !ok || quantity.Cmp(have) > 0 {
			total[name] = quantity
		}
	}
}

// sum changes neither of its arguments, although copies of a Quantity may share memory.
func sum(a, b resource.Quantity) resource.Quantity {
	total := a.DeepCopy()
	total.Add(b)
	return total
}
