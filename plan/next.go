package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// Next is what to do for one pod now. The same input gives the same actions, and a pod that is as it should be gets none.
func ComputeActions(in Input) Actions {
	d := &decision{Input: in, seen: in.Observed}
	if d.seen == nil {
		d.seen = &observed.Pod{}
	}
	d.restartAll = restart.LastRestartAll(&in.Pod.Spec, d.seen)
	d.sandbox, d.hasSandbox = usableSandbox(in.Pod, d.seen)
	d.out.Backoff = d.remember()
	d.decide()
	return d.out
}

// decision is one call of Next. It belongs to that call alone.
type decision struct {
	Input

	seen *observed.Pod // never nil
	// sandbox is the ID of the one that can be used, if there is one.
	sandbox    string
	hasSandbox bool
	// restartAll is when a container last ended so that all are to be started again; zero: never.
	restartAll time.Time
	out        Actions
}

func (d *decision) decide() {
	if d.out.Evict = derive.DeadlineExceeded(d.Pod, d.StartTime, d.Now); d.out.Evict != nil {
		return
	}
	if d.isOver() {
		d.out.Done = true
		return
	}
	if deadline, limited := derive.ActiveDeadline(d.Pod, d.StartTime); limited {
		d.wakeAt(deadline)
	}
	if d.hasSandbox {
		if d.stopForRestart() {
			return
		}
		d.stopSurplus()
		d.startEphemeral()
	} else {
		d.replaceSandbox()
	}
	if d.initialize() {
		d.runRegular()
	}
}

func (d *decision) wakeAt(at time.Time) {
	if d.out.RequeueAt.IsZero() || at.Before(d.out.RequeueAt) {
		d.out.RequeueAt = at
	}
}

// newest is the container's latest instance in any sandbox, or nil.
func (d *decision) newest(name string) *observed.Container {
	for i := range d.seen.Containers {
		if d.seen.Containers[i].Name == name {
			return &d.seen.Containers[i]
		}
	}
	return nil
}

// isCurrent reports whether the instance belongs to what runs now: the usable sandbox, since all containers were last
// restarted. What is older proves nothing about the present (PH-15).
func (d *decision) isCurrent(c *observed.Container) bool {
	return d.hasSandbox && c.SandboxID == d.sandbox && !d.isOfBefore(c)
}

// current is the container's latest instance if it is current, or nil.
func (d *decision) current(name string) *observed.Container {
	if c := d.newest(name); c != nil && d.isCurrent(c) {
		return c
	}
	return nil
}

// mayRunAgain reports whether a container whose newest instance ended, or is to be stopped, is started again.
func (d *decision) mayRunAgain(c *v1.Container, instance *observed.Container) bool {
	switch {
	case d.isOwed(c, instance) || d.isOfBefore(instance):
		return true
	case stateOf(instance) != observed.Exited:
		return restart.ShouldRestartKilled(&d.Pod.Spec, c)
	default:
		return restart.ShouldRestart(&d.Pod.Spec, c, int32(instance.Exit.Code))
	}
}

// start asks for a new instance, once, though two containers may have its name, or says why there is none now. stopped is the
// instance that is stopped for it, or nil.
func (d *decision) start(c *v1.Container, kind derive.ContainerKind, stopped *observed.Container) {
	if waiting, waits := d.waitOf(c, stopped); waits {
		if d.out.Waiting == nil {
			d.out.Waiting = map[string]derive.Waiting{}
		}
		d.out.Waiting[c.Name] = waiting
		d.wakeAt(waiting.Until)
		return
	}
	if slices.ContainsFunc(d.out.Start, func(s Start) bool { return s.Container.Name == c.Name }) {
		return
	}
	d.out.Start = append(d.out.Start, Start{Container: c, Kind: kind, RestartCount: d.restartCount(c.Name)})
}

// restartCount is that of the container's next instance: one more than the newest, so that no two instances have the same.
// One that was created and never started is no instance yet, and keeps its number: an agent that died may have left its
// start under way, and under the same name the runtime cannot run a second one beside it (F15, F22). When the runtime has
// none, the pod's status remembers (PH-36).
func (d *decision) restartCount(name string) int {
	if c := d.newest(name); c != nil {
		if d.isCurrent(c) && stateOf(c) == observed.Created {
			return max(0, c.RestartCount)
		}
		return c.RestartCount + 1
	}
	for _, statuses := range [][]v1.ContainerStatus{d.Pod.Status.InitContainerStatuses, d.Pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return countAfter(&statuses[i])
			}
		}
	}
	return 0
}

// countAfter is the restart count of the instance that follows a status. A status that waits counts an instance that was
// lost already (PH-29).
func countAfter(status *v1.ContainerStatus) int {
	last := status.LastTerminationState.Terminated
	if status.State.Running == nil && status.State.Terminated == nil &&
		(last == nil || last.Reason == reasonStatusUnknown) {
		return int(status.RestartCount)
	}
	return int(status.RestartCount) + 1
}
