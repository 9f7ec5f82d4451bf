package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// StartContainer pulls the image according to its policy, creates and starts the container in the sandbox and runs its
// postStart hook. Name and restart count identify the container: a retry after a lost response continues with the first one
// and never starts a second (F22).
func (r *Runtime) StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error {
	containerType := containerType(start.Kind)
	r.metrics.startedContainers.WithLabelValues(containerType).Inc()
	s := &containerStart{
		Runtime: r, pod: pod, container: start.Container, start: start, events: r.containerEvents(pod, start.Container.Name),
	}
	err := s.run(ctx, sandboxID)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cri: start container %s of pod %s: %w", start.Container.Name, criconfig.FormatPod(pod), err)
	}
	var startErr *startError
	if !errors.As(err, &startErr) {
		startErr = newStartError(reasonCreateContainer, err)
	}
	r.metrics.startedContainerErrors.WithLabelValues(containerType, startErr.reason).Inc()
	switch {
	case startErr.reason == reasonPostStartHook: // has its own event
	case startErr.hasEvent:
		s.events.warn(eventFailed, "Error: "+startErr.reason)
	default:
		s.events.warn(eventFailed, "Error: "+startErr.message)
	}
	return startErr
}

func containerType(kind derive.ContainerKind) string {
	switch kind {
	case derive.InitContainer, derive.SidecarContainer:
		return "init_container"
	case derive.EphemeralContainer:
		return "ephemeral_container"
	default:
		return "container"
	}
}

// containerStart is one call of StartContainer:
//
//	image -> created -> running -> postStart hook done
//	                       ^
//	                       a retry after a lost response continues here
type containerStart struct {
	*Runtime
	pod       *v1.Pod
	container *v1.Container
	start     plan.Start
	events    *containerEvents
	sandbox   *sandboxInfo
	image     *runtimeapi.Image // nil until ensureImage has read it
}

func (s *containerStart) run(ctx context.Context, sandboxID string) error {
	err := s.Unsupported(s.pod) // an ephemeral container may be newer than the sandbox
	if err != nil {
		return newStartError(reasonContainerConfig, err)
	}
	var containers []*runtimeapi.Container
	err = concurrently(
		func() (err error) { s.sandbox, err = s.sandboxInfo(ctx, s.pod, sandboxID); return err },
		func() (err error) { containers, err = s.listContainers(ctx, podid.UID(s.pod.UID)); return err },
	)
	if err != nil {
		return err
	}
	if existing := s.findInstance(containers); existing != nil {
		if existing.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			return s.resume(ctx, existing)
		}
		// It never ran, and the pod may have changed since.
		if err := s.removeContainer(ctx, podid.UID(s.pod.UID), existing.Id); err != nil {
			return err
		}
	}
	if err := s.killExited(ctx, podid.UID(s.pod.UID), containers); err != nil {
		return err
	}
	id, unmount, err := s.create(ctx, containers)
	defer func() {
		if err := unmount(); err != nil {
			s.logger().Warn("Failed to unmount subPath, it stays until the pod is removed", "err", err)
		}
	}()
	if err != nil {
		return err
	}
	s.events.id = id
	if err := s.startCreated(ctx, id); err != nil {
		return err
	}
	return s.runPostStart(ctx, id)
}

func (s *containerStart) logger() *slog.Logger {
	return s.podLogger(s.pod).With("container", s.container.Name)
}

// findInstance returns this instance from the pod's containers, or nil.
func (s *containerStart) findInstance(containers []*runtimeapi.Container) *runtimeapi.Container {
	for _, container := range containers {
		if container.PodSandboxId == s.sandbox.id && container.GetMetadata().GetName() == s.container.Name &&
			container.GetMetadata().GetAttempt() == uint32(s.start.RestartCount) {
			return container
		}
	}
	return nil
}

// resume continues with a container that an earlier call started. Its hook may have run already: hooks run at least once.
func (s *containerStart) resume(ctx context.Context, existing *runtimeapi.Container) error {
	switch existing.State {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return s.runPostStart(ctx, existing.Id)
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return nil // started and exited; the caller decides about a restart
	default:
		return fmt.Errorf("container %s is in an unknown state", existing.Id)
	}
}

