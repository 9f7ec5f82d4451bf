package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// isHugePages reports whether the resource is memory in pages of a certain size, such as hugepages-2Mi.
func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isNative reports whether the resource is Kubernetes' own. A name without a domain is.
func isNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// mayOvercommit reports whether a request may be lower than its limit.
func mayOvercommit(name v1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

// isPodLevel reports whether the resource may be asked for by a pod as a whole.
func isPodLevel(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || isHugePages(name)
}

// requestsOf and limitsOf are what all containers need together, at the time when they need most.
func requestsOf(spec *v1.PodSpec) v1.ResourceList {
	return helpers.AggregateContainerRequests(&v1.Pod{Spec: *spec}, helpers.PodResourcesOptions{})
}

func limitsOf(spec *v1.PodSpec) v1.ResourceList {
	return helpers.AggregateContainerLimits(&v1.Pod{Spec: *spec}, helpers.PodResourcesOptions{})
}

// fillFrom copies the quantities that list has and target lacks, for the names that pass, and returns the target.
func fillFrom(target, list v1.ResourceList, pass func(v1.ResourceName) bool) v1.ResourceList {
	for name, quantity := range list {
		if _, exists := target[name]; exists || !pass(name) {
			continue
		}
		if target == nil {
			target = v1.ResourceList{}
		}
		target[name] = quantity.DeepCopy()
	}
	return target
}

// roundUp brings every quantity to thousandths, the finest that the API keeps.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}
