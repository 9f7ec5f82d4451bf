package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// initialize brings the init containers on, one after the other, keeps those sidecars up that have had their turn, and
// reports whether regular containers may run.
func (d *decision) initialize() bool {
	inits := d.Pod.Spec.InitContainers
	turn := d.turn()
	for i := range inits[:turn] {
		if c := &inits[i]; kindOfInit(c) == derive.SidecarContainer {
			d.keepUp(c, derive.SidecarContainer)
		}
	}
	if turn == len(inits) {
		return true
	}
	d.keepUp(&inits[turn], kindOfInit(&inits[turn]))
	return false
}

// turn is the place of the init container that is to run, or their number when all have had their turn. Records of
// those that ended may be gone, so it is the last one that is seen, or the one after it, that counts.
func (d *decision) turn() int {
	inits := d.Pod.Spec.InitContainers
	if d.wasInitialized() {
		return len(inits)
	}
	for i := len(inits) - 1; i >= 0; i-- {
		c := &inits[i]
		instance := d.current(c.Name)
		switch {
		case instance == nil:
		case d.hasPassed(c, instance):
			return i + 1
		default:
			return i
		}
	}
	return 0
}

// hasPassed reports whether the next init container may begin: a sidecar has started, any other has succeeded.
func (d *decision) hasPassed(c *v1.Container, instance *observed.Container) bool {
	if kindOfInit(c) == derive.SidecarContainer {
		return stateOf(instance) == observed.Running && d.hasStarted(c, instance)
	}
	return stateOf(instance) == observed.Exited && succeeded(instance.Exit)
}

func (d *decision) hasStarted(c *v1.Container, instance *observed.Container) bool {
	return c.StartupProbe == nil || d.Started[instance.ID]
}

// wasInitialized reports whether a regular container was created in the present sandbox, which proves that all init
// containers have done their work there (PH-15).
func (d *decision) wasInitialized() bool {
	for i := range d.Pod.Spec.Containers {
		if d.current(d.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// initFailed reports whether an init container failed for good, and with it the pod. Lost with its sandbox, it failed.
func (d *decision) initFailed() bool {
	if d.wasInitialized() {
		return false
	}
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		instance := d.newest(c.Name)
		if instance != nil && !d.isOfBefore(instance) && d.initEndedBadly(c, instance) {
			return true
		}
	}
	return false
}

func (d *decision) initEndedBadly(c *v1.Container, instance *observed.Container) bool {
	if stateOf(instance) != observed.Exited {
		return d.endedForGood(c, instance)
	}
	code := instance.Exit.Code
	if code == 0 {
		code = exitCodeKilled // PH-16
	}
	return !succeeded(instance.Exit) && !restart.ShouldRestart(&d.Pod.Spec, c, int32(code))
}
