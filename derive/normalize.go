package derive

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPodMessageBytes limits the termination messages of a pod. Every container gets an equal share (SM-29).
const maxPodMessageBytes = 12288

// Normalize converts a status to the form in which the API server stores it, so that sent and stored statuses compare as
// equal:
//
//   - Times have whole seconds (SM-28).
//   - Termination messages are truncated to the pod's budget, between characters, and invalid UTF-8 is replaced (SM-29,
//     BUG-16).
//   - Lists are in a fixed order (SM-30).
//
// If the status is already normalized, Normalize returns it unchanged and does not allocate. Otherwise the result shares no
// memory with the argument.
func Normalize(pod *v1.Pod, status v1.PodStatus) (normalized v1.PodStatus, changed bool) {
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
	n := normalizer{spec: &pod.Spec, messageBytes: maxPodMessageBytes / max(1, containers)}
	if n.isNormal(&status) {
		return status, false
	}
	copied := status.DeepCopy()
	n.normalize(copied)
	return *copied, true
}

type normalizer struct {
	spec         *v1.PodSpec
	messageBytes int // per container
}

func (n *normalizer) isNormal(status *v1.PodStatus) bool {
	return (status.StartTime == nil || isWholeSecond(*status.StartTime)) &&
		utf8.ValidString(status.Reason) && utf8.ValidString(status.Message) &&
		!slices.ContainsFunc(status.Conditions, needsNormalizing) &&
		n.areContainersNormal(status.InitContainerStatuses) &&
		n.areContainersNormal(status.ContainerStatuses) &&
		n.areContainersNormal(status.EphemeralContainerStatuses) &&
		slices.IsSortedFunc(status.InitContainerStatuses, n.compareSpecOrder) &&
		slices.IsSortedFunc(status.ContainerStatuses, compareNames) &&
		slices.IsSortedFunc(status.EphemeralContainerStatuses, compareNames)
}

func needsNormalizing(condition v1.PodCondition) bool {
	return !isWholeSecond(condition.LastProbeTime) || !isWholeSecond(condition.LastTransitionTime) ||
		!utf8.ValidString(condition.Reason) || !utf8.ValidString(condition.Message)
}

func (n *normalizer) areContainersNormal(statuses []v1.ContainerStatus) bool {
	for i := range statuses {
		if !n.isStateNormal(&statuses[i].State) || !n.isStateNormal(&statuses[i].LastTerminationState) {
			return false
		}
	}
	return true
}

func (n *normalizer) isStateNormal(state *v1.ContainerState) bool {
	if w := state.Waiting; w != nil && (!utf8.ValidString(w.Reason) || !utf8.ValidString(w.Message)) {
		return false
	}
	if r := state.Running; r != nil && !isWholeSecond(r.StartedAt) {
		return false
	}
	t := state.Terminated
	return t == nil || (isWholeSecond(t.StartedAt) && isWholeSecond(t.FinishedAt) && utf8.ValidString(t.Reason) &&
		utf8.ValidString(t.Message) && len(t.Message) <= n.messageBytes)
}

func (n *normalizer) normalize(status *v1.PodStatus) {
	if status.StartTime != nil {
		truncate(status.StartTime)
	}
	replaceInvalid(&status.Reason)
	replaceInvalid(&status.Message)
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		truncate(&condition.LastProbeTime)
		truncate(&condition.LastTransitionTime)
		replaceInvalid(&condition.Reason)
		replaceInvalid(&condition.Message)
	}
	n.normalizeContainers(status.InitContainerStatuses)
	n.normalizeContainers(status.ContainerStatuses)
	n.normalizeContainers(status.EphemeralContainerStatuses)
	slices.SortStableFunc(status.InitContainerStatuses, n.compareSpecOrder)
	sortByName(status.ContainerStatuses)
	sortByName(status.EphemeralContainerStatuses)
}

func (n *normalizer) normalizeContainers(statuses []v1.ContainerStatus) {
	for i := range statuses {
		n.normalizeState(&statuses[i].State)
		n.normalizeState(&statuses[i].LastTerminationState)
	}
}

func (n *normalizer) normalizeState(state *v1.ContainerState) {
	if w := state.Waiting; w != nil {
		replaceInvalid(&w.Reason)
		replaceInvalid(&w.Message)
	}
	if r := state.Running; r != nil {
		truncate(&r.StartedAt)
	}
	if t := state.Terminated; t != nil {
		truncate(&t.StartedAt)
		truncate(&t.FinishedAt)
		replaceInvalid(&t.Reason)
		t.Message = validPrefix(t.Message, n.messageBytes)
	}
}

// compareSpecOrder sorts init containers in spec order, those that are not in the spec last.
func (n *normalizer) compareSpecOrder(a, b v1.ContainerStatus) int {
	return n.specIndex(a.Name) - n.specIndex(b.Name)
}

func (n *normalizer) specIndex(name string) int {
	for i := range n.spec.InitContainers {
		if n.spec.InitContainers[i].Name == name {
			return i
		}
	}
	return len(n.spec.InitContainers)
}

