package derive

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// IsTerminal reports whether phase is final: Succeeded or Failed.
func IsTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// Phase returns the phase that follows from the container statuses alone, exactly as the kubelet computes it. It ignores
// history: [Status] additionally preserves what was published (PH-17, BUG-42).
//
// statuses are those of init and regular containers, in any order. terminating is [Input.Terminating]. initialized reports
// that a regular container of the current sandbox was created, which proves that all init containers completed once.
func Phase(pod *v1.Pod, statuses []v1.ContainerStatus, terminating, initialized bool) v1.PodPhase {
	_, phase := computePhase(pod, statuses, terminating, initialized)
	return phase
}

func computePhase(
	pod *v1.Pod, statuses []v1.ContainerStatus, terminating, initialized bool,
) (containerCounts, v1.PodPhase) {
	counts := countContainers(&pod.Spec, statuses)
	return counts, counts.phase(terminating && !podid.IsStatic(pod), initialized)
}

// setPhase uses the started flags of this status. The kubelet uses those of the previous one, so that the start of a sidecar
// affects the phase one sync later (PH-2).
func (d *derivation) setPhase(status *v1.PodStatus) {
	statuses := initAndRegular(status)
	counts, phase := computePhase(d.Pod, d.withRestarting(statuses), d.Terminating, d.initialized)
	explained := d.resolvePhase(phase, &counts, statuses)
	status.Phase, status.Reason, status.Message = explained.phase, explained.reason, explained.message
}

// withRestarting marks the containers that stopped because they, or all containers, restart, so that they count as restartable,
// whatever the policy (PH-4). The kubelet removes the records if all restart; here they stay.
func (d *derivation) withRestarting(statuses []v1.ContainerStatus) []v1.ContainerStatus {
	if d.Terminating || !d.restartingAll && len(d.Restarting) == 0 {
		return statuses
	}
	statuses = slices.Clone(statuses)
	for i := range statuses {
		instance := d.runtimePod.Newest(statuses[i].Name)
		state := &statuses[i].State
		if state.Waiting != nil && d.isRestarting(instance) {
			state = &statuses[i].LastTerminationState
		}
		if state.Terminated == nil || instance == nil || instance.Exit == nil {
			continue
		}
		if d.isRestarting(instance) || d.isStoppedForRestartAll(instance) {
			restarting := *state.Terminated
			restarting.Reason = reasonRestartingAll
			state.Terminated = &restarting
		}
	}
	return statuses
}

// isStoppedForRestartAll reports whether the exited instance stopped because all containers restart.
func (d *derivation) isStoppedForRestartAll(instance *observed.Container) bool {
	exitedAt := restart.LastRestartAll(&d.Pod.Spec, d.runtimePod)
	isOld := !instance.CreatedAt.After(exitedAt) || !instance.CreatedAt.After(d.RestartAllAt)
	return d.restartingAll && !exitedAt.IsZero() && isOld && instance.Exit.FinishedAt.After(exitedAt)
}

// containerCounts counts containers by their effect on the phase. Ephemeral containers have none (PH-5).
type containerCounts struct {
	pendingInit, failedInit int // regular init containers: not completed, failed without a restart
	pendingSidecar          int // sidecars that are not started
	// The following count sidecars and regular containers together.
	unknown, running, waiting, stopped int
	notRestartable, succeeded          int // subsets of stopped
}

func countContainers(spec *v1.PodSpec, statuses []v1.ContainerStatus) containerCounts {
	var counts containerCounts
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		if status := findStatus(statuses, container.Name); restart.IsSidecar(container) {
			counts.addSidecar(status)
		} else {
			counts.addInit(spec, container, status)
		}
	}
	for i := range spec.Containers {
		container := &spec.Containers[i]
		counts.addRegular(spec, container, findStatus(statuses, container.Name))
	}
	return counts
}

// termination returns how a container terminated that is between two runs or after its last one. While the container waits
// for its next run, that is its last state.
func termination(status *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case status == nil || status.State.Running != nil:
		return nil
	case status.State.Terminated != nil:
		return status.State.Terminated
	case status.State.Waiting != nil:
		return status.LastTerminationState.Terminated
	default:
		return nil
	}
}

// canRestart reports whether a container that terminated like this restarts. If it was stopped because all containers
// restart, it does, whatever the policy (PH-4).
func canRestart(spec *v1.PodSpec, container *v1.Container, terminated *v1.ContainerStateTerminated) bool {
	return terminated.Reason == reasonRestartingAll || restart.ShouldRestart(spec, container, terminated.ExitCode)
}

// addInit is PH-1.
func (c *containerCounts) addInit(spec *v1.PodSpec, container *v1.Container, status *v1.ContainerStatus) {
	terminated := termination(status)
	switch {
	case terminated == nil:
		c.pendingInit++
	case terminated.ExitCode != 0 && !canRestart(spec, container, terminated):
		c.failedInit++
	}
}

// addSidecar is PH-2. A terminated sidecar does not affect the phase, whether it waits for its next run or not.
func (c *containerCounts) addSidecar(status *v1.ContainerStatus) {
	switch {
	case status == nil:
		c.unknown++
	case status.State.Running != nil:
		c.running++
		if !isStarted(status) {
			c.pendingSidecar++
		}
	case termination(status) != nil:
	case status.State.Waiting != nil:
		c.pendingSidecar++
		c.waiting++
	default:
		c.pendingSidecar++
		c.unknown++
	}
}

