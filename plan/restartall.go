package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// lastRestartAll is when a container last ended with a code for which its rule restarts the whole pod in place; zero if
// none did. The kubelet removes all containers to begin again. Here the moment divides the instances: those that were
// created up to it are of before, and are replaced. So nothing is lost of their logs and ends, and an agent that crashes
// half-way goes on.
func lastRestartAll(pod *v1.Pod, seen *observed.Pod) time.Time {
	var last time.Time
	for i := range seen.Containers {
		instance := &seen.Containers[i]
		if stateOf(instance) != observed.Exited || !instance.Exit.FinishedAt.After(last) {
			continue
		}
		c, kind := Find(pod, instance.Name)
		if c != nil && kind != Ephemeral &&
			ruleFor(c, instance.Exit.Code) == v1.ContainerRestartRuleActionRestartAllContainers {
			last = instance.Exit.FinishedAt
		}
	}
	return last
}

// isOfBefore reports whether the instance is from before the last restart of all containers.
func (d *decision) isOfBefore(c *observed.Container) bool {
	return !d.restartAll.IsZero() && !c.CreatedAt.After(d.restartAll)
}

// stopForRestart stops what still runs of before, the sidecars once all others have ended (PW-25), and reports whether
// there was anything. Nothing is started meanwhile.
func (d *decision) stopForRestart() bool {
	for _, sidecars := range []bool{false, true} {
		for i := range d.seen.Containers {
			instance := &d.seen.Containers[i]
			if instance.State != observed.Running || !d.isOfBefore(instance) {
				continue
			}
			c, kind := Find(d.Pod, instance.Name)
			if c != nil && kind != Ephemeral && sidecars == (kind == Sidecar) {
				d.stop(c, instance, StopRestartAll, true)
			}
		}
		if len(d.out.Stop) > 0 {
			return true
		}
	}
	return false
}
