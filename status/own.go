package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// ownCopy is a copy of status that shares nothing with what the setter's caller may still change (SM-9). Containers that
// are as in the status before share its memory instead: most changes touch one container, and copying all of them would
// be most of a change's cost.
func ownCopy(status, before *v1.PodStatus) v1.PodStatus {
	out := *status
	out.InitContainerStatuses, out.ContainerStatuses, out.EphemeralContainerStatuses = nil, nil, nil
	out = *out.DeepCopy()
	out.InitContainerStatuses = ownContainers(status.InitContainerStatuses, before.InitContainerStatuses)
	out.ContainerStatuses = ownContainers(status.ContainerStatuses, before.ContainerStatuses)
	out.EphemeralContainerStatuses = ownContainers(status.EphemeralContainerStatuses, before.EphemeralContainerStatuses)
	return out
}

func ownContainers(statuses, before []v1.ContainerStatus) []v1.ContainerStatus {
	if statuses == nil {
		return nil
	}
	owned := make([]v1.ContainerStatus, len(statuses))
	for i := range statuses {
		if i < len(before) && derive.EqualContainerStatus(&statuses[i], &before[i]) {
			owned[i] = before[i]
		} else {
			statuses[i].DeepCopyInto(&owned[i])
		}
	}
	return owned
}
