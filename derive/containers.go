package derive

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// The kubelet's reasons and messages for containers that do not run, byte for byte.
const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonRestartingAll     = "RestartingAllContainers"
	reasonCompleted         = "Completed"

	messageLostAtTermination = "The container could not be located when the pod was terminated"
	messageLostWhileRunning  = "The container could not be located when the pod was deleted.  " +
		"The container used to be Running"
	messageRestartingAll = "The container is removed because RestartAllContainers in place"
	messageInitForgotten = "Unable to get init container status from container runtime " +
		"and pod has been initialized, treat it as exited normally"
)

// ReasonContainerStatusUnknown is the termination reason of a container whose exit was not observed.
const ReasonContainerStatusUnknown = "ContainerStatusUnknown"

// ContainerState returns the state of an instance. A container that exited without an exit record counts as Unknown.
func ContainerState(instance *observed.Container) observed.State {
	if instance.State == observed.Exited && instance.Exit == nil {
		return observed.Unknown
	}
	return instance.State
}

// containerStatuses returns a status for each container, in spec order.
func (d *derivation) containerStatuses(
	containers []v1.Container, kind ContainerKind, previous []v1.ContainerStatus,
) []v1.ContainerStatus {
	statuses := make([]v1.ContainerStatus, 0, len(containers))
	for i := range containers {
		container := &containers[i]
		statuses = append(statuses, d.containerStatus(container, kind, findStatus(previous, container.Name)))
	}
	return statuses
}

func (d *derivation) containerStatus(
	container *v1.Container, kind ContainerKind, previous *v1.ContainerStatus,
) v1.ContainerStatus {
	newest, prior := d.instances(container.Name)
	var status v1.ContainerStatus
	if newest == nil {
		status = d.missingStatus(container, previous)
	} else {
		status = d.instanceStatus(container, newest, previous)
		if kind != EphemeralContainer {
			inheritProbeResults(&status, previous)
		}
		if terminated := d.priorTermination(prior, previous); terminated != nil {
			status.LastTerminationState.Terminated = terminated
		}
	}
	if kind == InitContainer && newest == nil && !restart.IsSidecar(container) && status.State.Waiting != nil &&
		d.hasKnownRegular() {
		// PH-30: a regular container exists, so the record of this init container was garbage collected.
		status.State = v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{Reason: reasonCompleted, Message: messageInitForgotten},
		}
		return status
	}
	if waiting, ok := d.Waiting[container.Name]; ok && d.shouldStart(container, kind, newest, previous) {
		setWaiting(&status, waiting)
	} else if d.isRestarting(newest) && !d.shouldRestart(container, kind, int32(newest.Exit.Code), newest.Exit.Reason) {
		setWaiting(&status, Waiting{Reason: reasonContainerCreating}) // a terminated state would be final (SM-23)
	}
	return status
}

// instances returns the two newest instances of a container: the first determines the state, the second the last
// termination state (PH-24).
func (d *derivation) instances(name string) (newest, prior *observed.Container) {
	for i := range d.runtimePod.Containers {
		instance := &d.runtimePod.Containers[i]
		switch {
		case instance.Name != name:
		case newest == nil:
			newest = instance
		default:
			return newest, instance
		}
	}
	return newest, nil
}

// priorTermination returns how the instance before the newest terminated, or nil. The kubelet shows its state, whatever it
// is. Here an instance that never started, or whose state is unknown, does not hide an earlier termination (BUG-40).
func (d *derivation) priorTermination(prior *observed.Container, previous *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if prior == nil {
		return nil
	}
	return d.containerState(prior, previous).Terminated
}

// instanceStatus returns the status of a container that exists in the runtime.
func (d *derivation) instanceStatus(
	container *v1.Container, instance *observed.Container, previous *v1.ContainerStatus,
) v1.ContainerStatus {
	status := v1.ContainerStatus{
		Name:         instance.Name,
		State:        d.containerState(instance, previous),
		RestartCount: restartCount(instance, previous),
		Image:        instance.Image.Name,
		ImageID:      instance.Image.Ref, // PH-37
		ContainerID:  instance.ID.String(),
		User:         containerUser(instance.User),
	}
	if previous == nil {
		status.VolumeMounts = volumeMounts(container, d.Node.RecursiveReadOnly)
	} else {
		status.VolumeMounts = previous.VolumeMounts
		status.LastTerminationState.Terminated = publishedTermination(previous, status.ContainerID)
	}
	status.AllocatedResources = container.Resources.Requests
	status.Resources = containerResources(container, instance, previous)
	return status
}

// publishedTermination returns the termination before this instance according to the previous status. The runtime's record
// of the prior instance overrides it, but after a restart of all containers there is none.
func publishedTermination(previous *v1.ContainerStatus, containerID string) *v1.ContainerStateTerminated {
	if previous.ContainerID != containerID && previous.State.Terminated != nil {
		return previous.State.Terminated
	}
	return previous.LastTerminationState.Terminated
}

// inheritProbeResults preserves the published flags of the same instance across a restart of the agent (PH-38, I16). The
// kubelet matches by name, and takes a replaced container for started.
func inheritProbeResults(status, previous *v1.ContainerStatus) {
	if previous != nil && status.State.Running != nil && previous.ContainerID == status.ContainerID {
		status.Started = previous.Started
		status.Ready = previous.Ready
	}
}

// restartCount never decreases (I3). A restart of all containers removes the runtime's records, so the count continues from
// the previous status. An instance that was lost and runs again was counted when it was lost.
func restartCount(instance *observed.Container, previous *v1.ContainerStatus) int32 {
	count := int32(instance.RestartCount)
	switch {
	case previous == nil:
		return count
	case instance.State == observed.Running && previous.State.Terminated != nil && previous.RestartCount >= count &&
		previous.ContainerID != instance.ID.String():
		return previous.RestartCount + 1
	case wasLost(instance, previous):
		return previous.RestartCount + 1
	default:
		return max(count, previous.RestartCount)
	}
}

// wasLost reports whether a container that ran is now in an unknown state. It counts as terminated: as a container that
// never ran, a run-once container could run twice (PH-28).
func wasLost(instance *observed.Container, previous *v1.ContainerStatus) bool {
	return ContainerState(instance) == observed.Unknown && previous != nil && previous.State.Running != nil
}

// keptTermination returns the published termination of an instance whose state is now unknown, or nil (PH-28).
func keptTermination(instance *observed.Container, previous *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if ContainerState(instance) != observed.Unknown || previous == nil || previous.ContainerID != instance.ID.String() {
		return nil
	}
	return previous.State.Terminated
}

// containerState is PH-25 to PH-28. A container that was published as terminated stays so while its state is unknown. The
// kubelet shows it as waiting, which is an illegal transition or turns the pod Pending (BUG-42, I2).
func (d *derivation) containerState(instance *observed.Container, previous *v1.ContainerStatus) v1.ContainerState {
	switch {
	case keptTermination(instance, previous) != nil:
		return previous.State
	case wasLost(instance, previous):
		reason := ReasonContainerStatusUnknown
		if d.restartingAll {
			reason = reasonRestartingAll
		}
		return v1.ContainerState{Terminated: newKilled(reason, messageLostAtTermination)}
	case ContainerState(instance) == observed.Running:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: toSeconds(instance.StartedAt)}}
	case ContainerState(instance) == observed.Exited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    int32(instance.Exit.Code),
			Reason:      instance.Exit.Reason,
			Message:     instance.Exit.Message,
			StartedAt:   toSeconds(instance.StartedAt),
			FinishedAt:  toSeconds(instance.Exit.FinishedAt),
			ContainerID: instance.ID.String(),
		}}
	default:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// newKilled returns the termination of a container whose exit was not observed.
func newKilled(reason, message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: restart.ExitCodeKilled, Reason: reason, Message: message}
}

// toSeconds truncates a time to the precision of the API server (SM-28).
func toSeconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// containerUser returns nil if the runtime does not report the user.
func containerUser(user *observed.User) *v1.ContainerUser {
	if user == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID: user.UID, GID: user.GID, SupplementalGroups: user.SupplementalGroups,
	}}
}

// missingStatus returns the status of a container that the runtime does not have: it was not created yet, or its record is
// gone.
func (d *derivation) missingStatus(container *v1.Container, previous *v1.ContainerStatus) v1.ContainerStatus {
	status := d.initialStatus(container)
	switch {
	case previous == nil:
		return status
	case previous.State.Terminated != nil:
		status = *previous // PH-23
	default:
		status.RestartCount = previous.RestartCount
		status.LastTerminationState = previous.LastTerminationState
	}
	switch {
	case d.restartingAll && previous.State.Waiting == nil:
		setRemovedForRestart(&status)
	case previous.State.Running != nil && status.LastTerminationState.Terminated == nil:
		// PH-29: the container ran, so it terminated unobserved. The last termination state keeps the pod from looking as
		// if the container had never started.
		status.LastTerminationState.Terminated = newKilled(ReasonContainerStatusUnknown, messageLostWhileRunning)
		if d.Pod.DeletionTimestamp == nil {
			status.RestartCount++
		}
	}
	return status
}

