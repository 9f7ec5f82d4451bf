package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

func isSidecar(initContainer *v1.Container) bool {
	policy := initContainer.RestartPolicy
	return policy != nil && *policy == v1.ContainerRestartPolicyAlways
}

// requestsOf and limitsOf say which list of a container to add up.
func requestsOf(c *v1.Container) v1.ResourceList { return c.Resources.Requests }
func limitsOf(c *v1.Container) v1.ResourceList   { return c.Resources.Limits }

// aggregate is what all containers need together: those that run side by side are added, and an init container needs its
// own share beside the sidecars before it, at a time when no other container runs.
func aggregate(spec *v1.PodSpec, listOf func(*v1.Container) v1.ResourceList) v1.ResourceList {
	total := v1.ResourceList{}
	for i := range spec.Containers {
		addTo(total, listOf(&spec.Containers[i]))
	}
	sidecars, starting := v1.ResourceList{}, v1.ResourceList{}
	for i := range spec.InitContainers {
		list := listOf(&spec.InitContainers[i])
		if isSidecar(&spec.InitContainers[i]) {
			addTo(total, list)
			addTo(sidecars, list)
			raiseTo(starting, sidecars)
			continue
		}
		together := v1.ResourceList{}
		addTo(together, list)
		addTo(together, sidecars)
		raiseTo(starting, together)
	}
	raiseTo(total, starting)
	return total
}

func addTo(total, list v1.ResourceList) {
	for name, quantity := range list {
		sum := total[name].DeepCopy()
		sum.Add(quantity)
		total[name] = sum
	}
}

func raiseTo(total, list v1.ResourceList) {
	for name, quantity := range list {
		if current, exists := total[name]; !exists || quantity.Cmp(current) > 0 {
			total[name] = quantity.DeepCopy()
		}
	}
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
