package derive

import (
	v1 "k8s.io/api/core/v1"
)

// Equal reports whether two normal statuses say the same in what the agent owns, without allocating (SM-32).
//
// Of conditions only the owned and the shared types count, by status, reason and message: a time that moved or a
// generation that was seen is no reason to write. What others write does not count: their conditions, the fields about
// resource claims, nominatedNodeName; nor does qosClass, which is fixed at creation. Empty and absent lists are the
// same, and quantities are compared by value.
//
// Every field is compared or named here as not compared; a test goes through the API's types to see to that.
func Equal(a, b *v1.PodStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration &&
		a.Phase == b.Phase &&
		a.Message == b.Message &&
		a.Reason == b.Reason &&
		a.HostIP == b.HostIP &&
		a.PodIP == b.PodIP &&
		a.Resize == b.Resize &&
		equalEach(a.HostIPs, b.HostIPs, equalComparable) &&
		equalEach(a.PodIPs, b.PodIPs, equalComparable) &&
		a.StartTime.Equal(b.StartTime) &&
		equalConditions(a.Conditions, b.Conditions) &&
		equalEach(a.InitContainerStatuses, b.InitContainerStatuses, EqualContainerStatus) &&
		equalEach(a.ContainerStatuses, b.ContainerStatuses, EqualContainerStatus) &&
		equalEach(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses, EqualContainerStatus) &&
		equalQuantities(a.AllocatedResources, b.AllocatedResources) &&
		equalRequirements(a.Resources, b.Resources)
}

// equalConditions asks for each type that counts, so that neither order nor others' conditions matter.
func equalConditions(a, b []v1.PodCondition) bool {
	for _, kind := range ownedConditions {
		if !equalCondition(conditionOf(a, kind), conditionOf(b, kind)) {
			return false
		}
	}
	return equalCondition(conditionOf(a, v1.DisruptionTarget), conditionOf(b, v1.DisruptionTarget))
}

func equalCondition(a, b *v1.PodCondition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// EqualContainer reports whether two normal container statuses say the same, without allocating.
func EqualContainerStatus(a, b *v1.ContainerStatus) bool {
	return a.Name == b.Name &&
		a.Ready == b.Ready &&
		a.RestartCount == b.RestartCount &&
		a.ContainerID == b.ContainerID &&
		a.Image == b.Image &&
		a.ImageID == b.ImageID &&
		equalPointed(a.Started, b.Started) &&
		equalState(&a.State, &b.State) &&
		equalState(&a.LastTerminationState, &b.LastTerminationState) &&
		equalQuantities(a.AllocatedResources, b.AllocatedResources) &&
		equalRequirements(a.Resources, b.Resources) &&
		equalEach(a.VolumeMounts, b.VolumeMounts, equalMount) &&
		equalUser(a.User, b.User) &&
		equalEach(a.AllocatedResourcesStatus, b.AllocatedResourcesStatus, equalHealths) &&
		equalPointed(a.StopSignal, b.StopSignal)
}

func equalState(a, b *v1.ContainerState) bool {
	return equalPointed(a.Waiting, b.Waiting) &&
		equalRunning(a.Running, b.Running) &&
		equalTerminated(a.Terminated, b.Terminated)
}

func equalRunning(a, b *v1.ContainerStateRunning) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.StartedAt.Equal(&b.StartedAt)
}

func equalTerminated(a, b *v1.ContainerStateTerminated) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ExitCode == b.ExitCode &&
		a.Signal == b.Signal &&
		a.Reason == b.Reason &&
		a.Message == b.Message &&
		a.ContainerID == b.ContainerID &&
		a.StartedAt.Equal(&b.StartedAt) &&
		a.FinishedAt.Equal(&b.FinishedAt)
}

func equalRequirements(a, b *v1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalQuantities(a.Limits, b.Limits) &&
		equalQuantities(a.Requests, b.Requests) &&
		equalEach(a.Claims, b.Claims, equalComparable)
}

func equalQuantities(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		other, ok := b[name]
		if !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

func equalMount(a, b *v1.VolumeMountStatus) bool {
	return a.Name == b.Name &&
		a.MountPath == b.MountPath &&
		a.ReadOnly == b.ReadOnly &&
		equalPointed(a.RecursiveReadOnly, b.RecursiveReadOnly) &&
		equalVolume(a.VolumeStatus, b.VolumeStatus)
}

func equalVolume(a, b *v1.VolumeStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalPointed(a.Image, b.Image)
}

func equalUser(a, b *v1.ContainerUser) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Linux == nil || b.Linux == nil {
		return a.Linux == b.Linux
	}
	return a.Linux.UID == b.Linux.UID && a.Linux.GID == b.Linux.GID &&
		equalEach(a.Linux.SupplementalGroups, b.Linux.SupplementalGroups, equalComparable)
}

func equalHealths(a, b *v1.ResourceStatus) bool {
	return a.Name == b.Name && equalEach(a.Resources, b.Resources, equalHealth)
}

func equalHealth(a, b *v1.ResourceHealth) bool {
	return a.ResourceID == b.ResourceID && a.Health == b.Health && equalPointed(a.Message, b.Message)
}

// equalEach compares element by element, by pointer: the elements are large.
func equalEach[T any](a, b []T, equal func(a, b *T) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

func equalComparable[T comparable](a, b *T) bool { return *a == *b }

func equalPointed[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
