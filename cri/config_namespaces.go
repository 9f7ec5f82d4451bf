package cri

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespaces says what a container shares: the network and IPC with its pod, processes with nobody, unless the pod asks
// for more. target is the container whose processes an ephemeral one is to see, or "".
func namespaces(pod *v1.Pod, target string) *runtimeapi.NamespaceOption {
	options := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Ipc:     runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		options.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		options.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		options.Pid = runtimeapi.NamespaceMode_POD
	case target != "":
		options.Pid = runtimeapi.NamespaceMode_TARGET
		options.TargetId = target
	}
	return options
}

// targetOf is the newest running container that an ephemeral one is to look into; "" when it is to look into none.
func targetOf(pod *v1.Pod, name string, list []*runtimeapi.Container) (string, error) {
	target := ""
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			target = pod.Spec.EphemeralContainers[i].TargetContainerName
		}
	}
	if target == "" {
		return "", nil
	}
	var newest *runtimeapi.Container
	for _, c := range list {
		if c.GetMetadata().GetName() == target && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING &&
			(newest == nil || c.CreatedAt > newest.CreatedAt) {
			newest = c
		}
	}
	if newest == nil {
		return "", fmt.Errorf("targetContainerName: container %s does not run", target)
	}
	return newest.Id, nil
}