// create creates the container. containers are the pod's. The caller calls unmount, which is never nil, once the container
// runs or has failed to.
func (s *containerStart) create(ctx context.Context, containers []*runtimeapi.Container) (
	id string, unmount func() error, err error,
) {
	unmount = func() error { return nil }
	release, err := s.imageHolds.hold(ctx, s.container.Image)
	if err != nil {
		return "", unmount, err
	}
	defer release()
	imageRef, err := s.ensureImage(ctx, containers)
	if err != nil {
		return "", unmount, err
	}
	releaseRef, err := s.imageHolds.hold(ctx, imageRef) // a runtime may resolve a short name in its own way
	if err != nil {
		return "", unmount, err
	}
	defer releaseRef()
	config, unmount, err := s.containerConfig(ctx, imageRef, containers)
	if err != nil {
		return "", unmount, newStartError(reasonContainerConfig, err)
	}
	if err := s.prepareLog(); err != nil {
		return "", unmount, newStartError(reasonContainerConfig, err)
	}
	callCtx, cancel := withoutInterrupt(ctx)
	defer cancel()
	response, err := s.runtime.CreateContainer(callCtx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.sandbox.id, Config: config, SandboxConfig: s.sandbox.config,
	})
	if err == nil {
		s.events.normal(eventCreated, "Container created")
		return response.ContainerId, unmount, s.checkStopSignal(ctx, response.ContainerId, config.StopSignal)
	}
	// The response may be lost.
	if containers, listErr := s.listContainers(ctx, podid.UID(s.pod.UID)); listErr == nil {
		created := s.findInstance(containers)
		if created != nil && created.State == runtimeapi.ContainerState_CONTAINER_CREATED {
			return created.Id, unmount, nil
		}
	}
	return "", unmount, newStartError(reasonCreateContainer, err)
}

// containerConfig gathers the container's inputs and generates its configuration. The caller calls unmount, which is never
// nil, once the container runs or has failed to.
func (s *containerStart) containerConfig(ctx context.Context, imageRef string, containers []*runtimeapi.Container) (
	config *runtimeapi.ContainerConfig, unmount func() error, err error,
) {
	unmount = func() error { return nil }
	inputs := criconfig.ContainerInputs{ImageRef: imageRef}
	if inputs.TargetID, err = criconfig.TargetContainer(s.pod, s.container.Name, containers); err != nil {
		return nil, unmount, err
	}
	if criconfig.NeedsImageUser(s.pod, s.container) {
		if inputs.User, err = s.imageUser(ctx); err != nil {
			return nil, unmount, err
		}
	}
	if inputs.Env, err = s.config.Provisioner.Environment(ctx, s.pod, s.container, s.sandbox.ips); err != nil {
		return nil, unmount, err
	}
	volumes, unmount, err := s.mountVolumes(ctx, criconfig.EnvValues(inputs.Env))
	if err != nil {
		return nil, unmount, err
	}
	files, err := s.mountFiles(s.pod, s.start, s.sandbox.ips)
	if err != nil {
		return nil, unmount, err
	}
	inputs.Mounts = append(volumes, files...)
	config, err = s.generator.ContainerConfig(s.pod, s.start, inputs)
	return config, unmount, err
}

// checkStopSignal rejects a stop signal that the runtime does not support and would ignore silently.
func (s *containerStart) checkStopSignal(ctx context.Context, id string, signal runtimeapi.Signal) error {
	if signal == runtimeapi.Signal_RUNTIME_DEFAULT {
		return nil
	}
	response, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil || response.GetStatus().GetStopSignal() == signal {
		return err
	}
	err = s.removeContainer(ctx, podid.UID(s.pod.UID), id)
	return newStartError(reasonContainerConfig, errors.Join(errors.New("lifecycle.stopSignal: not supported by the runtime"), err))
}

// startCreated starts the created container. A container that fails to start is removed: the next attempt has the same
// restart count.
func (s *containerStart) startCreated(ctx context.Context, id string) error {
	if err := s.prepareLog(); err != nil {
		return newStartError(reasonRunContainer, err)
	}
	callCtx, cancel := withoutInterrupt(ctx)
	defer cancel()
	_, err := s.runtime.StartContainer(callCtx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err == nil {
		s.recordStarted(id)
		return nil
	}
	response, statusErr := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if statusErr != nil {
		return newStartError(reasonRunContainer, err)
	}
	switch response.GetStatus().GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING: // only the response was lost
		s.recordStarted(id)
		return nil
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		if removeErr := s.removeContainer(ctx, podid.UID(s.pod.UID), id); removeErr != nil { // the next attempt removes it first
			s.logger().Warn("Failed to remove container that did not start", "err", removeErr)
		}
	}
	return newStartError(reasonRunContainer, err)
}

