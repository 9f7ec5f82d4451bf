package cri

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// StartContainer pulls the image as the policy asks, makes and starts the container in that sandbox and runs its
// postStart hook. Its name is that of the container and the restart count: called again after an answer was lost, it
// goes on with the first, and never starts a second (F22).
func (r *Runtime) StartContainer(ctx context.Context, pod *v1.Pod, sandbox string, start plan.Start) error {
	kind := containerType(start.Kind)
	r.metrics.startedContainers.WithLabelValues(kind).Inc()
	s := &starting{
		Runtime: r, pod: pod, container: start.Container, start: start, events: r.eventsOf(pod, start.Container.Name),
	}
	err := s.run(ctx, sandbox)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cri: starting container %s of pod %s: %w", start.Container.Name, describe(pod), err)
	}
	var told *startError
	if !errors.As(err, &told) {
		told = failed(reasonCreateContainer, err)
	}
	r.metrics.startedContainerErrors.WithLabelValues(kind, told.reason).Inc()
	switch {
	case told.reason == reasonPostStartHook: // which has an event of its own
	case told.announced:
		s.events.warn(eventFailed, "Error: "+told.reason)
	default:
		s.events.warn(eventFailed, "Error: "+told.message)
	}
	return told
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

// starting is one container on its way:
//
//	image -> created -> running -> hook done
//	                       ^
//	                       a call whose answer was lost goes on here
type starting struct {
	*Runtime
	pod       *v1.Pod
	container *v1.Container
	start     plan.Start
	events    *containerEvents
	place     *place
}

func (s *starting) run(ctx context.Context, sandbox string) error {
	err := s.Unsupported(s.pod) // an ephemeral container may have come after the sandbox
	if err != nil {
		return failed(reasonContainerConfig, err)
	}
	if s.place, err = s.placeFor(ctx, s.pod, sandbox); err != nil {
		return err
	}
	list, err := s.containersOf(ctx, podid.UID(s.pod.UID))
	if err != nil {
		return err
	}
	if earlier := s.find(list); earlier != nil {
		if earlier.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			return s.join(ctx, earlier)
		}
		// It never ran, and the pod may have changed since it was made.
		if err := s.removeContainer(ctx, earlier.Id); err != nil {
			return err
		}
	}
	id, release, err := s.create(ctx, list)
	defer func() {
		if err := release(); err != nil {
			s.config.Logger.Warn("a subPath's bind stays until the pod is removed", "pod", describe(s.pod), "error", err)
		}
	}()
	if err != nil {
		return err
	}
	s.events.id = id
	if err := s.begin(ctx, id); err != nil {
		return err
	}
	return s.postStart(ctx, id)
}

// join goes on with a container that an earlier call has started. Its hook may have run already: hooks run at least once.
func (s *starting) join(ctx context.Context, earlier *runtimeapi.Container) error {
	switch earlier.State {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return s.postStart(ctx, earlier.Id)
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return nil // it was started, and it ended: what follows is for the plan to say
	default:
		return fmt.Errorf("the runtime has lost the state of container %s", earlier.Id)
	}
}

// find is this very instance in a list of the pod's containers, or nil.
func (s *starting) find(list []*runtimeapi.Container) *runtimeapi.Container {
	for _, c := range list {
		if c.PodSandboxId == s.place.id && c.GetMetadata().GetName() == s.container.Name &&
			c.GetMetadata().GetAttempt() == uint32(s.start.RestartCount) {
			return c
		}
	}
	return nil
}

// begin starts the container that was made. One that could not be started does not stay in the way of the next attempt,
// which has the same number.
func (s *starting) begin(ctx context.Context, id string) error {
	_, err := s.pods.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err == nil {
		s.begun(id)
		return nil
	}
	answer, lookErr := s.pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if lookErr != nil {
		return failed(reasonRunContainer, err)
	}
	switch answer.GetStatus().GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING: // only the answer was lost
		s.begun(id)
		return nil
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		if removeErr := s.removeContainer(ctx, id); removeErr != nil { // the next attempt will try that first
			s.config.Logger.Warn("a container that could not be started stays", "pod", describe(s.pod), "error", removeErr)
		}
	}
	return failed(reasonRunContainer, err)
}

func (s *starting) begun(id string) {
	s.events.normal(eventStarted, "Container started")
	s.linkLog(id)
}

func (s *starting) postStart(ctx context.Context, id string) error {
	s.events.id = id
	if s.container.Lifecycle == nil || s.container.Lifecycle.PostStart == nil {
		return nil
	}
	err := s.runHook(ctx, hook{
		pod: s.pod, container: s.container, handler: s.container.Lifecycle.PostStart, id: id, ips: s.place.ips,
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.config.Logger.Info("a postStart hook failed", "pod", describe(s.pod), "container", s.container.Name, "error", err)
	s.events.warn(eventFailedPostStart, "PostStartHook failed") // its output may hold secrets
	stopErr := s.StopContainer(ctx, s.pod, plan.Stop{
		ID: observed.ContainerID{ID: id}, Container: s.container, Grace: plan.GracePeriod(s.pod), Message: eventFailedPostStart,
	})
	if stopErr != nil {
		err = errors.Join(err, stopErr)
	}
	return failed(reasonPostStartHook, err)
}
