package cri

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/plan"
)

// given is what a container gets beside its spec.
type given struct {
	image     string // the runtime's reference of it
	user      imageUser
	variables []v1.EnvVar
	mounts    []*runtimeapi.Mount
	target    string // the container whose processes it sees, or ""
}

// containerConfig is the container in the runtime's terms.
func (c *Config) containerConfig(pod *v1.Pod, start plan.Start, given given) (*runtimeapi.ContainerConfig, error) {
	container := start.Container
	security, err := c.containerSecurity(pod, container, given.user)
	if err != nil {
		return nil, err
	}
	security.NamespaceOptions = namespaces(pod, given.target)
	annotations, err := containerAnnotations(pod, start)
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(container)
	if err != nil {
		return nil, err
	}
	values := valuesOf(given.variables)
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: uint32(start.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: given.image, UserSpecifiedImage: container.Image},
		Command:     expandAll(container.Command, values),
		Args:        expandAll(container.Args, values),
		WorkingDir:  container.WorkingDir,
		Envs:        environment(given.variables),
		Mounts:      given.mounts,
		Labels:      containerLabels(pod, container.Name),
		Annotations: annotations,
		LogPath:     containerLog(container.Name, start.RestartCount),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       c.containerResources(pod, container),
			SecurityContext: security,
		},
	}, nil
}

func environment(variables []v1.EnvVar) []*runtimeapi.KeyValue {
	var all []*runtimeapi.KeyValue
	for _, variable := range variables {
		all = append(all, &runtimeapi.KeyValue{Key: variable.Name, Value: []byte(variable.Value)})
	}
	return all
}

func valuesOf(variables []v1.EnvVar) map[string]string {
	values := map[string]string{}
	for _, variable := range variables {
		values[variable.Name] = variable.Value
	}
	return values
}
