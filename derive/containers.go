package derive

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// What the kubelet writes where a container does not run, word for word.
const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonRestartingAll     = "RestartingAllContainers"
	reasonStatusUnknown     = "ContainerStatusUnknown"
	reasonOOMKilled         = "OOMKilled"
	reasonCompleted         = "Completed"

	messageLostAtTermination = "The container could not be located when the pod was terminated"
	messageLostWhileRunning  = "The container could not be located when the pod was deleted.  " +
		"The container used to be Running"
	messageRestartingAll = "The container is removed because RestartAllContainers in place"
	messageInitForgotten = "Unable to get init container status from container runtime " +
		"and pod has been initialized, treat it as exited normally"

	// exitCodeKilled stands for an end that nobody saw: never a success.
	exitCodeKilled = 137
)

// containerStatuses has a status for each container of the spec, in the spec's order.
func (d *derivation) containerStatuses(
	specs []v1.Container, of ContainerKind, previous []v1.ContainerStatus,
) []v1.ContainerStatus {
	statuses := make([]v1.ContainerStatus, 0, len(specs))
	for i := range specs {
		statuses = append(statuses, d.containerStatus(&specs[i], of, statusOf(previous, specs[i].Name)))
	}
	return statuses
}

func (d *derivation) containerStatus(spec *v1.Container, of ContainerKind, old *v1.ContainerStatus) v1.ContainerStatus {
	newest, before := d.instances(spec.Name)
	var status v1.ContainerStatus
	if newest == nil {
		status = d.unseen(spec, old)
	} else {
		status = d.seenAs(spec, newest, old)
		if of != EphemeralContainer {
			inheritProbes(&status, old)
		}
		if end := d.endOf(before, old); end != nil {
			status.LastTerminationState.Terminated = end
		}
	}
	if of == InitContainer && newest == nil && !restart.IsSidecar(spec) && status.State.Waiting != nil && d.anyRegularCreated() {
		// PH-30: its record is gone, but what comes after it exists. The record was collected early.
		status.State = v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{Reason: reasonCompleted, Message: messageInitForgotten},
		}
		return status
	}
	if waiting, known := d.Waiting[spec.Name]; known && d.isToStart(spec, of, newest, old) {
		explainWaiting(&status, waiting)
	}
	return status
}

// instances are the two newest of that name: the first gives the status, the second the last state (PH-24).
func (d *derivation) instances(name string) (newest, before *observed.Container) {
	for i := range d.seen.Containers {
		c := &d.seen.Containers[i]
		switch {
		case c.Name != name:
		case newest == nil:
			newest = c
		default:
			return newest, c
		}
	}
	return newest, nil
}

// endOf is how the instance before the newest ended. The kubelet shows its state, whatever it is; one that was created
// and never started, or of which nothing is known, has not ended, and hides no earlier end (BUG-40).
func (d *derivation) endOf(before *observed.Container, old *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if before == nil {
		return nil
	}
	return d.state(before, old).Terminated
}

// seenAs is the status of a container that the runtime has.
func (d *derivation) seenAs(spec *v1.Container, c *observed.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	status := v1.ContainerStatus{
		Name:         c.Name,
		State:        d.state(c, old),
		RestartCount: restartCount(c, old),
		Image:        c.Image.Name,
		ImageID:      c.Image.Ref, // PH-37
		ContainerID:  c.ID.String(),
		User:         user(c.User),
	}
	if old == nil {
		status.VolumeMounts = volumeMounts(spec, d.Node.RecursiveReadOnly)
	} else {
		status.VolumeMounts = old.VolumeMounts
		status.LastTerminationState.Terminated = lastEnd(old, status.ContainerID)
	}
	status.AllocatedResources = spec.Resources.Requests
	status.Resources = containerResources(spec, c, old)
	return status
}

// lastEnd is the end before this instance as far as the status before tells. The runtime's own record of the instance
// before, where there is one, overrides it; after a restart of all containers there is none.
func lastEnd(old *v1.ContainerStatus, containerID string) *v1.ContainerStateTerminated {
	if old.ContainerID != containerID && old.State.Terminated != nil {
		return old.State.Terminated
	}
	return old.LastTerminationState.Terminated
}

// inheritProbes keeps what was known of this very container across a restart of the agent (PH-38, I16). The kubelet
// goes by name, and takes a container that was replaced for started.
func inheritProbes(status, old *v1.ContainerStatus) {
	if old != nil && status.State.Running != nil && old.ContainerID == status.ContainerID {
		status.Started = old.Started
		status.Ready = old.Ready
	}
}

// restartCount never falls (I3). A restart of all containers removes the records that it is counted from, so that the
// count is continued from the status before.
func restartCount(c *observed.Container, old *v1.ContainerStatus) int32 {
	counted := int32(c.RestartCount)
	switch {
	case old == nil:
		return counted
	case c.State == observed.Running && old.State.Terminated != nil && old.RestartCount >= counted:
		return old.RestartCount + 1
	case lostSight(c, old):
		return old.RestartCount + 1
	default:
		return max(counted, old.RestartCount)
	}
}

// lostSight reports whether a container that ran is now in a state that the runtime cannot tell. It has ended: taking
// it for one that never ran could run a run-once container twice (PH-28).
func lostSight(c *observed.Container, old *v1.ContainerStatus) bool {
	return stateOf(c) == observed.Unknown && old != nil && old.State.Running != nil
}

// keptEnd is how this very container was shown to have ended, while the runtime cannot tell its state; else nil (PH-28).
func keptEnd(c *observed.Container, old *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if stateOf(c) != observed.Unknown || old == nil || old.ContainerID != c.ID.String() {
		return nil
	}
	return old.State.Terminated
}

// stateOf distrusts an exit without evidence.
func stateOf(c *observed.Container) observed.State {
	if c.State == observed.Exited && c.Exit == nil {
		return observed.Unknown
	}
	return c.State
}

// state is PH-25 to PH-28. A container that was shown as ended stays so while the runtime cannot tell its state: the
// kubelet shows it as waiting, which is illegal or turns the pod Pending (BUG-42, I2).
func (d *derivation) state(c *observed.Container, old *v1.ContainerStatus) v1.ContainerState {
	switch {
	case keptEnd(c, old) != nil:
		return old.State
	case lostSight(c, old):
		reason := reasonStatusUnknown
		if d.restartingAll {
			reason = reasonRestartingAll
		}
		return v1.ContainerState{Terminated: killed(reason, messageLostAtTermination)}
	case stateOf(c) == observed.Running:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: second(c.StartedAt)}}
	case stateOf(c) == observed.Exited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    int32(c.Exit.Code),
			Reason:      c.Exit.Reason,
			Message:     c.Exit.Message,
			StartedAt:   second(c.StartedAt),
			FinishedAt:  second(c.Exit.FinishedAt),
			ContainerID: c.ID.String(),
		}}
	default:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// killed is the end of a container that nobody saw.
func killed(reason, message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: exitCodeKilled, Reason: reason, Message: message}
}

// second is a time as the API server keeps it (SM-28).
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// user is nil when the runtime does not say.
func user(seen *observed.User) *v1.ContainerUser {
	if seen == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID: seen.UID, GID: seen.GID, SupplementalGroups: seen.SupplementalGroups,
	}}
}
