package transition

import (
	"strconv"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// Field is what changed. Conditions have their type as field, for example Ready; the other fields are listed here.
type Field string

// Fields of pods. Those of one container have Change.Container set.
const (
	FieldPhase        Field = "phase"
	FieldReason       Field = "reason" // of the pod's status, without a change of the phase
	FieldAddress      Field = "address"
	FieldGeneration   Field = "generation"
	FieldStartTime    Field = "startTime"
	FieldDeletion     Field = "deletion" // the pod's deletion was requested
	FieldRemoved      Field = "removed"  // the pod's status was removed: the node has nothing of it any more
	FieldState        Field = "state"
	FieldLastState    Field = "lastState" // an instance ended, and its successor's state was reported at the same time
	FieldReady        Field = "ready"
	FieldStarted      Field = "started"
	FieldRestartCount Field = "restartCount"
	FieldImage        Field = "image"
	FieldResources    Field = "resources"
	// FieldOther stands for a difference in none of the fields above, for example in the mounts of a container.
	FieldOther Field = "other"
)

// Fields of the node, besides its conditions and FieldAddress.
const (
	FieldUnschedulable  Field = "unschedulable"
	FieldTaints         Field = "taints"
	FieldBootID         Field = "bootID"
	FieldKernelVersion  Field = "kernelVersion"
	FieldRuntimeVersion Field = "runtimeVersion"
	FieldClock          Field = "clock" // the clock was set; To is by how much
	FieldAllocatable    Field = "allocatable"
	FieldAgentVersion   Field = "agentVersion"
	FieldLease          Field = "lease" // the node's lease expired or was renewed again
	FieldLoad           Field = "load"  // the level of the node's load; Reason is the culprit, Message the saturation
)

// Change is one difference between two statuses. From or To is empty if there was or is no value.
type Change struct {
	Container string `json:"container,omitempty"`
	Field     Field  `json:"field"`
	From      string `json:"from,omitempty"`
	To        string `json:"to,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Message is cut at MaxMessage bytes.
	Message string `json:"message,omitempty"`
	// Exit describes the instance that ended, if the change is the end of one.
	Exit *Exit `json:"exit,omitempty"`
}

// Exit describes how an instance of a container ended.
type Exit struct {
	Code   int32 `json:"code"`
	Signal int32 `json:"signal,omitempty"`
	// RanMs is how long the instance ran, in milliseconds.
	RanMs int64 `json:"ranMs,omitempty"`
	// Attempt is the restart count of the instance.
	Attempt int32 `json:"attempt,omitempty"`
	// StoppedBy is why the agent stopped the instance, in the words of plan.StopReason. Empty: it ended by itself.
	StoppedBy string `json:"stoppedBy,omitempty"`
	// ContainerID identifies the instance in the runtime.
	ContainerID string `json:"-"`
}

// MaxMessage is the maximum length of Change.Message in bytes.
const MaxMessage = 256

// AppendPod appends the changes between two statuses of a pod. before is nil if there was none. At least one change is appended
// if the statuses differ in a field that derive.Equal compares.
func AppendPod(changes []Change, before, after *v1.PodStatus) []Change {
	isFirst := before == nil
	if isFirst {
		before = &v1.PodStatus{}
	}
	d := differ{changes: changes}
	switch {
	case before.Phase != after.Phase:
		d.add(Change{
			Field: FieldPhase, From: string(before.Phase), To: string(after.Phase), Reason: after.Reason, Message: after.Message,
		})
	case before.Reason != after.Reason || before.Message != after.Message:
		d.add(Change{Field: FieldReason, From: before.Reason, To: after.Reason, Message: after.Message})
	}
	if before.ObservedGeneration != after.ObservedGeneration && !isFirst {
		from, to := formatInts(before.ObservedGeneration, after.ObservedGeneration)
		d.add(Change{Field: FieldGeneration, From: from, To: to})
	}
	if before.PodIP != after.PodIP || before.HostIP != after.HostIP ||
		!equal(before.PodIPs, after.PodIPs) || !equal(before.HostIPs, after.HostIPs) {
		d.add(Change{Field: FieldAddress, From: before.PodIP, To: after.PodIP})
	}
	if !before.StartTime.Equal(after.StartTime) && !isFirst {
		d.add(Change{Field: FieldStartTime})
	}
	d.containers(before.InitContainerStatuses, after.InitContainerStatuses)
	d.containers(before.ContainerStatuses, after.ContainerStatuses)
	d.containers(before.EphemeralContainerStatuses, after.EphemeralContainerStatuses)
	d.conditions(before.Conditions, after.Conditions)
	if len(d.changes) == len(changes) && !derive.Equal(before, after) {
		d.add(Change{Field: FieldOther})
	}
	return d.changes
}

// differ collects changes.
type differ struct{ changes []Change }

func (d *differ) add(change Change) {
	change.Message = Truncate(change.Message, MaxMessage)
	d.changes = append(d.changes, change)
}

func (d *differ) conditions(before, after []v1.PodCondition) {
	for i := range after {
		old, condition := findCondition(before, after[i].Type), &after[i]
		if old == nil {
			d.add(Change{Field: Field(condition.Type), To: string(condition.Status), Reason: condition.Reason, Message: condition.Message})
		} else if old.Status != condition.Status || old.Reason != condition.Reason || old.Message != condition.Message {
			d.add(Change{
				Field: Field(condition.Type), From: string(old.Status), To: string(condition.Status),
				Reason: condition.Reason, Message: condition.Message,
			})
		}
	}
	for i := range before {
		if findCondition(after, before[i].Type) == nil {
			d.add(Change{Field: Field(before[i].Type), From: string(before[i].Status)})
		}
	}
}

func findCondition(conditions []v1.PodCondition, conditionType v1.PodConditionType) *v1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Truncate cuts the text at limit bytes or before, between two characters.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// formatInts formats two numbers with one allocation.
func formatInts[T ~int32 | ~int64](a, b T) (first, second string) {
	buf := strconv.AppendInt(make([]byte, 0, 40), int64(a), 10)
	end := len(buf)
	text := string(strconv.AppendInt(buf, int64(b), 10))
	return text[:end], text[end:]
}