// addRegular is PH-3. Success counts only while the container is in the terminated state: one that waits for its next run
// has not succeeded, even with exit code 0.
func (c *containerCounts) addRegular(spec *v1.PodSpec, container *v1.Container, status *v1.ContainerStatus) {
	terminated := termination(status)
	switch {
	case terminated != nil:
		c.stopped++
		if !canRestart(spec, container, terminated) {
			c.notRestartable++
		}
		if status.State.Terminated != nil && terminated.ExitCode == 0 {
			c.succeeded++
		}
	case status == nil:
		c.unknown++
	case status.State.Running != nil:
		c.running++
	case status.State.Waiting != nil:
		c.waiting++
	default:
		c.unknown++
	}
}

// isInitializing reports whether init containers have yet to complete.
func (c *containerCounts) isInitializing(initialized bool) bool {
	return c.pendingInit > 0 || (c.pendingSidecar > 0 && !initialized)
}

// phase is PH-6 to PH-11, in this order.
func (c *containerCounts) phase(terminating, initialized bool) v1.PodPhase {
	switch {
	case c.failedInit > 0:
		return v1.PodFailed
	case c.isInitializing(initialized) || c.waiting > 0:
		return v1.PodPending
	case c.unknown > 0:
		return v1.PodPending
	case c.running > 0:
		return v1.PodRunning
	case c.stopped == 0:
		return v1.PodPending
	case !terminating && c.stopped > c.notRestartable:
		return v1.PodRunning
	case c.stopped == c.succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

// explainedPhase is a phase with its reason and message.
type explainedPhase struct {
	phase           v1.PodPhase
	reason, message string
}

// resolvePhase combines the computed phase with what was published. A published terminal phase is final: first the API
// server's (PH-20), then the previous status' (PH-17). The kubelet lets one terminal phase replace the other, so that an
// evicted pod whose processes exit with 0 becomes Succeeded; here it stays Failed (I1).
func (d *derivation) resolvePhase(
	computed v1.PodPhase, counts *containerCounts, statuses []v1.ContainerStatus,
) explainedPhase {
	api, previous := &d.Pod.Status, d.previous
	switch {
	case IsTerminal(api.Phase) && api.Phase != previous.Phase:
		return explainedPhase{api.Phase, api.Reason, api.Message}
	case IsTerminal(previous.Phase):
		return d.previousPhase()
	case d.Eviction != nil:
		return explainedPhase{v1.PodFailed, d.Eviction.Reason, d.Eviction.Message}
	}
	phase := computed
	switch {
	case computed != v1.PodPending:
	case d.hasFailedOOMKilledInit(statuses):
		phase = v1.PodFailed
	case previous.Phase == v1.PodRunning && !counts.isInitializing(d.initialized):
		// A container in an unknown state does not turn a running pod Pending (BUG-42). Only a pod that must initialize
		// again, after a reboot, goes back (PH-15).
		phase = v1.PodRunning
	}
	if phase == previous.Phase {
		return d.previousPhase()
	}
	return explainedPhase{phase: phase}
}

// previousPhase keeps reason and message together with the phase that they explain (PH-18).
func (d *derivation) previousPhase() explainedPhase {
	explained := explainedPhase{d.previous.Phase, d.previous.Reason, d.previous.Message}
	if explained.reason == "" {
		explained.reason = d.Pod.Status.Reason
	}
	if explained.message == "" {
		explained.message = d.Pod.Status.Message
	}
	return explained
}

// hasFailedOOMKilledInit reports whether an init container was killed for lack of memory with exit code 0 and does not
// restart. The kubelet starts nothing more in such a pod, but shows it as Pending forever (PH-16).
func (d *derivation) hasFailedOOMKilledInit(statuses []v1.ContainerStatus) bool {
	for i := range d.Pod.Spec.InitContainers {
		container := &d.Pod.Spec.InitContainers[i]
		terminated := termination(findStatus(statuses, container.Name))
		if !restart.IsSidecar(container) && terminated != nil && terminated.ExitCode == 0 && !initSucceeded(terminated) &&
			!restart.ShouldRestartInit(&d.Pod.Spec, container, terminated.ExitCode, terminated.Reason) {
			return true
		}
	}
	return false
}

func initSucceeded(terminated *v1.ContainerStateTerminated) bool {
	return terminated != nil && restart.InitSucceeded(terminated.ExitCode, terminated.Reason)
}

// hasCreatedRegular reports whether a regular container of the current sandbox was created. The current sandbox is the
// newest one, if it is ready: containers from before a reboot prove nothing (PH-15).
func hasCreatedRegular(spec *v1.PodSpec, runtimePod *observed.Pod) bool {
	newest, ok := runtimePod.NewestSandbox()
	if !ok || !newest.Ready {
		return false
	}
	for i := range runtimePod.Containers {
		instance := &runtimePod.Containers[i]
		if instance.SandboxID == newest.ID && findContainer(spec.Containers, instance.Name) != nil {
			return true
		}
	}
	return false
}

// maxSeconds limits a number of seconds to 68 years, so that time.Duration does not overflow.
const maxSeconds = 1 << 31

// ActiveDeadline returns when a pod that started at start exceeds its activeDeadlineSeconds. hasDeadline is false if the pod
// has no limit or has not started. The published start time survives a restart of the agent (PH-19).
func ActiveDeadline(pod *v1.Pod, start time.Time) (deadline time.Time, hasDeadline bool) {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil || start.IsZero() {
		return time.Time{}, false
	}
	return start.Add(time.Duration(min(*limit, maxSeconds)) * time.Second), true
}

// DeadlineExceeded returns the eviction of a pod past its [ActiveDeadline], or nil (PH-19).
func DeadlineExceeded(pod *v1.Pod, start, now time.Time) *Eviction {
	deadline, hasDeadline := ActiveDeadline(pod, start)
	if !hasDeadline || now.Before(deadline) {
		return nil
	}
	return &Eviction{
		Reason:  "DeadlineExceeded",
		Message: "Pod was active on the node longer than the specified deadline",
	}
}
