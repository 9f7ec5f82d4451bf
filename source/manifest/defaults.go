package manifest

import (
	v1 "k8s.io/api/core/v1"
)

// setDefaults fills in what the API server fills into a pod that is created through it, so that a static pod and its
// mirror say the same. The order of the steps matters: pod-level requests derive from those of the containers, and both
// are rounded last.
func setDefaults(pod *v1.Pod) {
	spec := &pod.Spec
	for i := range spec.Containers {
		requestLimits(&spec.Containers[i].Resources)
	}
	for i := range spec.InitContainers {
		requestLimits(&spec.InitContainers[i].Resources)
	}
	if spec.Resources != nil {
		setPodResources(spec)
	}
	setSpecDefaults(spec)
	for i := range spec.Volumes {
		setVolumeDefaults(&spec.Volumes[i])
	}
	for i := range spec.Containers {
		setContainerDefaults(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.InitContainers {
		setContainerDefaults(&spec.InitContainers[i], spec.HostNetwork)
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

func setSpecDefaults(spec *v1.PodSpec) {
	setDefault(&spec.DNSPolicy, v1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setDefault(&spec.SchedulerName, v1.DefaultSchedulerName)
	setPointer(&spec.SecurityContext, v1.PodSecurityContext{})
	setPointer(&spec.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	setPointer(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
}

// requestLimits makes a limit without a request a request as well.
func requestLimits(resources *v1.ResourceRequirements) {
	if resources.Limits != nil && resources.Requests == nil {
		resources.Requests = v1.ResourceList{}
	}
	resources.Requests = fillFrom(resources.Requests, resources.Limits, func(v1.ResourceName) bool { return true })
}

// setPodResources completes resources that the pod asks for as a whole. Huge pages are limited to what the containers are
// limited to; a request is what the containers request, or else the pod's limit.
func setPodResources(spec *v1.PodSpec) {
	pod := spec.Resources
	if len(pod.Limits) == 0 && len(pod.Requests) == 0 {
		return
	}
	pod.Limits = fillFrom(pod.Limits, limitsOf(spec), func(name v1.ResourceName) bool {
		_, requested := pod.Requests[name]
		return isHugePages(name) && !requested
	})
	if len(pod.Limits) == 0 {
		return
	}
	pod.Requests = fillFrom(pod.Requests, requestsOf(spec), func(name v1.ResourceName) bool {
		return isPodLevel(name) && mayOvercommit(name)
	})
	pod.Requests = fillFrom(pod.Requests, pod.Limits, isPodLevel)
}

// setDefault and setPointer set what was left out.
func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

func setPointer[T any](value **T, otherwise T) {
	if *value == nil {
		*value = &otherwise
	}
}
