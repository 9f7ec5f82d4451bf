package recorder

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/podid"
)

// ForeignMark is an annotation that a foreign writer changes with each write, so that it is known whose step it was.
const ForeignMark = "example.com/foreign-writes"

// Numbered is a message by which the recorder knows that no older status came after a newer one, and whose it is.
func Numbered(number int, of types.UID) string { return fmt.Sprintf("status %d of %s", number, of) }

// NumberOf reads what Numbered wrote.
func NumberOf(message string) (number int, of types.UID, found bool) {
	_, err := fmt.Sscanf(message, "status %d of %s", &number, &of)
	return number, of, err == nil
}

// misdeeds lists the invariants that the step from one version of a pod to the next breaks. Of a foreign writer's steps
// nothing is expected.
func misdeeds(before, after *v1.Pod, now time.Time) (wrong []string) {
	if before.Annotations[ForeignMark] != after.Annotations[ForeignMark] {
		return nil
	}
	say := func(rule string, was, is any) {
		wrong = append(wrong, fmt.Sprintf("at version %s: %s: %v became %v", after.ResourceVersion, rule, was, is))
	}
	was, is := &before.Status, &after.Status
	if IsEnded(was.Phase) && is.Phase != was.Phase {
		say("I1, a terminal phase was left", was.Phase, is.Phase)
	}
	if was.StartTime != nil && !was.StartTime.Equal(is.StartTime) {
		say("I4, the start time moved", was.StartTime, is.StartTime)
	}
	if is.ObservedGeneration < was.ObservedGeneration {
		say("I5, the observed generation went back", was.ObservedGeneration, is.ObservedGeneration)
	}
	messageMisdeeds(before, after, say)
	containerMisdeeds(before, after, say)
	for i := range was.Conditions {
		conditionMisdeeds(was.Conditions[i], ConditionOf(is, was.Conditions[i].Type), say)
	}
	for _, c := range is.Conditions {
		if derive.IsOwnedCondition(c.Type) && c.LastTransitionTime.After(now.Add(time.Second)) {
			say("I6, a transition is in the future", c, now)
		}
	}
	foreignMisdeeds(before, after, say)
	return wrong
}

// IsEnded tells whether a phase is the last one.
func IsEnded(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

func messageMisdeeds(before, after *v1.Pod, say func(string, any, any)) {
	last, was, found := NumberOf(before.Status.Message)
	next, is, still := NumberOf(after.Status.Message)
	switch {
	case still && !podid.IsMirror(after) && is != after.UID:
		say("I9, the status of another pod", after.UID, is)
	case found && !still:
		say("the message was lost", before.Status.Message, after.Status.Message)
	case found && was == is && next < last:
		say("an older status came after a newer one", before.Status.Message, after.Status.Message)
	}
}

// ContainersOf are all containers of a status, those that run first at the beginning.
func ContainersOf(status *v1.PodStatus) []v1.ContainerStatus {
	return slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses)
}

func stateOf(c v1.ContainerStatus) string {
	switch {
	case c.State.Terminated != nil:
		return fmt.Sprintf("terminated with %d", c.State.Terminated.ExitCode)
	case c.State.Running != nil:
		return "running"
	default:
		return "waiting"
	}
}

func containerMisdeeds(before, after *v1.Pod, say func(string, any, any)) {
	now := ContainersOf(&after.Status)
	for _, was := range ContainersOf(&before.Status) {
		i := slices.IndexFunc(now, func(c v1.ContainerStatus) bool { return c.Name == was.Name })
		if i < 0 {
			say("I2, a container disappeared", was.Name, "nothing")
			continue
		}
		is := now[i]
		if is.RestartCount < was.RestartCount {
			say("I3, a restart count went back", was.RestartCount, is.RestartCount)
		}
		end, still := was.State.Terminated, is.State.Terminated
		if end == nil || mayRunAgain(before, was.Name, end.ExitCode) && !IsEnded(before.Status.Phase) {
			continue
		}
		if still == nil || still.ExitCode != end.ExitCode || !still.FinishedAt.Equal(&end.FinishedAt) {
			say("I2, a container's end changed", end, is.State)
		}
	}
}

