package criconfig

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/provision/resolve"
)

// Generator generates CRI configurations for the pods of one node. Its fields are the node's settings; cri.Config documents
// them.
type Generator struct {
	LogDir        string
	ClusterDNS    []netip.Addr
	ClusterDomain string

	AllowedUnsafeSysctls []string
	SeccompDefault       bool
	SeccompDir           string
	ThermalThrottlePaths []string // of this machine's CPUs, masked like the paths that every machine has

	CgroupParent         string
	CgroupHost           cgroup.Host
	SingleProcessOOMKill bool
	NoCPUQuota           bool
	MemoryCapacity       int64
}

// SandboxConfig returns the pod's sandbox configuration without DNSConfig, which only RunPodSandbox needs. The result
// depends on the pod, the attempt and the settings alone: the CRI requires the same configuration again for every container
// of the sandbox.
func (g *Generator) SandboxConfig(pod *v1.Pod, attempt uint32, cgroupDriver string) (*runtimeapi.PodSandboxConfig, error) {
	if err := validateNames(pod); err != nil {
		return nil, err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		Labels:       podLabels(pod),
		Annotations:  pod.Annotations,
		LogDirectory: g.PodLogDir(pod),
		PortMappings: portMappings(pod),
	}
	if !pod.Spec.HostNetwork || pod.Spec.HostnameOverride != nil {
		hostname, err := g.kernelHostname(pod)
		if err != nil {
			return nil, err
		}
		config.Hostname = hostname
	}
	security, err := sandboxSecurityContext(pod)
	if err != nil {
		return nil, err
	}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent:    g.cgroupParent(pod, cgroupDriver),
		SecurityContext: security,
		Sysctls:         sysctls(pod),
		Overhead:        g.overhead(pod),
		Resources:       g.sandboxResources(pod),
	}
	return config, nil
}

// ContainerInputs are the parts of a container's configuration that are not in its spec.
type ContainerInputs struct {
	ImageRef string // as returned by the runtime
	User     ImageUser
	Env      []v1.EnvVar
	Mounts   []*runtimeapi.Mount
	TargetID string // container whose process namespace it joins, see TargetContainer; "" for none
}

// ContainerConfig returns the configuration of one container instance.
func (g *Generator) ContainerConfig(pod *v1.Pod, start plan.Start, inputs ContainerInputs) (*runtimeapi.ContainerConfig, error) {
	container := start.Container
	security, err := g.containerSecurityContext(pod, container, inputs.User)
	if err != nil {
		return nil, err
	}
	security.NamespaceOptions = namespaceOptions(pod, inputs.TargetID)
	annotations, err := containerAnnotations(pod, start)
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(container)
	if err != nil {
		return nil, err
	}
	values := EnvValues(inputs.Env)
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: uint32(start.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: inputs.ImageRef, UserSpecifiedImage: container.Image},
		Command:     expandAll(container.Command, values),
		Args:        expandAll(container.Args, values),
		WorkingDir:  container.WorkingDir,
		Envs:        keyValues(inputs.Env),
		Mounts:      inputs.Mounts,
		Labels:      containerLabels(pod, container.Name),
		Annotations: annotations,
		LogPath:     ContainerLogPath(container.Name, start.RestartCount),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       g.containerResources(pod, container),
			SecurityContext: security,
		},
	}, nil
}

// PodLogDir returns the directory of the pod's logs.
func (g *Generator) PodLogDir(pod *v1.Pod) string {
	return filepath.Join(g.LogDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// portMappings returns the host ports that the runtime forwards. Pods in the host network need none.
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

func protocol(name v1.Protocol) runtimeapi.Protocol {
	switch name {
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
	values := map[string]string{}
	for _, sysctl := range pod.Spec.SecurityContext.Sysctls {
		values[sysctl.Name] = sysctl.Value
	}
	return values
}

// stopSignal returns the signal that stops the container. The runtime's default is the signal of the image.
func stopSignal(container *v1.Container) (runtimeapi.Signal, error) {
	if container.Lifecycle == nil || container.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT, nil
	}
	name := string(*container.Lifecycle.StopSignal)
	enumName := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	signal, known := runtimeapi.Signal_value[enumName]
	if !known {
		return 0, fmt.Errorf("lifecycle.stopSignal: unknown signal %q", name)
	}
	return runtimeapi.Signal(signal), nil
}

// TargetContainer returns the ID of the newest running container that an ephemeral container targets, or "" if it targets
// none. containers are the pod's.
func TargetContainer(pod *v1.Pod, name string, containers []*runtimeapi.Container) (string, error) {
	at := slices.IndexFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
	if at < 0 || pod.Spec.EphemeralContainers[at].TargetContainerName == "" {
		return "", nil
	}
	target := pod.Spec.EphemeralContainers[at].TargetContainerName
	var newest *runtimeapi.Container
	for _, container := range containers {
		if container.GetMetadata().GetName() == target && container.State == runtimeapi.ContainerState_CONTAINER_RUNNING &&
			(newest == nil || container.CreatedAt > newest.CreatedAt) {
			newest = container
		}
	}
	if newest == nil {
		return "", fmt.Errorf("targetContainerName: container %s is not running", target)
	}
	return newest.Id, nil
}

func keyValues(env []v1.EnvVar) []*runtimeapi.KeyValue {
	var all []*runtimeapi.KeyValue
	for _, variable := range env {
		all = append(all, &runtimeapi.KeyValue{Key: variable.Name, Value: []byte(variable.Value)})
	}
	return all
}

// EnvValues returns the variables by name. The last value of a name wins.
func EnvValues(env []v1.EnvVar) map[string]string {
	values := map[string]string{}
	for _, variable := range env {
		values[variable.Name] = variable.Value
	}
	return values
}

// expand replaces each $(NAME) by its value. References to undefined variables stay as they are and are returned.
func expand(text string, values map[string]string) (expanded string, undefined []string) {
	expanded = resolve.Expand(text, func(name string) (string, bool) {
		value, defined := values[name]
		if !defined {
			undefined = append(undefined, name)
		}
		return value, defined
	})
	return expanded, undefined
}

func expandAll(texts []string, values map[string]string) []string {
	var all []string
	for _, text := range texts {
		expanded, _ := expand(text, values)
		all = append(all, expanded)
	}
	return all
}
