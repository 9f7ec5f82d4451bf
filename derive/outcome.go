package derive

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
)

// outcome is a phase and what was said about it.
type outcome struct {
	phase           v1.PodPhase
	reason, message string
}

// outcome weighs the phase that the statuses stand for against what was already told. A terminal phase that anybody has
// seen is final: the API server's first (PH-20), then the one published last (PH-17). The kubelet lets a published
// terminal phase become the other one, so that an evicted pod whose processes exit with 0 ends as Succeeded; here it
// stays (I1).
func (d *derivation) outcome(raw v1.PodPhase, t *tally, statuses []v1.ContainerStatus) outcome {
	api, previous := &d.Pod.Status, d.previous
	switch {
	case IsTerminal(api.Phase) && api.Phase != previous.Phase:
		return outcome{api.Phase, api.Reason, api.Message}
	case IsTerminal(previous.Phase):
		return d.unchanged()
	case d.Eviction != nil:
		return outcome{v1.PodFailed, d.Eviction.Reason, d.Eviction.Message}
	}
	phase := raw
	switch {
	case raw != v1.PodPending:
	case d.initKilledForGood(statuses):
		phase = v1.PodFailed
	case previous.Phase == v1.PodRunning && !t.initializing(d.initialized):
		// A container that is not known, or not known to have run, does not undo that the pod runs (BUG-42). Only a pod
		// that must be initialized again, after a reboot, goes back (PH-15).
		phase = v1.PodRunning
	}
	if phase == previous.Phase {
		return d.unchanged()
	}
	return outcome{phase: phase}
}

// unchanged carries reason and message along with the phase that they explain (PH-18).
func (d *derivation) unchanged() outcome {
	o := outcome{d.previous.Phase, d.previous.Reason, d.previous.Message}
	if o.reason == "" {
		o.reason = d.Pod.Status.Reason
	}
	if o.message == "" {
		o.message = d.Pod.Status.Message
	}
	return o
}

// initKilledForGood reports whether an init container was killed for want of memory with exit code 0 and may not try
// again. The kubelet starts nothing more in such a pod, yet shows it as Pending for ever (PH-16).
func (d *derivation) initKilledForGood(statuses []v1.ContainerStatus) bool {
	for i := range d.Pod.Spec.InitContainers {
		container := &d.Pod.Spec.InitContainers[i]
		end := ending(statusOf(statuses, container.Name))
		if !restart.IsSidecar(container) && end != nil && end.ExitCode == 0 && !endedWell(end) &&
			!restart.ShouldRestart(&d.Pod.Spec, container, exitCodeKilled) {
			return true
		}
	}
	return false
}

// endedWell reports whether an init container has done its work. Killed for want of memory it has not, even if its exit
// code is 0 because only a child was hit (PH-16).
func endedWell(end *v1.ContainerStateTerminated) bool {
	return end != nil && end.ExitCode == 0 && end.Reason != reasonOOMKilled
}

// ActiveDeadline returns when a pod that started at start exceeds its activeDeadlineSeconds. hasDeadline is false if the
// pod has no limit or has not started. The published start time survives a restart of the agent (PH-19).
func ActiveDeadline(pod *v1.Pod, start time.Time) (deadline time.Time, hasDeadline bool) {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil || start.IsZero() {
		return time.Time{}, false
	}
	return start.Add(time.Duration(min(*limit, maxSeconds)) * time.Second), true
}

// maxSeconds keeps a number of seconds from overflowing time.Duration: 68 years.
const maxSeconds = 1 << 31

// DeadlineExceeded returns why a pod past its [ActiveDeadline] must fail, or nil before that (PH-19).
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
