package sidebyside_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// view is what the cluster knows of a pod, without node-specific values: one line per status field, per distinct event,
// and for the output of kubectl.
type view map[string]bool

// hasEvent reports whether the view has an event with that reason, or the reason is empty.
func (v view) hasEvent(reason string) bool {
	for line := range v {
		if strings.HasPrefix(line, "event: ") && (strings.Contains(line, " "+reason+": ") || strings.Contains(line, " "+reason+" of ")) {
			return true
		}
	}
	return reason == ""
}

// eventsOf returns the events of a pod so far.
func (n *testNode) eventsOf(ctx context.Context, name string) ([]v1.Event, error) {
	events, err := n.Admin.CoreV1().Events(n.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return nil, err
	}
	return events.Items, nil
}

// view returns the view of a version of a pod and its events.
func (n *testNode) view(pod *v1.Pod, events []v1.Event) (view, error) {
	row := table.NewRow(pod, time.Now())
	restarts, _, _ := strings.Cut(row.Restarts, " ")
	v := view{"kubectl get: " + row.Ready + " " + row.Status + " " + restarts: true}
	content, err := json.Marshal(pod.Status)
	if err != nil {
		return nil, err
	}
	var status any
	if err := json.Unmarshal(content, &status); err != nil {
		return nil, err
	}
	n.addFields(v, "status", status)
	for _, e := range events {
		v[n.normalize(describeEvent(&e))] = true
	}
	return v, nil
}

// addFields adds one line per nested value, with its path.
func (n *testNode) addFields(v view, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			n.addFields(v, path+"."+name, field)
		}
	case []any:
		for i, item := range value {
			n.addFields(v, fmt.Sprintf("%s[%s]", path, label(i, item)), item)
		}
	case nil:
		v[path+": null"] = true
	default:
		v[n.normalize(fmt.Sprintf("%s: %v", path, value))] = true
	}
}

// label returns the index of a list item, and its name if it has one.
func label(place int, item any) string {
	fields, _ := item.(map[string]any)
	for _, name := range []string{"name", "type"} {
		if value, found := fields[name]; found {
			return fmt.Sprintf("%d %v", place, value)
		}
	}
	return fmt.Sprint(place)
}

func (v view) without(other view) view {
	rest := view{}
	for line := range v {
		if !other[line] {
			rest[line] = true
		}
	}
	return rest
}

// differences returns the lines that only one view has.
func differences(kubelet, herald view) (lines []string) {
	for line := range kubelet.without(herald) {
		lines = append(lines, line+"   <- only kubelet")
	}
	for line := range herald.without(kubelet) {
		lines = append(lines, line+"   <- only herald")
	}
	slices.Sort(lines)
	return lines
}

func describeEvent(e *v1.Event) string { return describeReason(e) + ": " + e.Message }

// describeReason returns type and reason of an event, and the container.
func describeReason(e *v1.Event) string {
	line := "event: " + e.Type + " " + e.Reason
	if e.InvolvedObject.FieldPath != "" {
		line += " of " + e.InvolvedObject.FieldPath
	}
	return line
}

// onceReasons are the reasons of events that tell of one instance of a container, or of the end of a pod. How often others occur
// depends on time: they tell of retries, probes and back-offs.
var onceReasons = []string{"Created", "Started", "Killing"}

// repeatedEvents returns the events that must occur once for a pod that never restarted a container, and occurred more often. last
// is the pod's last version.
func repeatedEvents(last *v1.Pod, events []v1.Event) view {
	repeated := view{}
	if restarts(last) > 0 {
		return repeated
	}
	counts := map[string]int32{}
	for _, e := range events {
		if slices.Contains(onceReasons, e.Reason) || e.Reason == last.Status.Reason {
			line := describeReason(&e)
			if counts[line] += max(1, e.Count); counts[line] > 1 {
				repeated[line+": more than once"] = true
			}
		}
	}
	return repeated
}

// volatilePatterns match what differs between nodes, pods and runs.
var volatilePatterns = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "UID"},
	{regexp.MustCompile(`, used: \d+,`), ", used: AMOUNT,"}, // by the pods that are on the node at this time
	{regexp.MustCompile(`\b10\.231\.\d+\.\d+\b`), "POD-IP"},
}

// normalize replaces volatile values.
func (n *testNode) normalize(text string) string {
	for _, volatile := range volatilePatterns {
		text = volatile.pattern.ReplaceAllString(text, volatile.word)
	}
	text = strings.ReplaceAll(text, n.NodeName, "NODE")
	text = strings.ReplaceAll(text, n.runtime.Dir(), "DIR")
	return strings.ReplaceAll(text, n.Namespace, "NAMESPACE")
}

// transientStates are states that a side may show or skip, depending on timing.
var transientStates = []string{
	"phase Pending", "phase Running", "running", "waiting: ContainerCreating", "waiting: PodInitializing", "waiting: ErrImagePull",
	"waiting: PostStartHookError", "waiting: RunContainerError",
}

// invalidHistory returns intermediate states that Herald showed and the kubelet could not have: a state that the
// kubelet never shows for this pod, or a container that goes from its back-off back to its termination. The recorder
// checks what no agent may do.
func invalidHistory(kubelet, herald []*v1.Pod) (problems []string) {
	known := map[string]bool{}
	for _, p := range kubelet {
		for _, word := range describeVersion(p) {
			known[word] = true
		}
	}
	for i, p := range herald {
		for _, word := range describeVersion(p) {
			if !known[word] {
				problems = append(problems, fmt.Sprintf("only herald shows at version %s: %s", p.ResourceVersion, word))
			}
		}
		if i > 0 {
			problems = append(problems, backoffRegressions(herald[i-1], p)...)
		}
	}
	return problems
}

// describeVersion describes a version of a pod without transient states.
func describeVersion(p *v1.Pod) []string {
	all := []string{"phase " + string(p.Status.Phase), "reason " + p.Status.Reason}
	for _, c := range recorder.ContainerStatuses(&p.Status) {
		for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
			all = append(all, describeState(c.Name, state))
		}
	}
	return slices.DeleteFunc(all, func(word string) bool { return word == "" || slices.Contains(transientStates, word) })
}

// describeState names the container where it matters. It returns "" for no state.
func describeState(name string, state v1.ContainerState) string {
	switch {
	case state.Running != nil:
		return "running"
	case state.Waiting != nil && slices.Contains(transientStates, "waiting: "+state.Waiting.Reason):
		return "waiting: " + state.Waiting.Reason
	case state.Waiting != nil:
		return fmt.Sprintf("%s waiting: %s", name, state.Waiting.Reason)
	case state.Terminated != nil:
		return fmt.Sprintf("%s terminated: %s, code %d", name, state.Terminated.Reason, state.Terminated.ExitCode)
	}
	return ""
}

// backoffRegressions returns the containers that were in back-off and are shown as terminated without having been
// started. Containers of a terminating pod are not started again.
func backoffRegressions(before, after *v1.Pod) (problems []string) {
	if after.DeletionTimestamp != nil || derive.IsTerminal(after.Status.Phase) {
		return nil
	}
	for _, was := range recorder.ContainerStatuses(&before.Status) {
		for _, is := range recorder.ContainerStatuses(&after.Status) {
			if was.Name == is.Name && was.RestartCount == is.RestartCount && was.State.Waiting != nil && is.State.Terminated != nil &&
				was.State.Waiting.Reason == "CrashLoopBackOff" {
				problems = append(problems, fmt.Sprintf("herald moves %s from its back-off back to terminated at version %s",
					is.Name, after.ResourceVersion))
			}
		}
	}
	return problems
}
