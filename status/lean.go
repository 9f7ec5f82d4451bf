package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// leanOn lets go of what the address book's copy of the object has too. That copy is in memory anyway, and most of the
// time it says what the entry says: so a pod at rest costs little more than its name.
func (e *entry) leanOn(known *v1.Pod, mirror bool) {
	if !newer(e.object.version, known.ResourceVersion) {
		e.object.status = nil
	}
	if !mirror && newer(known.ResourceVersion, e.pod.ResourceVersion) {
		e.pod = known
	}
	if !e.unsent() {
		lean := sharing(e.status, &known.Status)
		e.status = &lean
	}
}

// sharing is the status with those of its lists that the other one has as well in the other's memory. Neither is ever
// modified.
func sharing(status, other *v1.PodStatus) v1.PodStatus {
	lean := *status
	lean.Conditions = either(status.Conditions, other.Conditions, sameCondition)
	lean.InitContainerStatuses = either(status.InitContainerStatuses, other.InitContainerStatuses, derive.EqualContainerStatus)
	lean.ContainerStatuses = either(status.ContainerStatuses, other.ContainerStatuses, derive.EqualContainerStatus)
	lean.EphemeralContainerStatuses = either(
		status.EphemeralContainerStatuses, other.EphemeralContainerStatuses, derive.EqualContainerStatus)
	lean.PodIPs = either(status.PodIPs, other.PodIPs, func(a, b *v1.PodIP) bool { return *a == *b })
	lean.HostIPs = either(status.HostIPs, other.HostIPs, func(a, b *v1.HostIP) bool { return *a == *b })
	if status.StartTime.Equal(other.StartTime) {
		lean.StartTime = other.StartTime
	}
	return lean
}

// either is the other list if it is the same, element by element.
func either[T any](list, other []T, same func(a, b *T) bool) []T {
	if len(list) == 0 || len(list) != len(other) {
		return list
	}
	for i := range list {
		if !same(&list[i], &other[i]) {
			return list
		}
	}
	return other
}

func sameCondition(a, b *v1.PodCondition) bool {
	x, y := *a, *b
	sameTimes := x.LastProbeTime.Equal(&y.LastProbeTime) && x.LastTransitionTime.Equal(&y.LastTransitionTime)
	x.LastProbeTime, x.LastTransitionTime = y.LastProbeTime, y.LastTransitionTime
	return sameTimes && x == y
}
