package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// minStopGracePeriod is the least time that an instance gets to terminate by itself, however long it waited before (PW-24).
const minStopGracePeriod = 2 * time.Second

// maxSeconds limits a number of seconds to 68 years, so that sums of time.Duration do not overflow.
const maxSeconds = 1 << 31

// Stop is one instance to stop.
type Stop struct {
	ID observed.ContainerID
	// Container is the instance's spec, or nil if the pod no longer has a container of that name.
	Container *v1.Container
	// Grace is the time for the preStop hook and the termination together. Zero skips the hook; the runtime still gets
	// two seconds to stop the instance (PW-24).
	Grace time.Duration
	// Turn is closed when the instance may receive the signal (PW-25). The preStop hook does not wait for it. Nil means at
	// once. The wait ends with Grace.
	Turn <-chan struct{}
	// SkipPreStop reports that the preStop hook ran already, in a stop that was interrupted.
	SkipPreStop bool
	// PreStopDone is called when the preStop hook has ended, or if there is none. It must not block. Nil means nobody asks.
	PreStopDone func()
	Reason      StopReason
	// Message is the text of the event.
	Message string
}

// AfterWaiting returns the stop with the grace period that is left after waiting.
func (s Stop) AfterWaiting(waited time.Duration) Stop {
	s.Grace = max(s.Grace-waited, minStopGracePeriod)
	return s
}

// StopReason is why an instance is stopped.
type StopReason string

// The stop reasons. Those that the kubelet has are spelled as there.
const (
	StopPodTerminating    StopReason = "PodTerminating"
	StopDefinitionChanged StopReason = "DefinitionChanged"
	StopLivenessProbe     StopReason = "LivenessProbe"
	StopStartupProbe      StopReason = "StartupProbe"
	StopUnknownState      StopReason = "Unknown"
	StopStale             StopReason = "Stale"
	StopRestartAll        StopReason = "RestartAllContainers"
	StopUser              StopReason = "User"
	StopAction            StopReason = "Action" // of an alert rule
	StopResize            StopReason = "Resize"
)

// message returns the end of a sentence that starts with the container's name: the kubelet's text if it has one.
func (r StopReason) message() string {
	switch r {
	case StopDefinitionChanged:
		return "definition changed"
	case StopLivenessProbe:
		return "failed liveness probe"
	case StopStartupProbe:
		return "failed startup probe"
	case StopUnknownState:
		return "is in an unknown state"
	case StopStale:
		return "does not belong to the current pod"
	case StopRestartAll:
		return "is stopped by a rule that restarts all containers"
	case StopUser:
		return "is stopped by a user"
	case StopAction:
		return "is stopped by an action"
	case StopResize:
		return "resize requires restart"
	default:
		return "is stopped"
	}
}

const willBeRestarted = ", will be restarted"

// stop requests to stop one instance. Two containers may have its name; it is stopped once. container is nil if the pod has
// no such container.
func (p *planner) stop(container *v1.Container, instance *observed.Container, reason StopReason, restarts bool) {
	if slices.ContainsFunc(p.actions.Stop, func(stop Stop) bool { return stop.ID == instance.ID }) {
		return
	}
	message := p.stopMessage(instance, reason)
	if restarts && reason != StopResize && !strings.HasSuffix(message, willBeRestarted) {
		message += willBeRestarted
	}
	p.actions.Stop = append(p.actions.Stop, Stop{
		ID: instance.ID, Container: container, Grace: stopGracePeriod(p.Pod, container, reason), Reason: reason, Message: message,
	})
}

func (p *planner) stopMessage(instance *observed.Container, reason StopReason) string {
	message := p.Unhealthy[instance.ID]
	if message != "" && (reason == StopLivenessProbe || reason == StopStartupProbe) {
		return message
	}
	noun := "Container"
	_, kind := FindContainer(p.Pod, instance.Name)
	if (kind == derive.InitContainer || kind == derive.SidecarContainer) && reason != StopResize {
		noun = "Init container"
	}
	message = fmt.Sprintf("%s %s %s", noun, instance.Name, reason.message())
	if requested := p.requestedRestart(instance); (reason == StopUser || reason == StopAction) && requested.Message != "" {
		message += " (" + requested.Message + ")"
	}
	return message
}

// GracePeriod returns how long the pod's containers may take to terminate by themselves.
func GracePeriod(pod *v1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return toDuration(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return toDuration(*pod.Spec.TerminationGracePeriodSeconds)
	default:
		return minStopGracePeriod
	}
}

// toDuration converts seconds. The result is clamped to avoid overflow.
func toDuration(seconds int64) time.Duration {
	return time.Duration(min(seconds, maxSeconds)) * time.Second
}

// stopGracePeriod returns the grace period of the failed probe if it has one, else the pod's. The probe's does not apply to a
// pod that is being deleted (PRB-39). A restart of all containers has none: it is part of the pod's normal work.
func stopGracePeriod(pod *v1.Pod, container *v1.Container, reason StopReason) time.Duration {
	var probe *v1.Probe
	switch {
	case reason == StopRestartAll:
		return 0
	case container == nil:
	case reason == StopLivenessProbe:
		probe = container.LivenessProbe
	case reason == StopStartupProbe:
		probe = container.StartupProbe
	}
	if probe != nil && probe.TerminationGracePeriodSeconds != nil && pod.DeletionGracePeriodSeconds == nil {
		return toDuration(*probe.TerminationGracePeriodSeconds)
	}
	return GracePeriod(pod)
}

// OrderedStop is the stop of one instance when its pod terminates, and the instances that it waits for. All stops of a pod
// begin at the same time:
//
//	run the preStop hook
//	wait until all of After have terminated, or Stop.Grace has passed
//	stop with Stop.AfterWaiting(time since the beginning)
type OrderedStop struct {
	Stop  Stop
	After []observed.ContainerID
}

// TerminationOrder orders the stops of all instances of a pod that may be running. All stop at once, except that a sidecar
// waits for the regular and init containers and for the sidecars that started later (PW-25). Nothing waits for ephemeral or
// terminated containers. An instance precedes those that wait for it.
//
// pod is nil if the spec of an orphaned pod is unknown: then nothing waits.
func TerminationOrder(pod *v1.Pod, runtimePod *observed.Pod, grace time.Duration) []OrderedStop {
	if runtimePod == nil {
		return nil
	}
	if pod == nil {
		pod = &v1.Pod{}
	}
	var stops []OrderedStop
	sidecars := map[string][]OrderedStop{}
	var before []observed.ContainerID
	for i := range runtimePod.Containers {
		instance := &runtimePod.Containers[i]
		if !mayBeRunning(instance) {
			continue
		}
		container, kind := FindContainer(pod, instance.Name)
		stop := OrderedStop{Stop: Stop{
			ID: instance.ID, Container: container, Grace: grace, Reason: StopPodTerminating,
			Message: "Stopping container " + instance.Name,
		}}
		switch kind {
		case derive.SidecarContainer:
			sidecars[container.Name] = append(sidecars[container.Name], stop)
			continue
		case derive.InitContainer, derive.RegularContainer:
			before = append(before, instance.ID)
		}
		stops = append(stops, stop)
	}
	return append(stops, orderSidecars(pod.Spec.InitContainers, sidecars, before)...)
}

// orderSidecars lets each sidecar wait for the later ones in the spec and for the given instances.
func orderSidecars(
	containers []v1.Container, sidecars map[string][]OrderedStop, before []observed.ContainerID,
) []OrderedStop {
	var ordered []OrderedStop
	for i := len(containers) - 1; i >= 0; i-- {
		stops := sidecars[containers[i].Name]
		delete(sidecars, containers[i].Name)
		for j := range stops {
			stops[j].After = slices.Clone(before)
		}
		for j := range stops {
			before = append(before, stops[j].Stop.ID)
		}
		ordered = append(ordered, stops...)
	}
	return ordered
}
