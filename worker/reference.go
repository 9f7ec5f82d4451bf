package worker

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
)

// containerReference points an event to a container of the pod.
func containerReference(pod *v1.Pod, name string) *v1.ObjectReference {
	list := "containers"
	switch _, kind := plan.FindContainer(pod, name); kind {
	case derive.InitContainer, derive.SidecarContainer:
		list = "initContainers"
	case derive.EphemeralContainer:
		list = "ephemeralContainers"
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, name),
	}
}
