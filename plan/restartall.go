package plan

import (
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// isOfBefore reports whether the instance is from before the last restart of all containers. The kubelet removes all of them to
// begin again. Here the moment divides them: those that were created up to it are of before, and are replaced. So nothing is
// lost of their logs and ends, and an agent that crashes half-way goes on.
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
			c, kind := FindContainer(d.Pod, instance.Name)
			if c != nil && kind != derive.EphemeralContainer && sidecars == (kind == derive.SidecarContainer) {
				d.stop(c, instance, StopRestartAll, true)
			}
		}
		if len(d.out.Stop) > 0 {
			return true
		}
	}
	return false
}
