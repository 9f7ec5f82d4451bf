package derive

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
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
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// podLimits is the same for limits.
func podLimits(pod *v1.Pod) v1.ResourceList {
	return resource.PodLimits(pod, resource.PodResourcesOptions{})
}
