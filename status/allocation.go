package status

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// allocation is what a pod and each of its containers, by name, was granted (SM-87). Nobody changes one that is kept.
type allocation map[string]v1.ResourceRequirements

// wholePod is in the place of a container's name for what the pod was granted as a whole.
const wholePod = ""

// askedBy is all that the pod asks for.
func askedBy(spec *v1.PodSpec) allocation {
	asked := allocation{}
	for name, resources := range resourcesOf(spec) {
		asked[name] = *resources.DeepCopy()
	}
	return asked
}

// suits reports whether the pod asks for exactly this.
func (a allocation) suits(spec *v1.PodSpec) bool {
	for name, resources := range resourcesOf(spec) {
		if granted := a[name]; !equality.Semantic.DeepEqual(&granted, resources) {
			return false
		}
	}
	return true
}

// replace puts what was granted in the place of what the pod asks for.
func (a allocation) replace(spec *v1.PodSpec) {
	for name, resources := range resourcesOf(spec) {
		granted := a[name]
		*resources = *granted.DeepCopy()
	}
}

// resourcesOf are the places in which a pod asks for resources.
func resourcesOf(spec *v1.PodSpec) iter.Seq2[string, *v1.ResourceRequirements] {
	return func(yield func(string, *v1.ResourceRequirements) bool) {
		if spec.Resources != nil && !yield(wholePod, spec.Resources) {
			return
		}
		for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range containers {
				if !yield(containers[i].Name, &containers[i].Resources) {
					return
				}
			}
		}
	}
}