func (s *containerStart) recordStarted(id string) {
	s.events.normal(eventStarted, "Container started")
	s.linkLog(id)
}

func (s *containerStart) runPostStart(ctx context.Context, id string) error {
	s.events.id = id
	if s.container.Lifecycle == nil || s.container.Lifecycle.PostStart == nil {
		return nil
	}
	err := s.runHook(ctx, hook{
		pod: s.pod, container: s.container, handler: s.container.Lifecycle.PostStart, containerID: id, ips: s.sandbox.ips,
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.logger().Info("PostStart hook failed", "err", err)
	s.events.warn(eventFailedPostStart, "PostStartHook failed") // the hook's output may hold secrets
	stopErr := s.StopContainer(ctx, s.pod, plan.Stop{
		ID: observed.ContainerID{ID: id}, Container: s.container, Grace: plan.GracePeriod(s.pod), Message: eventFailedPostStart,
	})
	if stopErr != nil {
		err = errors.Join(err, stopErr)
	}
	return newStartError(reasonPostStartHook, err)
}

// minGracePeriod is left to a container after its preStop hook, so that it can exit by itself (PW-24).
const minGracePeriod = 2 * time.Second

// StopContainer runs the preStop hook, waits for the container's turn, signals it and kills it when the grace period is
// over. The time until the signal is deducted from the grace period (PW-24, PW-25). pod is nil for a container whose spec is
// unknown, which has no hook. It returns nil if the container does not exist.
func (r *Runtime) StopContainer(ctx context.Context, pod *v1.Pod, stop plan.Stop) error {
	if pod != nil && stop.Container != nil {
		events := r.containerEvents(pod, stop.Container.Name)
		events.id = stop.ID.ID
		events.normal(eventKilling, cmp.Or(stop.Message, "Stopping container "+stop.Container.Name))
		started := time.Now()
		r.runPreStop(ctx, pod, stop, events)
		if stop.PreStopDone != nil {
			stop.PreStopDone()
		}
		awaitTurn(ctx, stop, started)
		stop = stop.AfterWaiting(time.Since(started))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cri: stop container %s: %w", stop.ID, ctx.Err())
	}
	_, err := r.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: stop.ID.ID, Timeout: ceilSeconds(max(stop.Grace, minGracePeriod)),
	})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("cri: stop container %s: %w", stop.ID, err)
	}
	return nil
}

// awaitTurn waits until the container may receive the signal, or until its grace period is over.
func awaitTurn(ctx context.Context, stop plan.Stop, started time.Time) {
	if stop.Turn == nil {
		return
	}
	timer := time.NewTimer(stop.Grace - time.Since(started))
	defer timer.Stop()
	select {
	case <-stop.Turn:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// runPreStop runs the preStop hook within the grace period. A failed hook does not prevent the stop.
func (r *Runtime) runPreStop(ctx context.Context, pod *v1.Pod, stop plan.Stop, events *containerEvents) {
	container := stop.Container
	if container.Lifecycle == nil || container.Lifecycle.PreStop == nil || stop.Grace <= 0 || stop.SkipPreStop {
		return
	}
	hookCtx, cancel := context.WithTimeout(ctx, stop.Grace)
	defer cancel()
	h := hook{pod: pod, container: container, handler: container.Lifecycle.PreStop, containerID: stop.ID.ID}
	var err error
	if h.handler.HTTPGet != nil && h.handler.HTTPGet.Host == "" {
		h.ips, err = r.podIPs(hookCtx, pod)
	}
	if err == nil {
		err = r.runHook(hookCtx, h)
	}
	if err != nil && ctx.Err() == nil {
		r.podLogger(pod).Info("PreStop hook failed", "container", container.Name, "err", err)
		events.warn(eventFailedPreStop, "PreStopHook failed") // the hook's output may hold secrets
	}
}

// podIPs returns the addresses that the pod's containers listen on.
func (r *Runtime) podIPs(ctx context.Context, pod *v1.Pod) ([]netip.Addr, error) {
	if pod.Spec.HostNetwork {
		return r.config.NodeIPs(), nil
	}
	inspected, err := r.InspectPod(ctx, podid.UID(pod.UID))
	if err != nil {
		return nil, err
	}
	return inspected.IPs, nil
}
