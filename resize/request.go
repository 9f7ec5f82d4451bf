package resize

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Operation is one requested change of a container's resources, with the labels of the kubelet's metric (RSZ-29).
type Operation struct {
	Resource    string // cpu, memory
	Requirement string // requests, limits
	Kind        string // add, remove, increase, decrease
}

// Operations returns what an update of a pod changes. isRequested reports whether the update is a resize at all: a change of the
// pod's own resources is one, too (RSZ-3). A container that only one of the pods has is not resized (BUG-125).
func Operations(before, after *v1.Pod) (operations []Operation, isRequested bool) {
	previous := map[string]v1.ResourceRequirements{}
	for _, container := range slices.Concat(before.Spec.InitContainers, before.Spec.Containers) {
		previous[container.Name] = container.Resources
	}
	for _, container := range slices.Concat(after.Spec.InitContainers, after.Spec.Containers) {
		if old, found := previous[container.Name]; found {
			operations = append(operations, containerOperations(old, container.Resources)...)
		}
	}
	return operations, len(operations) > 0 || !equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources)
}

func containerOperations(before, after v1.ResourceRequirements) (operations []Operation) {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		for requirement, lists := range map[string][2]v1.ResourceList{
			"requests": {before.Requests, after.Requests}, "limits": {before.Limits, after.Limits},
		} {
			if kind := operationKind(lists[0][name], lists[1][name]); kind != "" {
				operations = append(operations, Operation{Resource: string(name), Requirement: requirement, Kind: kind})
			}
		}
	}
	return operations
}

func operationKind(before, after resource.Quantity) string {
	switch comparison := after.Cmp(before); {
	case comparison == 0:
		return ""
	case before.IsZero():
		return "add"
	case after.IsZero():
		return "remove"
	case comparison < 0:
		return "decrease"
	default:
		return "increase"
	}
}

// Message returns the text of an event (RSZ-11): "Pod resize <what>: " and the resources as JSON. Resources of the pod itself
// are included; the kubelet leaves them out.
func Message(what string, pod *v1.Pod, generation int64, failure string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	summary := struct {
		Resources      *v1.ResourceRequirements `json:"resources,omitempty"`
		InitContainers []container              `json:"initContainers,omitempty"`
		Containers     []container              `json:"containers,omitempty"`
		Generation     int64                    `json:"generation"`
		Error          string                   `json:"error,omitempty"`
	}{Resources: pod.Spec.Resources, Generation: generation, Error: failure}
	for i := range pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{pod.Spec.InitContainers[i].Name, pod.Spec.InitContainers[i].Resources})
	}
	for i := range pod.Spec.Containers {
		summary.Containers = append(summary.Containers, container{pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Resources})
	}
	encoded, err := json.Marshal(summary)
	if err != nil {
		return "Pod resize " + what
	}
	return fmt.Sprintf("Pod resize %s: %s", what, encoded)
}
