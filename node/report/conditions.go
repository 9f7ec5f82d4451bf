package report

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pressureConditions and Ready are the conditions that a node's agent owns, in the order in which they are shown.
var pressureConditions = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// verdict is what a condition says, and the reason of the event that tells of it.
type verdict struct {
	status                 v1.ConditionStatus
	reason, message, event string
}

func pressureVerdict(kind v1.NodeConditionType, holds bool) verdict {
	switch kind {
	case v1.NodeMemoryPressure:
		return pick(holds,
			verdict{v1.ConditionTrue, "KubeletHasInsufficientMemory", "the node is short of memory", "NodeHasInsufficientMemory"},
			verdict{v1.ConditionFalse, "KubeletHasSufficientMemory", "the node has enough memory", "NodeHasSufficientMemory"})
	case v1.NodeDiskPressure:
		return pick(holds,
			verdict{v1.ConditionTrue, "KubeletHasDiskPressure", "the node is short of disk space or inodes", "NodeHasDiskPressure"},
			verdict{v1.ConditionFalse, "KubeletHasNoDiskPressure", "the node has enough disk space", "NodeHasNoDiskPressure"})
	}
	return pick(holds,
		verdict{v1.ConditionTrue, "KubeletHasInsufficientPID", "the node is short of process IDs", "NodeHasInsufficientPID"},
		verdict{v1.ConditionFalse, "KubeletHasSufficientPID", "the node has enough process IDs", "NodeHasSufficientPID"})
}

func readyVerdict(notReady string) verdict {
	if notReady != "" {
		return verdict{v1.ConditionFalse, "KubeletNotReady", notReady, "NodeNotReady"}
	}
	return verdict{v1.ConditionTrue, "KubeletReady", "herald is posting ready status", "NodeReady"}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// verdicts are all owned conditions, Ready last.
func verdicts(held Pressures, notReady string) []v1.NodeCondition {
	var conditions []v1.NodeCondition
	for _, kind := range pressureConditions {
		_, holds := held[kind]
		conditions = append(conditions, pressureVerdict(kind, holds).as(kind))
	}
	return append(conditions, readyVerdict(notReady).as(v1.NodeReady))
}

func (v verdict) as(kind v1.NodeConditionType) v1.NodeCondition {
	return v1.NodeCondition{Type: kind, Status: v.status, Reason: v.reason, Message: v.message}
}

// stamp sets the times of a condition. The time of its last change moves only when the status does, and never backwards,
// whatever the clock does (F14).
func stamp(c v1.NodeCondition, before *v1.NodeCondition, now time.Time) v1.NodeCondition {
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	if before == nil {
		return c
	}
	same := before.Status == c.Status && !before.LastTransitionTime.IsZero()
	if same || before.LastTransitionTime.After(now) {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return c
}

func conditionOf(conditions []v1.NodeCondition, kind v1.NodeConditionType) *v1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}