// initialStatus returns the status of a container without history (PH-22).
func (d *derivation) initialStatus(container *v1.Container) v1.ContainerStatus {
	reason := reasonContainerCreating
	if len(d.Pod.Spec.InitContainers) > 0 {
		reason = reasonPodInitializing
	}
	return v1.ContainerStatus{
		Name:         container.Name,
		Image:        container.Image,
		State:        v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
		VolumeMounts: volumeMounts(container, d.Node.RecursiveReadOnly),
	}
}

// setRemovedForRestart marks a container whose record was removed because all containers restart in place. The reason keeps
// restart policies from treating it as a failure (PH-4).
func setRemovedForRestart(status *v1.ContainerStatus) {
	status.State = v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: reasonRestartingAll, Message: messageRestartingAll},
	}
	status.LastTerminationState.Terminated = newKilled(reasonRestartingAll, messageRestartingAll)
	status.RestartCount++
}

// setWaiting shows why a container was not started. Without an explanation the state stays as it is (PH-32).
func setWaiting(status *v1.ContainerStatus, waiting Waiting) {
	if status.State.Terminated != nil {
		status.LastTerminationState = status.State
	}
	status.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: waiting.Reason, Message: waiting.Message}}
}

// isRestarting reports whether the instance has exited because it is replaced.
func (d *derivation) isRestarting(instance *observed.Container) bool {
	return instance != nil && d.Restarting[instance.ID] && ContainerState(instance) == observed.Exited &&
		!d.Terminating && d.Pod.DeletionTimestamp == nil
}

// shouldStart reports whether the container is to be started or restarted (PH-33). A completed init container (PH-34) and a
// terminated ephemeral container (PH-42) are not.
func (d *derivation) shouldStart(
	container *v1.Container, kind ContainerKind, newest *observed.Container, previous *v1.ContainerStatus,
) bool {
	if d.Pod.DeletionTimestamp != nil {
		return false
	}
	if newest == nil || d.isRestarting(newest) {
		return true
	}
	if terminated := keptTermination(newest, previous); terminated != nil {
		return d.shouldRestart(container, kind, terminated.ExitCode, terminated.Reason)
	}
	switch ContainerState(newest) {
	case observed.Running:
		return false
	case observed.Exited:
		return d.shouldRestart(container, kind, int32(newest.Exit.Code), newest.Exit.Reason)
	default:
		return true
	}
}

func (d *derivation) shouldRestart(container *v1.Container, kind ContainerKind, exitCode int32, reason string) bool {
	switch kind {
	case EphemeralContainer:
		return false
	case InitContainer:
		return restart.ShouldRestartInit(&d.Pod.Spec, container, exitCode, reason)
	default:
		return restart.ShouldRestart(&d.Pod.Spec, container, exitCode)
	}
}

// hasKnownRegular reports whether the runtime has a regular container of the pod in a known state.
func (d *derivation) hasKnownRegular() bool {
	for i := range d.Pod.Spec.Containers {
		newest := d.runtimePod.Newest(d.Pod.Spec.Containers[i].Name)
		if newest != nil && ContainerState(newest) != observed.Unknown {
			return true
		}
	}
	return false
}

// volumeMounts lists the container's mounts, and whether read-only is recursive.
func volumeMounts(container *v1.Container, recursive bool) []v1.VolumeMountStatus {
	var mounts []v1.VolumeMountStatus
	for i := range container.VolumeMounts {
		mount := &container.VolumeMounts[i]
		status := v1.VolumeMountStatus{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly}
		if mount.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if recursive && wantsRecursiveReadOnly(mount) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &mode
		}
		mounts = append(mounts, status)
	}
	return mounts
}

// wantsRecursiveReadOnly reports whether the mount asks for recursive read-only. It excludes mount propagation, which would
// bring in writable mounts.
func wantsRecursiveReadOnly(mount *v1.VolumeMount) bool {
	mode, propagation := mount.RecursiveReadOnly, mount.MountPropagation
	if mode == nil || (propagation != nil && *propagation != v1.MountPropagationNone) {
		return false
	}
	return *mode == v1.RecursiveReadOnlyIfPossible || *mode == v1.RecursiveReadOnlyEnabled
}

// findStatus returns the container status with this name, or nil.
func findStatus(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// findContainer returns the container with this name, or nil.
func findContainer(containers []v1.Container, name string) *v1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// initContainerAt returns the init container that belongs to the status at index. Specs and statuses correspond by index
// and name (SM-45). It returns nil if they do not.
func initContainerAt(spec *v1.PodSpec, statuses []v1.ContainerStatus, index int) *v1.Container {
	if index >= len(spec.InitContainers) || spec.InitContainers[index].Name != statuses[index].Name {
		return nil
	}
	return &spec.InitContainers[index]
}
