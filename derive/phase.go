package derive

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Phase is the phase that the container statuses alone stand for, exactly as the kubelet computes it. It knows no
// history: [Status] uses it and then keeps what was published (PH-17, BUG-42).
//
// statuses are those of init and regular containers, in any order. terminating is [Input.Terminating]; initialized
// tells that a regular container of the current sandbox was created, so that all init containers have done their work
// once.
func Phase(pod *v1.Pod, statuses []v1.ContainerStatus, terminating, initialized bool) v1.PodPhase {
	_, phase := tallied(pod, statuses, terminating, initialized)
	return phase
}

func tallied(pod *v1.Pod, statuses []v1.ContainerStatus, terminating, initialized bool) (tally, v1.PodPhase) {
	t := count(&pod.Spec, statuses)
	return t, t.phase(terminating && !podid.IsStatic(pod), initialized)
}

// tally counts containers by what they mean for the phase. Ephemeral containers mean nothing (PH-5).
type tally struct {
	pendingInit, fatalInit int // regular init containers: have work to do, will never succeed
	pendingSidecar         int // sidecars that are not started
	// The rest counts sidecars and regular containers together.
	unknown, running, waiting, stopped int
	notRestartable, succeeded          int // of those that stopped
}

func count(spec *v1.PodSpec, statuses []v1.ContainerStatus) tally {
	var t tally
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		if status := statusOf(statuses, container.Name); restart.IsSidecar(container) {
			t.addSidecar(status)
		} else {
			t.addInit(spec, container, status)
		}
	}
	for i := range spec.Containers {
		container := &spec.Containers[i]
		t.addRegular(spec, container, statusOf(statuses, container.Name))
	}
	return t
}

// ending is how the container ended, if it is between two runs or after its last: its state, or while it waits for its
// next run the state before.
func ending(status *v1.ContainerStatus) *v1.ContainerStateTerminated {
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

// mayRunAgain reports whether a container that ended like this is started again. One that was ended because the whole
// pod restarts is, whatever the policy (PH-4).
func mayRunAgain(spec *v1.PodSpec, container *v1.Container, end *v1.ContainerStateTerminated) bool {
	return end.Reason == reasonRestartingAll || restart.ShouldRestart(spec, container, end.ExitCode)
}

// addInit is PH-1.
func (t *tally) addInit(spec *v1.PodSpec, container *v1.Container, status *v1.ContainerStatus) {
	end := ending(status)
	switch {
	case end == nil:
		t.pendingInit++
	case end.ExitCode != 0 && !mayRunAgain(spec, container, end):
		t.fatalInit++
	}
}

// addSidecar is PH-2. One that ended, waiting for its next run or not, does not change the phase.
func (t *tally) addSidecar(status *v1.ContainerStatus) {
	switch {
	case status == nil:
		t.unknown++
	case status.State.Running != nil:
		t.running++
		if status.Started == nil || !*status.Started {
			t.pendingSidecar++
		}
	case ending(status) != nil:
	case status.State.Waiting != nil:
		t.pendingSidecar++
		t.waiting++
	default:
		t.pendingSidecar++
		t.unknown++
	}
}

// addRegular is PH-3. Success counts only while the end is the container's state: one that waits for its next run has
// not succeeded, even with code 0.
func (t *tally) addRegular(spec *v1.PodSpec, container *v1.Container, status *v1.ContainerStatus) {
	end := ending(status)
	switch {
	case end != nil:
		t.stopped++
		if !mayRunAgain(spec, container, end) {
			t.notRestartable++
		}
		if status.State.Terminated != nil && end.ExitCode == 0 {
			t.succeeded++
		}
	case status == nil:
		t.unknown++
	case status.State.Running != nil:
		t.running++
	case status.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// initializing reports whether init containers still have to do their work.
func (t *tally) initializing(initialized bool) bool {
	return t.pendingInit > 0 || (t.pendingSidecar > 0 && !initialized)
}

// phase is PH-6 to PH-11, in this order.
func (t *tally) phase(ended, initialized bool) v1.PodPhase {
	switch {
	case t.fatalInit > 0:
		return v1.PodFailed
	case t.initializing(initialized) || t.waiting > 0:
		return v1.PodPending
	case t.unknown > 0:
		return v1.PodPending
	case t.running > 0:
		return v1.PodRunning
	case t.stopped == 0:
		return v1.PodPending
	case !ended && t.stopped > t.notRestartable:
		return v1.PodRunning
	case t.stopped == t.succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

// wasInitialized reports whether a regular container of the current sandbox was created. The current sandbox is the
// newest, if it is ready: leftovers from before a reboot prove nothing (PH-15).
func wasInitialized(spec *v1.PodSpec, seen *observed.Pod) bool {
	newest, ok := seen.NewestSandbox()
	if !ok || !newest.Ready {
		return false
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if c.SandboxID == newest.ID && isRegular(spec, c.Name) {
			return true
		}
	}
	return false
}

func isRegular(spec *v1.PodSpec, name string) bool {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return true
		}
	}
	return false
}

// IsTerminal reports whether phase is final: Succeeded or Failed.
func IsTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }
