package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// runRegular keeps the regular containers up, independently of each other.
func (d *decision) runRegular() {
	for i := range d.Pod.Spec.Containers {
		d.keepUp(&d.Pod.Spec.Containers[i], derive.RegularContainer)
	}
}

// keepUp starts, replaces or stops one container whose turn it is, or leaves it as it is.
func (d *decision) keepUp(c *v1.Container, kind derive.ContainerKind) {
	instance := d.newest(c.Name)
	switch {
	case instance == nil || stateOf(instance) == observed.Created:
		d.start(c, kind, nil)
	case stateOf(instance) == observed.Exited:
		// Whether an init container failed for good was decided before. Any other end of it is no reason not to begin anew.
		if kind == derive.InitContainer || d.mayRunAgain(c, instance) {
			d.start(c, kind, nil)
		}
	case !d.hasSandbox: // ends with the old sandbox
		if d.mayRunAgain(c, instance) {
			d.start(c, kind, instance)
		}
	default:
		if reason := d.reasonToStop(c, kind, instance); reason != "" {
			d.stopAndStart(c, kind, instance, reason)
		}
	}
}

// reasonToStop is why the instance, which runs for all that is known, cannot stay; "" when it can.
func (d *decision) reasonToStop(c *v1.Container, kind derive.ContainerKind, instance *observed.Container) StopReason {
	_, unhealthy := d.Unhealthy[instance.ID]
	switch {
	case stateOf(instance) == observed.Unknown:
		return StopUnknownState
	case !d.isCurrent(instance):
		return StopStale
	case kind == derive.InitContainer:
		return "" // it is to end anyway
	case instance.SpecHash != 0 && instance.SpecHash != HashContainer(c):
		return StopDefinitionChanged
	case !unhealthy:
		return ""
	case d.hasStarted(c, instance):
		return StopLivenessProbe
	default:
		return StopStartupProbe
	}
}

// stopAndStart replaces an instance, or only stops it if its policy is never to start again. An edited container is
// replaced whatever its policy.
func (d *decision) stopAndStart(c *v1.Container, kind derive.ContainerKind, instance *observed.Container, reason StopReason) {
	again := reason == StopDefinitionChanged || d.mayRunAgain(c, instance)
	d.stop(c, instance, reason, again)
	if again {
		d.owe(c, instance)
		d.start(c, kind, instance)
	}
}

// startEphemeral starts those that were never seen: ephemeral containers run once, and wait for nobody (PH-42).
func (d *decision) startEphemeral() {
	for i := range d.Pod.Spec.EphemeralContainers {
		c := ephemeral(&d.Pod.Spec.EphemeralContainers[i])
		if d.newest(c.Name) == nil {
			d.out.Start = append(d.out.Start, Start{Container: c, Kind: derive.EphemeralContainer})
		}
	}
}
