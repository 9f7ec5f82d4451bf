package runtimesuite

import (
	"context"
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// Provisioner gives containers the variables and folders that their spec names outright: values and host paths.
type Provisioner struct{}

// Path is the volume's hostPath.
func (Provisioner) Path(pod *v1.Pod, volume string) (string, error) {
	for _, one := range pod.Spec.Volumes {
		if one.Name == volume && one.HostPath != nil {
			return one.HostPath.Path, nil
		}
	}
	return "", fmt.Errorf("volume %s of pod %s has no hostPath", volume, pod.Name)
}

// Environment is the container's env as it stands.
func (Provisioner) Environment(_ context.Context, _ *v1.Pod, container *v1.Container, _ []netip.Addr) ([]v1.EnvVar, error) {
	return container.Env, nil
}
