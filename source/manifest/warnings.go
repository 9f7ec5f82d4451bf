package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// criticalPriorities are those of the classes that every API server has.
var criticalPriorities = map[string]int32{
	"system-node-critical":    2_000_001_000,
	"system-cluster-critical": 2_000_000_000,
}

// Warnings are what is wrong with an accepted pod without keeping it from running: a priority and a priority class that do
// not belong together, for which the API server may refuse the pod's mirror (CFG-11).
func Warnings(pod *v1.Pod) []string {
	class, priority := pod.Spec.PriorityClassName, pod.Spec.Priority
	critical, known := criticalPriorities[class]
	switch {
	case class == "" && priority == nil:
	case class == "":
		return []string{fmt.Sprintf("spec.priority: %d is set without a priorityClassName; "+
			"the API server refuses the mirror pod unless that is its default priority", *priority)}
	case priority == nil:
		return []string{fmt.Sprintf("spec.priorityClassName: %s is set without a priority, which nobody looks up for "+
			"a static pod; on this node it has none", class)}
	case known && *priority != critical:
		return []string{fmt.Sprintf("spec.priority: %d is not the priority of %s, which is %d; "+
			"the API server refuses the mirror pod", *priority, class, critical)}
	}
	return nil
}
