package report

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Event is what an operator should hear of the node.
type Event struct{ Type, Reason, Message string }

// Events are what a report brings to light: conditions that changed, a machine that was started anew.
func Events(name string, before, now *v1.NodeStatus) []Event {
	var events []Event
	if boot := before.NodeInfo.BootID; boot != "" && boot != now.NodeInfo.BootID {
		events = append(events, Event{
			v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", name, now.NodeInfo.BootID),
		})
	}
	for _, c := range now.Conditions {
		told := conditionOf(before.Conditions, c.Type)
		if reason := eventOf(c); reason != "" && (told == nil || told.Status != c.Status) {
			events = append(events, statusEvent(name, reason))
		}
	}
	return events
}

// SchedulingEvents tell that somebody closed the node to new pods, or opened it again.
func SchedulingEvents(before, now *v1.Node) []Event {
	if before.UID != now.UID || before.Spec.Unschedulable == now.Spec.Unschedulable {
		return nil
	}
	return []Event{statusEvent(now.Name, pick(now.Spec.Unschedulable, "NodeNotSchedulable", "NodeSchedulable"))}
}

func statusEvent(name, reason string) Event {
	return Event{v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", name, reason)}
}

// eventOf is the reason by which a condition of ours is told, or nothing for those of others.
func eventOf(c v1.NodeCondition) string {
	switch c.Type {
	case v1.NodeReady:
		return pick(c.Status == v1.ConditionTrue, "NodeReady", "NodeNotReady")
	case v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
		return pressureVerdict(c.Type, c.Status == v1.ConditionTrue).event
	}
	return ""
}
