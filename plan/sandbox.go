package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// usableSandbox returns the ID of the sandbox in which containers can start (GEN-24 to GEN-29).
func usableSandbox(pod *v1.Pod, runtimePod *observed.Pod) (id string, ok bool) {
	if derive.NewSandboxReason(pod, runtimePod) != "" {
		return "", false
	}
	newest, _ := runtimePod.NewestSandbox()
	return newest.ID, true
}

// replaceSandbox requests a new sandbox after everything in the old ones is stopped. Containers that still run there restart
// in the new one.
func (p *planner) replaceSandbox() {
	anyRunning := slices.ContainsFunc(p.runtimePod.Containers, func(instance observed.Container) bool {
		return mayBeRunning(&instance)
	})
	p.actions.KillPod = anyRunning || len(p.runtimePod.Sandboxes) > 0
	var attempt uint32
	for i := range p.runtimePod.Sandboxes {
		attempt = max(attempt, p.runtimePod.Sandboxes[i].Attempt+1)
	}
	p.actions.Sandbox = &NewSandbox{Attempt: attempt}
	for i := range p.Pod.Spec.Containers {
		container := &p.Pod.Spec.Containers[i]
		instance := p.runtimePod.Newest(container.Name)
		if instance != nil && mayBeRunning(instance) && p.canRestart(container, instance) {
			p.setPendingRestart(container, instance)
		}
	}
}

// RestartAll is the last restart of all containers of a pod. The zero value knows nothing: an agent that starts with it takes
// the exit as the beginning, so that it does not restart again what an earlier agent restarted.
type RestartAll struct {
	// Known is false before the first call.
	Known bool
	// ExitedAt is when the container exited that caused the restart. Zero if there was none.
	ExitedAt time.Time
	// NoticedAt is when the restart began. Instances that were created between the exit and this time restart too: they were
	// started by a step that did not know of the exit.
	NoticedAt time.Time
}

func (p *planner) noticeRestartAll() {
	exitedAt := restart.LastRestartAll(&p.Pod.Spec, p.runtimePod)
	last := p.RestartAll
	switch {
	case !last.Known:
		last = RestartAll{Known: true, ExitedAt: exitedAt, NoticedAt: exitedAt}
	case exitedAt.After(last.ExitedAt):
		last.ExitedAt, last.NoticedAt = exitedAt, exitedAt
		if p.Now.After(exitedAt) {
			last.NoticedAt = p.Now
		}
	}
	p.actions.RestartAll, p.restartAllAt = last, exitedAt
	if exitedAt.Equal(last.ExitedAt) {
		p.restartAllAt = last.NoticedAt
	}
}

// isBeforeRestartAll reports whether the instance was created before the last restart of all containers. The kubelet removes
// such instances. Here they are replaced, not deleted, so that their logs and exit codes survive and a crashed agent can
// continue.
func (p *planner) isBeforeRestartAll(instance *observed.Container) bool {
	return !p.restartAllAt.IsZero() && !instance.CreatedAt.After(p.restartAllAt)
}

// stopForRestartAll stops the instances from before a restart of all containers, sidecars after all others (PW-25). It
// reports whether there were any. Nothing starts until they have stopped, without a grace period or a preStop hook, as in the
// kubelet.
func (p *planner) stopForRestartAll() bool {
	for _, sidecars := range []bool{false, true} {
		for i := range p.runtimePod.Containers {
			instance := &p.runtimePod.Containers[i]
			if instance.State != observed.Running || !p.isBeforeRestartAll(instance) {
				continue
			}
			container, kind := FindContainer(p.Pod, instance.Name)
			if container != nil && kind != derive.EphemeralContainer && sidecars == (kind == derive.SidecarContainer) {
				p.stop(container, instance, StopRestartAll, true)
			}
		}
		if len(p.actions.Stop) > 0 {
			return true
		}
	}
	return false
}

// stopStale stops instances that run next to the newest one of the same name, or under a name that the pod does not have: two
// instances of a container never run at the same time on purpose.
func (p *planner) stopStale() {
	for i := range p.runtimePod.Containers {
		instance := &p.runtimePod.Containers[i]
		if instance.State != observed.Running {
			continue
		}
		container, _ := FindContainer(p.Pod, instance.Name)
		if container == nil || p.runtimePod.Newest(instance.Name) != instance {
			p.stop(container, instance, StopStale, false)
		}
	}
}
