package stream

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// runningContainer returns the running instance of a container, be it a regular, an init or an ephemeral one (STR-2).
func runningContainer(pod *observed.Pod, name string) (observed.ContainerID, bool) {
	for _, container := range pod.Containers {
		if container.Name == name && container.State == observed.Running {
			return container.ID, true
		}
	}
	return observed.ContainerID{}, false
}

// readySandbox returns the sandbox whose network the pod has now (STR-3).
func readySandbox(pod *observed.Pod) (string, bool) {
	sandbox, found := pod.NewestSandbox()
	return sandbox.ID, found && sandbox.Ready
}

// hasTTY reports whether a container was created with a terminal, and whether the pod has the container at all. A container that is
// running has a terminal or not, whatever a request asks for (STR-4).
func hasTTY(pod *v1.Pod, name string) (tty, found bool) {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return pod.Spec.Containers[i].TTY, true
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return pod.Spec.InitContainers[i].TTY, true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return pod.Spec.EphemeralContainers[i].TTY, true
		}
	}
	return false, false
}

// fullName is how the kubelet's messages name a pod.
func fullName(pod *v1.Pod) string { return pod.Name + "_" + pod.Namespace }
