package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// FindContainer returns the pod's container with this name and its kind, or nil.
func FindContainer(pod *v1.Pod, name string) (*v1.Container, derive.ContainerKind) {
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == name {
			return container, derive.RegularContainer
		}
	}
	for i := range pod.Spec.InitContainers {
		if container := &pod.Spec.InitContainers[i]; container.Name == name {
			return container, derive.InitContainerKind(container)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if container := ephemeralContainer(&pod.Spec.EphemeralContainers[i]); container.Name == name {
			return container, derive.EphemeralContainer
		}
	}
	return nil, ""
}

// ephemeralContainer converts an ephemeral container. The API keeps the fields identical for this purpose.
func ephemeralContainer(container *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&container.EphemeralContainerCommon)
}

// HashContainer identifies the version of a container's spec by name and image: no other edit of a running container
// requires a replacement. The hash equals the kubelet's, so that an agent that takes over a node adopts the kubelet's
// containers (PW-53).
func HashContainer(container *v1.Container) uint64 {
	encoded, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{container.Image, container.Name})
	if err != nil {
		panic(fmt.Sprintf("plan: encode container %s: %v", container.Name, err)) // strings always encode
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "([]uint8)%v", encoded)
	return uint64(hash.Sum32())
}

// mayBeRunning reports whether the instance runs, or is in an unknown state.
func mayBeRunning(instance *observed.Container) bool {
	state := derive.ContainerState(instance)
	return state == observed.Running || state == observed.Unknown
}

// syncInitContainers runs the init containers one after the other and keeps started sidecars running. It reports whether
// regular containers may run.
func (p *planner) syncInitContainers() bool {
	containers := p.Pod.Spec.InitContainers
	next := p.nextInit()
	for i := range containers[:next] {
		if container := &containers[i]; restart.IsSidecar(container) {
			p.syncContainer(container, derive.SidecarContainer)
		}
	}
	if next == len(containers) {
		return true
	}
	p.syncContainer(&containers[next], derive.InitContainerKind(&containers[next]))
	return false
}

// nextInit returns the index of the init container to run, or their number if all are done. Records of completed containers
// may be gone, so the last one with a record decides.
func (p *planner) nextInit() int {
	containers := p.Pod.Spec.InitContainers
	if p.isInitialized() {
		return len(containers)
	}
	for i := len(containers) - 1; i >= 0; i-- {
		container := &containers[i]
		instance := p.current(container.Name)
		switch {
		case instance == nil:
		case p.isInitDone(container, instance):
			return i + 1
		default:
			return i
		}
	}
	return 0
}

// isInitDone reports whether the next init container may start: a sidecar has started, any other one has succeeded.
func (p *planner) isInitDone(container *v1.Container, instance *observed.Container) bool {
	if restart.IsSidecar(container) {
		return derive.ContainerState(instance) == observed.Running && p.hasStarted(container, instance)
	}
	return derive.ContainerState(instance) == observed.Exited && initSucceeded(instance.Exit)
}

func initSucceeded(exit *observed.Exit) bool {
	return restart.InitSucceeded(int32(exit.Code), exit.Reason)
}

func (p *planner) hasStarted(container *v1.Container, instance *observed.Container) bool {
	return container.StartupProbe == nil || p.Started[instance.ID]
}

// isInitialized reports whether a regular container was created in the current sandbox, which proves that all init
// containers completed there (PH-15).
func (p *planner) isInitialized() bool {
	for i := range p.Pod.Spec.Containers {
		if p.current(p.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// initFailed reports whether an init container failed for good, and with it the pod. One that was lost with its sandbox has
// failed.
func (p *planner) initFailed() bool {
	if p.isInitialized() {
		return false
	}
	for i := range p.Pod.Spec.InitContainers {
		container := &p.Pod.Spec.InitContainers[i]
		instance := p.runtimePod.Newest(container.Name)
		if instance != nil && !p.isBeforeRestartAll(instance) && p.hasInitFailed(container, instance) {
			return true
		}
	}
	return false
}

func (p *planner) hasInitFailed(container *v1.Container, instance *observed.Container) bool {
	if derive.ContainerState(instance) != observed.Exited {
		return p.isLastRun(container, instance)
	}
	exit := instance.Exit
	return !initSucceeded(exit) && !restart.ShouldRestartInit(&p.Pod.Spec, container, int32(exit.Code), exit.Reason)
}

// syncRegularContainers keeps the regular containers running, independently of each other.
func (p *planner) syncRegularContainers() {
	for i := range p.Pod.Spec.Containers {
		p.syncContainer(&p.Pod.Spec.Containers[i], derive.RegularContainer)
	}
}

// syncContainer starts, replaces or stops one container, or leaves it as it is.
func (p *planner) syncContainer(container *v1.Container, kind derive.ContainerKind) {
	instance := p.runtimePod.Newest(container.Name)
	switch {
	case instance == nil || derive.ContainerState(instance) == observed.Created:
		p.start(container, kind, nil)
	case derive.ContainerState(instance) == observed.Exited:
		// initFailed has already handled init containers that failed for good. Any other exit restarts them.
		if kind == derive.InitContainer || p.canRestart(container, instance) {
			p.start(container, kind, nil)
		}
	case !p.hasSandbox: // stopped together with the old sandbox
		if p.canRestart(container, instance) {
			p.start(container, kind, instance)
		}
	default:
		if reason := p.stopReason(container, kind, instance); reason != "" {
			p.replaceContainer(container, kind, instance, reason)
		}
	}
}

// stopReason returns why the instance, which may be running, must stop. It returns "" if it can stay.
func (p *planner) stopReason(
	container *v1.Container, kind derive.ContainerKind, instance *observed.Container,
) StopReason {
	_, unhealthy := p.Unhealthy[instance.ID]
	switch {
	case derive.ContainerState(instance) == observed.Unknown:
		return StopUnknownState
	case !p.isCurrent(instance):
		return StopStale
	case kind == derive.InitContainer:
		return "" // terminates by itself
	case instance.SpecHash != 0 && instance.SpecHash != HashContainer(container):
		return StopDefinitionChanged
	case p.requestedRestart(instance).ByAction:
		return StopAction
	case p.requestedRestart(instance) != RequestedRestart{}:
		return StopUser
	case unhealthy && p.hasStarted(container, instance):
		return StopLivenessProbe
	case unhealthy:
		return StopStartupProbe
	case p.restartsForResize(container, instance):
		return StopResize
	default:
		return ""
	}
}

// replaceContainer stops an instance and starts a new one if the policy allows it. A container that is edited, or resized by a
// restart, is replaced whatever its policy.
func (p *planner) replaceContainer(
	container *v1.Container, kind derive.ContainerKind, instance *observed.Container, reason StopReason,
) {
	restarts := reason == StopDefinitionChanged || reason == StopResize || p.canRestart(container, instance)
	p.stop(container, instance, reason, restarts)
	if restarts {
		p.setPendingRestart(container, instance)
		p.start(container, kind, instance)
	}
}

// startEphemeral starts the ephemeral containers without a record: they run once and wait for nothing (PH-42).
func (p *planner) startEphemeral() {
	for i := range p.Pod.Spec.EphemeralContainers {
		container := ephemeralContainer(&p.Pod.Spec.EphemeralContainers[i])
		if p.runtimePod.Newest(container.Name) == nil {
			p.actions.Start = append(p.actions.Start, Start{Container: container, Kind: derive.EphemeralContainer})
		}
	}
}