// isWholeSecond reports whether the API server stores the time as it is: no fraction, no monotonic clock reading.
func isWholeSecond(t metav1.Time) bool {
	return t.Time == t.Truncate(time.Second) //nolint:staticcheck // Equal does not see a monotonic reading
}

func truncate(t *metav1.Time) { *t = toSeconds(t.Time) }

// replaceInvalid replaces invalid UTF-8. Each byte grows to at most three.
func replaceInvalid(s *string) { *s = validPrefix(*s, 3*len(*s)) }

// validPrefix returns the longest prefix of s that fits into limit bytes, truncated between characters. Invalid bytes become
// U+FFFD, as in JSON.
func validPrefix(s string, limit int) string {
	if len(s) <= limit && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Equal reports whether two normalized statuses are equal in the fields that the agent owns, without allocating (SM-32).
//
//   - Conditions: only owned types and DisruptionTarget count, by status, reason and message. A changed time or observed
//     generation is no reason to write.
//   - Not compared are fields of other writers (their conditions, resource claims, nominatedNodeName) and the immutable
//     qosClass.
//   - Empty and absent lists are equal. Quantities are compared by value.
//
// Every field is either compared or listed here. A test checks this against the API types.
func Equal(a, b *v1.PodStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration &&
		a.Phase == b.Phase &&
		a.Message == b.Message &&
		a.Reason == b.Reason &&
		a.HostIP == b.HostIP &&
		a.PodIP == b.PodIP &&
		a.Resize == b.Resize &&
		equalSlices(a.HostIPs, b.HostIPs, equalComparable) &&
		equalSlices(a.PodIPs, b.PodIPs, equalComparable) &&
		a.StartTime.Equal(b.StartTime) &&
		equalConditions(a.Conditions, b.Conditions) &&
		equalSlices(a.InitContainerStatuses, b.InitContainerStatuses, EqualContainerStatus) &&
		equalSlices(a.ContainerStatuses, b.ContainerStatuses, EqualContainerStatus) &&
		equalSlices(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses, EqualContainerStatus) &&
		equalQuantities(a.AllocatedResources, b.AllocatedResources) &&
		equalRequirements(a.Resources, b.Resources)
}

// equalConditions compares by type, so that neither the order nor conditions of other writers matter.
func equalConditions(a, b []v1.PodCondition) bool {
	for _, conditionType := range ownedConditions {
		if !equalCondition(findCondition(a, conditionType), findCondition(b, conditionType)) {
			return false
		}
	}
	return equalCondition(findCondition(a, v1.DisruptionTarget), findCondition(b, v1.DisruptionTarget))
}

func equalCondition(a, b *v1.PodCondition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// EqualContainerStatus reports whether two normalized container statuses are equal, without allocating.
func EqualContainerStatus(a, b *v1.ContainerStatus) bool {
	return a.Name == b.Name &&
		a.Ready == b.Ready &&
		a.RestartCount == b.RestartCount &&
		a.ContainerID == b.ContainerID &&
		a.Image == b.Image &&
		a.ImageID == b.ImageID &&
		equalPointer(a.Started, b.Started) &&
		equalState(&a.State, &b.State) &&
		equalState(&a.LastTerminationState, &b.LastTerminationState) &&
		equalQuantities(a.AllocatedResources, b.AllocatedResources) &&
		equalRequirements(a.Resources, b.Resources) &&
		equalSlices(a.VolumeMounts, b.VolumeMounts, equalMount) &&
		equalUser(a.User, b.User) &&
		equalSlices(a.AllocatedResourcesStatus, b.AllocatedResourcesStatus, equalResourceStatus) &&
		equalPointer(a.StopSignal, b.StopSignal)
}

func equalState(a, b *v1.ContainerState) bool {
	return equalPointer(a.Waiting, b.Waiting) &&
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
		equalSlices(a.Claims, b.Claims, equalComparable)
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
		equalPointer(a.RecursiveReadOnly, b.RecursiveReadOnly) &&
		equalVolume(a.VolumeStatus, b.VolumeStatus)
}

func equalVolume(a, b *v1.VolumeStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalPointer(a.Image, b.Image)
}

func equalUser(a, b *v1.ContainerUser) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Linux == nil || b.Linux == nil {
		return a.Linux == b.Linux
	}
	return a.Linux.UID == b.Linux.UID && a.Linux.GID == b.Linux.GID &&
		equalSlices(a.Linux.SupplementalGroups, b.Linux.SupplementalGroups, equalComparable)
}

func equalResourceStatus(a, b *v1.ResourceStatus) bool {
	return a.Name == b.Name && equalSlices(a.Resources, b.Resources, equalResourceHealth)
}

func equalResourceHealth(a, b *v1.ResourceHealth) bool {
	return a.ResourceID == b.ResourceID && a.Health == b.Health && equalPointer(a.Message, b.Message)
}

// equalSlices passes elements by pointer because they are large.
func equalSlices[T any](a, b []T, equal func(a, b *T) bool) bool {
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

func equalPointer[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
