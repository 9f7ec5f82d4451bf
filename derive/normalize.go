package derive

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPodMessageBytes is what all termination messages of a pod may have together, each container an equal part (SM-29).
const maxPodMessageBytes = 12288

// Normalize brings a status into the form in which the API server will hold it, so that what was sent and what is
// stored compare as equal: times in whole seconds (SM-28), termination messages cut to the pod's budget, between
// characters, and invalid UTF-8 replaced (SM-29, BUG-16), lists in a fixed order (SM-30). changed is false when the
// status was normal: then it is returned as it is, and nothing is allocated. Else the result shares no memory with the
// argument.
func Normalize(pod *v1.Pod, status v1.PodStatus) (normal v1.PodStatus, changed bool) {
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
	messageBytes int // for each container
}

func (n *normalizer) isNormal(status *v1.PodStatus) bool {
	return (status.StartTime == nil || isSecond(*status.StartTime)) &&
		utf8.ValidString(status.Reason) && utf8.ValidString(status.Message) &&
		!slices.ContainsFunc(status.Conditions, isOddCondition) &&
		n.areNormal(status.InitContainerStatuses) &&
		n.areNormal(status.ContainerStatuses) &&
		n.areNormal(status.EphemeralContainerStatuses) &&
		slices.IsSortedFunc(status.InitContainerStatuses, n.bySpec) &&
		slices.IsSortedFunc(status.ContainerStatuses, byName) &&
		slices.IsSortedFunc(status.EphemeralContainerStatuses, byName)
}

func isOddCondition(c v1.PodCondition) bool {
	return !isSecond(c.LastProbeTime) || !isSecond(c.LastTransitionTime) ||
		!utf8.ValidString(c.Reason) || !utf8.ValidString(c.Message)
}

func (n *normalizer) areNormal(statuses []v1.ContainerStatus) bool {
	for i := range statuses {
		if !n.isNormalState(&statuses[i].State) || !n.isNormalState(&statuses[i].LastTerminationState) {
			return false
		}
	}
	return true
}

func (n *normalizer) isNormalState(state *v1.ContainerState) bool {
	if w := state.Waiting; w != nil && (!utf8.ValidString(w.Reason) || !utf8.ValidString(w.Message)) {
		return false
	}
	if r := state.Running; r != nil && !isSecond(r.StartedAt) {
		return false
	}
	t := state.Terminated
	return t == nil || (isSecond(t.StartedAt) && isSecond(t.FinishedAt) && utf8.ValidString(t.Reason) &&
		utf8.ValidString(t.Message) && len(t.Message) <= n.messageBytes)
}

func (n *normalizer) normalize(status *v1.PodStatus) {
	if status.StartTime != nil {
		toSecond(status.StartTime)
	}
	toValid(&status.Reason)
	toValid(&status.Message)
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		toSecond(&condition.LastProbeTime)
		toSecond(&condition.LastTransitionTime)
		toValid(&condition.Reason)
		toValid(&condition.Message)
	}
	n.normalizeContainers(status.InitContainerStatuses)
	n.normalizeContainers(status.ContainerStatuses)
	n.normalizeContainers(status.EphemeralContainerStatuses)
	slices.SortStableFunc(status.InitContainerStatuses, n.bySpec)
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
		toValid(&w.Reason)
		toValid(&w.Message)
	}
	if r := state.Running; r != nil {
		toSecond(&r.StartedAt)
	}
	if t := state.Terminated; t != nil {
		toSecond(&t.StartedAt)
		toSecond(&t.FinishedAt)
		toValid(&t.Reason)
		t.Message = validPrefix(t.Message, n.messageBytes)
	}
}

// bySpec orders init containers as the spec has them, those that it does not know last.
func (n *normalizer) bySpec(a, b v1.ContainerStatus) int { return n.place(a.Name) - n.place(b.Name) }

func (n *normalizer) place(name string) int {
	for i := range n.spec.InitContainers {
		if n.spec.InitContainers[i].Name == name {
			return i
		}
	}
	return len(n.spec.InitContainers)
}

// isSecond reports whether the time is one that the API server keeps, and has no reading of a monotonic clock.
func isSecond(t metav1.Time) bool {
	return t.Time == t.Truncate(time.Second) //nolint:staticcheck // Equal does not see a monotonic reading
}

func toSecond(t *metav1.Time) { *t = second(t.Time) }

func toValid(s *string) { *s = validPrefix(*s, 3*len(*s)) }

// validPrefix is as much of s as fits into the limit, cut between characters. Each byte that is not part of one becomes
// U+FFFD, as on the way through JSON.
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
