package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
)

// Find is the pod's container of that name and its kind, or nil.
func FindContainer(pod *v1.Pod, name string) (*v1.Container, derive.ContainerKind) {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c, derive.RegularContainer
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c, kindOfInit(c)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := ephemeral(&pod.Spec.EphemeralContainers[i]); c.Name == name {
			return c, derive.EphemeralContainer
		}
	}
	return nil, ""
}

func kindOfInit(c *v1.Container) derive.ContainerKind {
	if restart.IsSidecar(c) {
		return derive.SidecarContainer
	}
	return derive.InitContainer
}

// ephemeral reads an ephemeral container as a container: the API keeps their fields alike for this.
func ephemeral(c *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&c.EphemeralContainerCommon)
}
