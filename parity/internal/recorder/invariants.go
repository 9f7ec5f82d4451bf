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

// ForeignWriteAnnotation is changed by every write of a test that is not the agent's. The recorder thus knows the author of each
// version.
const ForeignWriteAnnotation = "example.com/foreign-writes"

// NumberedMessage returns a status message that shows the recorder the order of statuses and the pod that each belongs to.
func NumberedMessage(number int, uid types.UID) string {
	return fmt.Sprintf("status %d of %s", number, uid)
}

// ParseNumberedMessage parses the result of NumberedMessage.
func ParseNumberedMessage(message string) (number int, uid types.UID, ok bool) {
	_, err := fmt.Sscanf(message, "status %d of %s", &number, &uid)
	return number, uid, err == nil
}

// ContainerStatuses returns the statuses of all containers, init containers first.
func ContainerStatuses(status *v1.PodStatus) []v1.ContainerStatus {
	return slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses)
}

// PodCondition returns the condition of this type, or an empty one.
func PodCondition(status *v1.PodStatus, conditionType v1.PodConditionType) v1.PodCondition {
	for _, condition := range status.Conditions {
		if condition.Type == conditionType {
			return condition
		}
	}
	return v1.PodCondition{}
}

// reportFunc reports that a change breaks a rule.
type reportFunc func(rule string, before, after any)

// violations returns the invariants that the change from one version of a pod to the next breaks. Foreign writes may change
// anything.
func violations(before, after *v1.Pod, now time.Time) (found []string) {
	if before.Annotations[ForeignWriteAnnotation] != after.Annotations[ForeignWriteAnnotation] {
		return nil
	}
	report := func(rule string, was, is any) {
		found = append(found, fmt.Sprintf("at version %s: %s: %v became %v", after.ResourceVersion, rule, was, is))
	}
	was, is := &before.Status, &after.Status
	if derive.IsTerminal(was.Phase) && is.Phase != was.Phase {
		report("I1, terminal phase changed", was.Phase, is.Phase)
	}
	if was.StartTime != nil && !was.StartTime.Equal(is.StartTime) {
		report("I4, start time changed", was.StartTime, is.StartTime)
	}
	if is.ObservedGeneration < was.ObservedGeneration {
		report("I5, observed generation decreased", was.ObservedGeneration, is.ObservedGeneration)
	}
	checkMessage(before, after, report)
	checkContainers(before, after, report)
	for _, condition := range was.Conditions {
		checkCondition(condition, PodCondition(is, condition.Type), report)
	}
	for _, condition := range is.Conditions {
		if derive.IsOwnedCondition(condition.Type) && condition.LastTransitionTime.After(now.Add(time.Second)) {
			report("I6, transition time in the future", condition, now)
		}
	}
	checkForeignFields(before, after, report)
	return found
}

// checkMessage checks numbered messages; see NumberedMessage.
func checkMessage(before, after *v1.Pod, report reportFunc) {
	oldNumber, oldUID, hadNumber := ParseNumberedMessage(before.Status.Message)
	newNumber, newUID, hasNumber := ParseNumberedMessage(after.Status.Message)
	switch {
	case hasNumber && !podid.IsMirror(after) && newUID != after.UID:
		report("I9, status of another pod", after.UID, newUID)
	case hadNumber && !hasNumber:
		report("message lost", before.Status.Message, after.Status.Message)
	case hadNumber && oldUID == newUID && newNumber < oldNumber:
		report("older status after a newer one", before.Status.Message, after.Status.Message)
	}
}

func checkContainers(before, after *v1.Pod, report reportFunc) {
	containers := ContainerStatuses(&after.Status)
	for _, was := range ContainerStatuses(&before.Status) {
		i := slices.IndexFunc(containers, func(c v1.ContainerStatus) bool { return c.Name == was.Name })
		if i < 0 {
			report("I2, container disappeared", was.Name, "nothing")
			continue
		}
		is := containers[i]
		if is.RestartCount < was.RestartCount {
			report("I3, restart count decreased", was.RestartCount, is.RestartCount)
		}
		oldExit, newExit := was.State.Terminated, is.State.Terminated
		if oldExit == nil || mayRestart(before, was.Name, oldExit.ExitCode) && !derive.IsTerminal(before.Status.Phase) {
			continue
		}
		if newExit == nil || newExit.ExitCode != oldExit.ExitCode || !newExit.FinishedAt.Equal(&oldExit.FinishedAt) {
			report("I2, terminated state changed", oldExit, is.State)
		}
	}
}

