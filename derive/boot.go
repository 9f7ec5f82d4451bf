package derive

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// messageBooted is the message of a container that ran before the machine booted.
const messageBooted = "The machine has booted since the container was last observed."

// AfterBoot returns what is known of a pod that was last observed before boot: its containers do not run any more, and neither
// their end nor their successors were observed yet. A pod that has ended, or of which no container started before boot, keeps its
// status.
func AfterBoot(pod *v1.Pod, status v1.PodStatus, boot time.Time) v1.PodStatus {
	if IsTerminal(status.Phase) {
		return status
	}
	lost := false
	for _, list := range []*[]v1.ContainerStatus{
		&status.InitContainerStatuses, &status.ContainerStatuses, &status.EphemeralContainerStatuses,
	} {
		*list = slices.Clone(*list) // the status is shared
		for i := range *list {
			container := &(*list)[i]
			if running := container.State.Running; running != nil && running.StartedAt.Time.Before(boot) {
				lost = true
				container.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
					Reason: ReasonContainerStatusUnknown, Message: messageBooted,
				}}
				container.Ready, container.Started = false, new(false)
			}
		}
	}
	if !lost {
		return status
	}
	status.Phase = v1.PodUnknown
	statuses := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
	status.Conditions = slices.Clone(status.Conditions)
	for _, condition := range []v1.PodCondition{
		ContainersReadyCondition(pod, statuses, status.Phase), ReadyCondition(pod, status.Conditions, statuses, status.Phase),
	} {
		condition.LastTransitionTime = metav1.NewTime(boot)
		status.Conditions = setCondition(status.Conditions, condition)
	}
	return status
}
