package cri

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/internal/restart"
)

// sandboxConfig is the pod's environment in the runtime's terms. It must come out the same for every container of a
// sandbox, so it depends on the pod, the attempt and the configuration alone; the DNS part is for its making only.
func (c *Config) sandboxConfig(pod *v1.Pod, attempt uint32, driver string) (*runtimeapi.PodSandboxConfig, error) {
	if err := checkNames(pod); err != nil {
		return nil, err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		Labels:       podLabels(pod),
		Annotations:  pod.Annotations,
		LogDirectory: c.podLogDir(pod),
		PortMappings: portMappings(pod),
	}
	if !pod.Spec.HostNetwork || pod.Spec.HostnameOverride != nil {
		hostname, err := c.kernelHostname(pod)
		if err != nil {
			return nil, err
		}
		config.Hostname = hostname
	}
	security, err := sandboxSecurity(pod)
	if err != nil {
		return nil, err
	}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent:    c.podCgroup(pod, driver),
		SecurityContext: security,
		Sysctls:         sysctls(pod),
		Overhead:        overhead(pod),
	}
	return config, nil
}

// portMappings are the ports that the node forwards. In the node's network there is nothing to forward, and a port
// without a number on the node is mere documentation.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	if pod.Spec.HostNetwork {
		return nil
	}
	var mappings []*runtimeapi.PortMapping
	add := func(ports []v1.ContainerPort) {
		for _, port := range ports {
			if port.HostPort > 0 {
				mappings = append(mappings, &runtimeapi.PortMapping{
					Protocol: protocol(port.Protocol), ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
				})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if restart.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(pod.Spec.InitContainers[i].Ports)
		}
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Ports)
	}
	return mappings
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

func sysctls(pod *v1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	set := map[string]string{}
	for _, sysctl := range pod.Spec.SecurityContext.Sysctls {
		set[sysctl.Name] = sysctl.Value
	}
	return set
}
