package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

const (
	reasonOOMKilled     = "OOMKilled"
	reasonStatusUnknown = "ContainerStatusUnknown"
	exitCodeKilled      = 137
)

// stateOf is the instance's state. One that exited nobody knows how is unknown.
func stateOf(c *observed.Container) observed.State {
	if c.State == observed.Exited && c.Exit == nil {
		return observed.Unknown
	}
	return c.State
}

// isAlive reports whether the instance runs, or may run for all that is known.
func isAlive(c *observed.Container) bool {
	state := stateOf(c)
	return state == observed.Running || state == observed.Unknown
}

// succeeded reports whether an init container has done its work. Killed for want of memory it has not, even if its exit
// code is 0 because only a child was hit (PH-16).
func succeeded(exit *observed.Exit) bool {
	return exit.Code == 0 && exit.Reason != reasonOOMKilled
}

// RunsOnce reports whether a container that was begun and lost must not be started again: nobody knows whether it has done its
// work, and its pod's policy allows no second time (BUG-41).
func RunsOnce(pod *v1.Pod, start Start) bool {
	return start.Kind == derive.RegularContainer && !restart.ShouldRestartKilled(&pod.Spec, start.Container)
}