// mayRunAgain tells whether a container that ended so is started again.
func mayRunAgain(pod *v1.Pod, name string, exitCode int32) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == name {
			return restart.ShouldRestart(&pod.Spec, &c, exitCode)
		}
	}
	return restart.ShouldRestart(&pod.Spec, &v1.Container{}, exitCode)
}

// ConditionOf is the condition of that type, or an empty one.
func ConditionOf(status *v1.PodStatus, kind v1.PodConditionType) v1.PodCondition {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.PodCondition{}
}

func conditionMisdeeds(was, is v1.PodCondition, say func(string, any, any)) {
	isResize := was.Type == v1.PodResizePending || was.Type == v1.PodResizeInProgress
	switch {
	case !derive.IsOwnedCondition(was.Type) && was.Type != v1.DisruptionTarget && was != is:
		say("I7, a foreign condition", was, is)
	case isResize || is.Type == "":
	case was.Status == is.Status && !was.LastTransitionTime.Equal(&is.LastTransitionTime):
		say("I6, a transition time without a transition", was, is)
	case is.LastTransitionTime.Before(&was.LastTransitionTime):
		say("I6, a transition time went back", was, is)
	}
}

func foreignMisdeeds(before, after *v1.Pod, say func(string, any, any)) {
	was, is := &before.Status, &after.Status
	if !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) {
		say("I7, labels or annotations", [2]any{before.Labels, before.Annotations}, [2]any{after.Labels, after.Annotations})
	}
	if was.NominatedNodeName != is.NominatedNodeName || len(was.ResourceClaimStatuses) != len(is.ResourceClaimStatuses) {
		say("I7, a field of others", was.NominatedNodeName, is.NominatedNodeName)
	}
}

// unlawful lists the writes of a node's agent that no agent may ask for. Lives are what became of the pods.
func unlawful(writes []request, lives map[types.UID]*life) (wrong []string) {
	ended := map[types.UID]bool{}
	for _, w := range writes {
		done := w.Response.Code == http.StatusOK
		switch l := lives[w.about()]; {
		case w.Verb == "create": // a mirror
		case w.about() == "" && wasRead(w.Response.Code):
			wrong = append(wrong, fmt.Sprintf("I9, a write that names no UID: %s", w))
		case w.Verb == "delete" && done:
			ended[w.about()] = true
			if l != nil && !podid.IsMirror(l.pod) && !mayBeDeleted(l.pod) {
				wrong = append(wrong, fmt.Sprintf("I12, %s of a pod that was %s", w, tell("last", l.pod)))
			}
		case done && ended[w.about()]:
			wrong = append(wrong, fmt.Sprintf("I8, a write after the end of its pod: %s", w))
		case w.Response.Code == http.StatusUnprocessableEntity && !isAboutUID(w.Response) && !isForeign(l):
			wrong = append(wrong, fmt.Sprintf("I17, a write that the server had to refuse: %s: %s", w, w.Response.Message))
		}
	}
	return wrong
}

// wasRead tells whether the server has looked at what was sent, before it gave that answer.
func wasRead(code int32) bool {
	return code < http.StatusInternalServerError && code != http.StatusRequestEntityTooLarge
}

func isAboutUID(answer metav1.Status) bool {
	return answer.Details != nil && slices.ContainsFunc(answer.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// isForeign tells that others wrote to the pod: what they wrote may be why.
func isForeign(l *life) bool { return l != nil && l.pod.Annotations[ForeignMark] != "" }

// mayBeDeleted tells whether a node may delete the object: somebody asked for it, and nothing of the pod runs.
func mayBeDeleted(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && IsEnded(pod.Status.Phase) &&
		!slices.ContainsFunc(ContainersOf(&pod.Status), func(c v1.ContainerStatus) bool { return c.State.Running != nil })
}
