package cri

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/podid"
)

// create makes the container. list are those that the pod has. release is to be called when the container runs, or will
// not; it is never nil.
func (s *starting) create(ctx context.Context, list []*runtimeapi.Container) (id string, release func() error, err error) {
	release = func() error { return nil }
	image, err := s.ensureImage(ctx, s.pod, s.container, s.place.config)
	if err != nil {
		return "", release, err
	}
	config, release, err := s.configure(ctx, image, list)
	if err != nil {
		return "", release, failed(reasonContainerConfig, err)
	}
	if err := s.config.makeLogFolder(filepath.Dir(s.logFile())); err != nil {
		return "", release, failed(reasonContainerConfig, fmt.Errorf("making the folder for the logs: %w", err))
	}
	answer, err := s.pods.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.place.id, Config: config, SandboxConfig: s.place.config,
	})
	if err == nil {
		s.events.normal(eventCreated, "Container created")
		return answer.ContainerId, release, s.checkSignal(ctx, answer.ContainerId, config.StopSignal)
	}
	// The runtime may have made it and not said so.
	if list, lookErr := s.containersOf(ctx, podid.UID(s.pod.UID)); lookErr == nil {
		if made := s.find(list); made != nil && made.State == runtimeapi.ContainerState_CONTAINER_CREATED {
			return made.Id, release, nil
		}
	}
	return "", release, failed(reasonCreateContainer, err)
}

// checkSignal refuses a stop signal that the runtime is too old to know: it would be ignored in silence.
func (s *starting) checkSignal(ctx context.Context, id string, signal runtimeapi.Signal) error {
	if signal == runtimeapi.Signal_RUNTIME_DEFAULT {
		return nil
	}
	answer, err := s.pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil || answer.GetStatus().GetStopSignal() == signal {
		return err
	}
	err = s.removeContainer(ctx, id)
	return failed(reasonContainerConfig, errors.Join(errors.New("lifecycle.stopSignal: the runtime is too old to know it"), err))
}

// configure gathers what the container is given, and says all in the runtime's terms.
func (s *starting) configure(ctx context.Context, image string, list []*runtimeapi.Container) (
	config *runtimeapi.ContainerConfig, release func() error, err error,
) {
	release = func() error { return nil }
	given := given{image: image}
	if given.target, err = targetOf(s.pod, s.container.Name, list); err != nil {
		return nil, release, err
	}
	if needsImageUser(s.pod, s.container) {
		if given.user, err = s.userOf(ctx, s.container.Image); err != nil {
			return nil, release, err
		}
	}
	if given.variables, err = s.config.Provisioner.Environment(ctx, s.pod, s.container, s.place.ips); err != nil {
		return nil, release, err
	}
	mounts, release, err := s.mountVolumes(ctx, s.pod, s.container, valuesOf(given.variables))
	if err != nil {
		return nil, release, err
	}
	own, err := s.ownMounts(s.pod, s.start, s.place.ips)
	if err != nil {
		return nil, release, err
	}
	given.mounts = append(mounts, own...)
	config, err = s.config.containerConfig(s.pod, s.start, given)
	return config, release, err
}
