package derive

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// unseen is the status of a container that the runtime does not have: not created yet, or its record is gone.
func (d *derivation) unseen(spec *v1.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	status := d.untouched(spec)
	switch {
	case old == nil:
		return status
	case old.State.Terminated != nil:
		status = *old // PH-23
	default:
		status.RestartCount = old.RestartCount
		status.LastTerminationState = old.LastTerminationState
	}
	switch {
	case d.restartingAll && old.State.Waiting == nil:
		removeToRestart(&status)
	case old.State.Running != nil && status.LastTerminationState.Terminated == nil:
		// PH-29: it ran, so it ended, unseen. As a last state it keeps the pod from looking as if it had never started.
		status.LastTerminationState.Terminated = killed(reasonStatusUnknown, messageLostWhileRunning)
		if d.Pod.DeletionTimestamp == nil {
			status.RestartCount++
		}
	}
	return status
}

// untouched is the status of a container that was never heard of (PH-22).
func (d *derivation) untouched(spec *v1.Container) v1.ContainerStatus {
	reason := reasonContainerCreating
	if len(d.Pod.Spec.InitContainers) > 0 {
		reason = reasonPodInitializing
	}
	return v1.ContainerStatus{
		Name:         spec.Name,
		Image:        spec.Image,
		State:        v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
		VolumeMounts: volumeMounts(spec, d.Node.RecursiveReadOnly),
	}
}

// removeToRestart is for a container whose record was removed because the whole pod restarts in place. Its end is named
// after that, so that no policy takes it for a failure (PH-4).
func removeToRestart(status *v1.ContainerStatus) {
	status.State = v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: reasonRestartingAll, Message: messageRestartingAll},
	}
	status.LastTerminationState.Terminated = killed(reasonRestartingAll, messageRestartingAll)
	status.RestartCount++
}

// explainWaiting shows why a container that is to be started could not be. Without a reason at hand the state stays as
// it is: none is invented (PH-32).
func explainWaiting(status *v1.ContainerStatus, why Waiting) {
	if status.State.Terminated != nil {
		status.LastTerminationState = status.State
	}
	status.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// isToStart reports whether the container is to be started, or started again (PH-33). An init container that has done
// its work is not (PH-34), nor is an ephemeral one that ended (PH-42).
func (d *derivation) isToStart(
	spec *v1.Container, of ContainerKind, newest *observed.Container, old *v1.ContainerStatus,
) bool {
	if d.Pod.DeletionTimestamp != nil {
		return false
	}
	if newest == nil {
		return true
	}
	if end := keptEnd(newest, old); end != nil {
		return d.isToRunAgain(spec, of, end.ExitCode, end.Reason)
	}
	switch stateOf(newest) {
	case observed.Running:
		return false
	case observed.Exited:
		return d.isToRunAgain(spec, of, int32(newest.Exit.Code), newest.Exit.Reason)
	default:
		return true
	}
}

func (d *derivation) isToRunAgain(spec *v1.Container, of ContainerKind, exitCode int32, reason string) bool {
	switch {
	case of == EphemeralContainer:
		return false
	case of == InitContainer && exitCode == 0:
		return reason == reasonOOMKilled && restart.ShouldRestart(&d.Pod.Spec, spec, exitCodeKilled)
	default:
		return restart.ShouldRestart(&d.Pod.Spec, spec, exitCode)
	}
}

// anyRegularCreated reports whether the runtime has a regular container of the pod in a state that it can tell.
func (d *derivation) anyRegularCreated() bool {
	for i := range d.Pod.Spec.Containers {
		newest, _ := d.instances(d.Pod.Spec.Containers[i].Name)
		if newest != nil && stateOf(newest) != observed.Unknown {
			return true
		}
	}
	return false
}

// volumeMounts lists what the spec mounts, and whether read-only reaches what is mounted below.
func volumeMounts(spec *v1.Container, recursive bool) []v1.VolumeMountStatus {
	var mounts []v1.VolumeMountStatus
	for i := range spec.VolumeMounts {
		mount := &spec.VolumeMounts[i]
		status := v1.VolumeMountStatus{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly}
		if mount.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if recursive && wantsRecursive(mount) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &mode
		}
		mounts = append(mounts, status)
	}
	return mounts
}

// wantsRecursive reports whether the mount asks to be read-only with all below it, and can be: propagation would let
// writable mounts in again.
func wantsRecursive(mount *v1.VolumeMount) bool {
	asked, propagation := mount.RecursiveReadOnly, mount.MountPropagation
	if asked == nil || (propagation != nil && *propagation != v1.MountPropagationNone) {
		return false
	}
	return *asked == v1.RecursiveReadOnlyIfPossible || *asked == v1.RecursiveReadOnlyEnabled
}
