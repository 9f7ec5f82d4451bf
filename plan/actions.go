package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/resize"
)

// ReasonCrashLoopBackOff is the waiting reason of a container that exited too soon after its start.
const ReasonCrashLoopBackOff = "CrashLoopBackOff"

// Input holds everything that [ComputeActions] depends on.
type Input struct {
	// Pod is the desired pod with its allocated resources. Of its status, only the restart counts of containers without
	// records in the runtime are read.
	Pod *v1.Pod
	// Observed is the last known state of the pod in the runtime, or nil.
	Observed *observed.Pod
	// Started holds the containers whose startup probe succeeded. A running container without a startup probe has started.
	Started map[observed.ContainerID]bool
	// Unhealthy holds the containers whose liveness or startup probe failed, with the message for the event, or "".
	Unhealthy map[observed.ContainerID]string
	// Backoff is the Backoff of the last Actions, or nil.
	Backoff Backoff
	// RestartAll is the RestartAll of the last Actions, or the zero value.
	RestartAll RestartAll
	// Actuated has the quantities that the runtime and the pod's cgroup last accepted, if they differ from those of Pod. Nil
	// means that they do not.
	Actuated resize.State
	// Restart holds the containers that somebody wants to be restarted now. A restart that was requested once is remembered in
	// the Backoff of the Actions until it is done.
	Restart map[string]RestartRequest
	// StartTime is when the pod started; activeDeadlineSeconds counts from it. Zero if the pod has not started.
	StartTime time.Time
	Now       time.Time
}

// Actions are to be executed in the order of the fields. The zero value requests nothing.
type Actions struct {
	// Evict is set if the pod must fail now. No other action comes with it. Stop the pod with TerminationOrder.
	Evict *derive.Eviction
	// Done reports that the regular containers terminated for good, or that an init container failed for good. Nothing
	// restarts. No other action comes with it. Sidecars may still run: stop the pod with TerminationOrder.
	Done bool
	// KillPod requests to stop all containers with TerminationOrder, and all sandboxes, before anything else.
	KillPod bool
	// Sandbox is the sandbox to create, or nil.
	Sandbox *NewSandbox
	// Stop lists the instances to stop before anything starts, in any order or concurrently.
	Stop []Stop
	// Resize is what to change of the pod's cgroup and of running containers, after the stops and before the starts. Nil if no
	// resize is in progress.
	Resize *resize.Change
	// Start lists the containers to start, in this order. A failed start of an init container ends the list. Any other
	// failure does not. Do not start a container if its Stop failed.
	Start []Start
	// Waiting explains, by container name, why a container is not started now.
	Waiting map[string]derive.Waiting
	// RequeueAt is when to sync again even if nothing happens. Zero if not needed.
	RequeueAt time.Time
	// Backoff is to be passed to the next call.
	Backoff Backoff
	// RestartAll is to be passed to the next call.
	RestartAll RestartAll
}

// IsEmpty reports whether nothing is to be done in the runtime.
func (a *Actions) IsEmpty() bool {
	return !a.KillPod && a.Sandbox == nil && len(a.Stop) == 0 && a.Resize == nil && len(a.Start) == 0
}

// NewSandbox is a sandbox to create. The attempt numbers of a pod only increase.
type NewSandbox struct {
	Attempt uint32
}

// Start is a container to create and start. RestartCount belongs to the new instance.
type Start struct {
	Container    *v1.Container
	Kind         derive.ContainerKind
	RestartCount int
	// IgnoreBackoff reports that a user wants the start now: earlier failures do not delay it.
	IgnoreBackoff bool
}

// ComputeActions returns what to do for one pod now. The same input yields the same actions. A pod in its desired state
// yields none. It corresponds to the kubelet's computePodActions.
func ComputeActions(in Input) Actions {
	p := &planner{Input: in, runtimePod: in.Observed}
	if p.runtimePod == nil {
		p.runtimePod = &observed.Pod{}
	}
	p.noticeRestartAll()
	p.sandboxID, p.hasSandbox = usableSandbox(in.Pod, p.runtimePod)
	p.actions.Backoff = p.updateBackoff()
	p.requestRestarts()
	p.compute()
	return p.actions
}

// planner holds the state of one ComputeActions call.
type planner struct {
	Input

	runtimePod *observed.Pod // never nil
	// sandboxID is the ID of the usable sandbox, if hasSandbox.
	sandboxID  string
	hasSandbox bool
	// restartAllAt is when all containers began to restart because of an exit. Zero if they did not.
	restartAllAt time.Time
	actions      Actions
}

func (p *planner) compute() {
	if p.actions.Evict = derive.DeadlineExceeded(p.Pod, p.StartTime, p.Now); p.actions.Evict != nil { // PH-19
		return
	}
	if p.isDone() {
		p.actions.Done = true
		return
	}
	if deadline, hasDeadline := derive.ActiveDeadline(p.Pod, p.StartTime); hasDeadline {
		p.requeueAt(deadline)
	}
	if p.hasSandbox {
		if p.stopForRestartAll() {
			return
		}
		p.stopStale()
		p.startEphemeral()
	} else {
		p.replaceSandbox()
	}
	if p.syncInitContainers() {
		p.syncRegularContainers()
	}
	p.resize()
}

