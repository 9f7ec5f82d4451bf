package transition

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/table"
)

// PodSummary returns the columns STATUS, READY and RESTARTS of kubectl get pods in one line: "Running 1/1", or
// "CrashLoopBackOff 0/1 (13 restarts)". status is used instead of the pod's own.
func PodSummary(pod *v1.Pod, status *v1.PodStatus) string {
	summary := table.Summarize(pod, status)
	text := make([]byte, 0, 64)
	text = append(text, Truncate(summary.Status, 64)...)
	text = append(text, ' ')
	text = strconv.AppendInt(text, int64(summary.Ready), 10)
	text = append(text, '/')
	text = strconv.AppendInt(text, int64(summary.Total), 10)
	switch summary.Restarts {
	case 0:
	case 1:
		text = append(text, " (1 restart)"...)
	default:
		text = append(text, " ("...)
		text = strconv.AppendInt(text, int64(summary.Restarts), 10)
		text = append(text, " restarts)"...)
	}
	return string(text)
}

// NodeSummary returns the column STATUS of kubectl get nodes, and the other conditions that are True: "Ready", or
// "NotReady,SchedulingDisabled DiskPressure".
func NodeSummary(node *v1.Node) string {
	status := "Unknown"
	var others []string
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		switch {
		case condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue:
			status = "Ready"
		case condition.Type == v1.NodeReady:
			status = "NotReady"
		case condition.Status == v1.ConditionTrue:
			others = append(others, string(condition.Type))
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return strings.Join(append([]string{status}, others...), " ")
}
