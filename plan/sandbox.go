package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// usableSandbox is the one in which containers can be started: the newest, if it is the only ready one, has the network
// mode that the pod asks for, and got its network (GEN-24 to GEN-29).
func usableSandbox(pod *v1.Pod, seen *observed.Pod) (id string, ok bool) {
	newest, exists := seen.NewestSandbox()
	if !exists || !newest.Ready || seen.ReadySandboxes() > 1 || newest.HostNetwork != pod.Spec.HostNetwork {
		return "", false
	}
	if !pod.Spec.HostNetwork && newest.Network != nil && len(newest.Network.IPs) == 0 {
		return "", false
	}
	return newest.ID, true
}

// replaceSandbox asks for a new sandbox, after the end of all that is left of the old ones. Containers that still run
// there are started again in the new one.
func (d *decision) replaceSandbox() {
	anyAlive := slices.ContainsFunc(d.seen.Containers, func(c observed.Container) bool { return isAlive(&c) })
	d.out.KillPod = anyAlive || len(d.seen.Sandboxes) > 0
	var attempt uint32
	for i := range d.seen.Sandboxes {
		attempt = max(attempt, d.seen.Sandboxes[i].Attempt+1)
	}
	d.out.Sandbox = &NewSandbox{Attempt: attempt}
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		if instance := d.newest(c.Name); instance != nil && isAlive(instance) && d.mayRunAgain(c, instance) {
			d.owe(c, instance)
		}
	}
}

// isOver reports whether nothing of the pod is to run again: it is deleted (PH-33), or its work is done or has failed. Such
// a pod gets no new sandbox either.
func (d *decision) isOver() bool {
	return d.Pod.DeletionTimestamp != nil || d.regularIsOver() || d.initFailed()
}

func (d *decision) regularIsOver() bool {
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		instance := d.newest(c.Name)
		if instance == nil || !d.endedForGood(c, instance) {
			return false
		}
	}
	return true
}

// endedForGood reports whether the container's newest instance was its last. One that was created and never started has
// not run (BUG-40). One that runs ends with a sandbox that cannot be used. One that nobody knows is taken for ended, so
// that what may run once only is not run twice (PH-28).
func (d *decision) endedForGood(c *v1.Container, instance *observed.Container) bool {
	switch stateOf(instance) {
	case observed.Created:
		return false
	case observed.Running:
		return !d.hasSandbox && !d.mayRunAgain(c, instance)
	default:
		return !d.mayRunAgain(c, instance)
	}
}