// mayRestart reports whether a container with this exit code is restarted.
func mayRestart(pod *v1.Pod, name string, exitCode int32) bool {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if container.Name == name {
			return restart.ShouldRestart(&pod.Spec, &container, exitCode)
		}
	}
	return restart.ShouldRestart(&pod.Spec, &v1.Container{}, exitCode)
}

func checkCondition(was, is v1.PodCondition, report reportFunc) {
	isResize := was.Type == v1.PodResizePending || was.Type == v1.PodResizeInProgress
	switch {
	case !derive.IsOwnedCondition(was.Type) && was.Type != v1.DisruptionTarget && was != is:
		report("I7, foreign condition changed", was, is)
	case isResize || is.Type == "":
	case was.Status == is.Status && !was.LastTransitionTime.Equal(&is.LastTransitionTime):
		report("I6, transition time changed without a transition", was, is)
	case is.LastTransitionTime.Before(&was.LastTransitionTime):
		report("I6, transition time decreased", was, is)
	}
}

func checkForeignFields(before, after *v1.Pod, report reportFunc) {
	was, is := &before.Status, &after.Status
	if !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) {
		report("I7, labels or annotations changed", [2]any{before.Labels, before.Annotations}, [2]any{after.Labels, after.Annotations})
	}
	if was.NominatedNodeName != is.NominatedNodeName || len(was.ResourceClaimStatuses) != len(is.ResourceClaimStatuses) {
		report("I7, foreign field changed", was.NominatedNodeName, is.NominatedNodeName)
	}
}

// writeViolations returns the writes of a node's agent that break an invariant.
func writeViolations(writes []request, pods map[types.UID]*podHistory) (found []string) {
	deletedAt := map[types.UID]time.Time{}
	for _, write := range writes {
		succeeded := write.Response.Code == http.StatusOK
		switch history := pods[write.podUID()]; {
		case write.Verb == "create": // a mirror
		case write.podUID() == "" && isDecoded(write.Response.Code):
			found = append(found, fmt.Sprintf("I9, write without UID: %s", write))
		case write.Verb == "delete" && succeeded:
			deletedAt[write.podUID()] = write.ResponseAt.Time
			if history != nil && !podid.IsMirror(history.pod) && !mayBeDeleted(history.pod) {
				found = append(found, fmt.Sprintf("I12, %s of a pod that was %s", write, describe("last", history.pod)))
			}
		case succeeded && isAfter(write, deletedAt[write.podUID()]):
			found = append(found, fmt.Sprintf("I8, write after the deletion of its pod: %s", write))
		case write.Response.Code == http.StatusUnprocessableEntity && !isUIDMismatch(write.Response) && !hasForeignWrites(history):
			found = append(found, fmt.Sprintf("I17, invalid write: %s: %s", write, write.Response.Message))
		}
	}
	return found
}

// isAfter reports whether the write was sent after the pod was deleted. One that was received before took effect before, although
// its response may have been logged after that of the deletion: a killed agent may leave a request behind, and the next agent
// deletes the pod meanwhile.
func isAfter(write request, deletedAt time.Time) bool {
	return !deletedAt.IsZero() && write.RequestAt.After(deletedAt)
}

// isDecoded reports whether the server has decoded the body of a request that it answers with this code.
func isDecoded(code int32) bool {
	return code < http.StatusInternalServerError && code != http.StatusRequestEntityTooLarge
}

func isUIDMismatch(response metav1.Status) bool {
	return response.Details != nil && slices.ContainsFunc(response.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// hasForeignWrites reports whether a foreign write may be the cause of an invalid one.
func hasForeignWrites(history *podHistory) bool {
	return history != nil && history.pod.Annotations[ForeignWriteAnnotation] != ""
}

// mayBeDeleted reports whether a node may delete the object: deletion was requested and no container runs.
func mayBeDeleted(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && derive.IsTerminal(pod.Status.Phase) &&
		!slices.ContainsFunc(ContainerStatuses(&pod.Status), func(c v1.ContainerStatus) bool { return c.State.Running != nil })
}