func (p *planner) requeueAt(at time.Time) {
	if p.actions.RequeueAt.IsZero() || at.Before(p.actions.RequeueAt) {
		p.actions.RequeueAt = at
	}
}

// isDone reports whether nothing of the pod is to run again: it is deleted (PH-33), or it completed or failed. Such a pod
// gets no new sandbox either.
func (p *planner) isDone() bool {
	return p.Pod.DeletionTimestamp != nil || p.regularDone() || p.initFailed()
}

func (p *planner) regularDone() bool {
	for i := range p.Pod.Spec.Containers {
		container := &p.Pod.Spec.Containers[i]
		instance := p.runtimePod.Newest(container.Name)
		if instance == nil || !p.isLastRun(container, instance) {
			return false
		}
	}
	return true
}

// isLastRun reports whether the container does not run again after this instance:
//
//   - A created instance has not run (BUG-40).
//   - A running instance ends together with an unusable sandbox.
//   - An instance in an unknown state counts as terminated, so that a run-once container does not run twice (PH-28).
func (p *planner) isLastRun(container *v1.Container, instance *observed.Container) bool {
	switch derive.ContainerState(instance) {
	case observed.Created:
		return false
	case observed.Running:
		return !p.hasSandbox && !p.canRestart(container, instance)
	default:
		return !p.canRestart(container, instance)
	}
}

// isCurrent reports whether the instance belongs to the usable sandbox and to the time since the last restart of all
// containers. Older instances prove nothing about the present (PH-15).
func (p *planner) isCurrent(instance *observed.Container) bool {
	return p.hasSandbox && instance.SandboxID == p.sandboxID && !p.isBeforeRestartAll(instance)
}

// current returns the newest instance of the container if it is current, or nil.
func (p *planner) current(name string) *observed.Container {
	if instance := p.runtimePod.Newest(name); instance != nil && p.isCurrent(instance) {
		return instance
	}
	return nil
}

// canRestart reports whether the container restarts after its newest instance terminated or is stopped.
func (p *planner) canRestart(container *v1.Container, instance *observed.Container) bool {
	switch {
	case p.isPendingRestart(container, instance) || p.isBeforeRestartAll(instance):
		return true
	case derive.ContainerState(instance) != observed.Exited:
		return restart.ShouldRestartKilled(&p.Pod.Spec, container)
	default:
		return restart.ShouldRestart(&p.Pod.Spec, container, int32(instance.Exit.Code))
	}
}

// start requests a new instance, or explains why there is none now. Two containers may have the same name; only one is
// started. stopped is the instance that it replaces, or nil.
func (p *planner) start(container *v1.Container, kind derive.ContainerKind, stopped *observed.Container) {
	if waiting, isWaiting := p.backoffOf(container, stopped); isWaiting {
		if p.actions.Waiting == nil {
			p.actions.Waiting = map[string]derive.Waiting{}
		}
		p.actions.Waiting[container.Name] = waiting
		p.requeueAt(waiting.Until)
		return
	}
	if slices.ContainsFunc(p.actions.Start, func(start Start) bool { return start.Container.Name == container.Name }) {
		return
	}
	request, isRequested := p.Restart[container.Name]
	p.actions.Start = append(p.actions.Start, Start{
		Container: container, Kind: kind, RestartCount: p.nextRestartCount(container.Name),
		IgnoreBackoff: isRequested && !request.ByAction,
	})
}

// nextRestartCount returns the restart count of the container's next instance: one more than the newest, so that it is
// unique. An instance that was created but never started keeps its number. A crashed agent may have left its start in
// flight, and the runtime cannot run a second instance under the same name (F15, F22). Without a record in the runtime, the
// count continues from the pod's status (PH-36).
func (p *planner) nextRestartCount(name string) int {
	if instance := p.runtimePod.Newest(name); instance != nil {
		if p.isCurrent(instance) && derive.ContainerState(instance) == observed.Created {
			return max(0, instance.RestartCount)
		}
		return instance.RestartCount + 1
	}
	for _, statuses := range [][]v1.ContainerStatus{p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return restartCountAfter(&statuses[i])
			}
		}
	}
	return 0
}

// restartCountAfter returns the restart count of the instance that follows a status. A waiting status already counts a lost
// instance (PH-29).
func restartCountAfter(status *v1.ContainerStatus) int {
	last := status.LastTerminationState.Terminated
	if status.State.Running == nil && status.State.Terminated == nil &&
		(last == nil || last.Reason == derive.ReasonContainerStatusUnknown) {
		return int(status.RestartCount)
	}
	return int(status.RestartCount) + 1
}

// RunsOnce reports whether a container that started and was lost must not start again: it may have completed, and its pod's
// policy allows no second run (BUG-41).
func RunsOnce(pod *v1.Pod, start Start) bool {
	return start.Kind == derive.RegularContainer && !restart.ShouldRestartKilled(&pod.Spec, start.Container)
}
