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

	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// view is what the cluster was told of a pod, without what differs from node to node: a line for each field of its status, for
// each of its different events, and for kubectl's words.
type view map[string]bool

// view shows a version of a pod, and the events until now.
func (s *testNode) view(ctx context.Context, pod *v1.Pod) (view, error) {
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
	s.addFields(v, "status", status)
	ofPod := metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name}
	events, err := s.Admin.CoreV1().Events(s.Namespace).List(ctx, ofPod)
	if err != nil {
		return nil, err
	}
	for _, e := range events.Items {
		v[s.normalize(describeEvent(&e))] = true
	}
	return v, nil
}

// addFields adds a line for each value that is in another, under its path.
func (s *testNode) addFields(v view, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			s.addFields(v, path+"."+name, field)
		}
	case []any:
		for i, item := range value {
			s.addFields(v, fmt.Sprintf("%s[%s]", path, label(i, item)), item)
		}
	case nil:
		v[path+": null"] = true
	default:
		v[s.normalize(fmt.Sprintf("%s: %v", path, value))] = true
	}
}

// label is the place of an item in a list, and its name if it has one.
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

// differences are the lines that only one of two views has.
func differences(kubelet, herald view) (lines []string) {
	for line := range kubelet.without(herald) {
		lines = append(lines, line+"   <- only the kubelet")
	}
	for line := range herald.without(kubelet) {
		lines = append(lines, line+"   <- only herald")
	}
	slices.Sort(lines)
	return lines
}

func describeEvent(e *v1.Event) string {
	line := "event: " + e.Type + " " + e.Reason
	if e.InvolvedObject.FieldPath != "" {
		line += " of " + e.InvolvedObject.FieldPath
	}
	return line + ": " + e.Message
}

// noise is what differs from one node, pod or run to the next.
var volatilePatterns = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "UID"},
	{regexp.MustCompile(`\b10\.231\.\d+\.\d+\b`), "POD-IP"},
}

// normal is a text without noise.
func (s *testNode) normalize(text string) string {
	for _, n := range volatilePatterns {
		text = n.pattern.ReplaceAllString(text, n.word)
	}
	text = strings.ReplaceAll(text, s.Node, "NODE")
	text = strings.ReplaceAll(text, s.runtime.Folder(), "FOLDER")
	return strings.ReplaceAll(text, s.Namespace, "NAMESPACE")
}

// fleeting are words that a side may show or skip, as fast as it looks and writes.
var transientStates = []string{
	"phase Pending", "phase Running", "running", "waiting: ContainerCreating", "waiting: PodInitializing", "waiting: ErrImagePull",
	"waiting: PostStartHookError", "waiting: RunContainerError",
}

// impossible is what Herald showed on the way and the kubelet could not have: a word that it never says of this pod, or a
// container that goes back from its back-off to its old end. What no agent may do is the recorder's to judge.
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
				problems = append(problems, fmt.Sprintf("on the way, only herald shows at version %s: %s", p.ResourceVersion, word))
			}
		}
		if i > 0 {
			problems = append(problems, backoffRegressions(herald[i-1], p)...)
		}
	}
	return problems
}

// words are what a version of a pod says, but for what is fleeting.
func describeVersion(p *v1.Pod) []string {
	all := []string{"phase " + string(p.Status.Phase), "reason " + p.Status.Reason}
	for _, c := range recorder.ContainersOf(&p.Status) {
		for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
			all = append(all, describeState(c.Name, state))
		}
	}
	return slices.DeleteFunc(all, func(word string) bool { return word == "" || slices.Contains(transientStates, word) })
}

// stateWord names the container where it matters, and is empty for no state.
func describeState(name string, state v1.ContainerState) string {
	switch {
	case state.Running != nil:
		return "running"
	case state.Waiting != nil && slices.Contains(transientStates, "waiting: "+state.Waiting.Reason):
		return "waiting: " + state.Waiting.Reason
	case state.Waiting != nil:
		return fmt.Sprintf("%s waiting: %s", name, state.Waiting.Reason)
	case state.Terminated != nil:
		return fmt.Sprintf("%s ended: %s, code %d", name, state.Terminated.Reason, state.Terminated.ExitCode)
	}
	return ""
}

// backwards are the containers that waited to be started again and are shown as ended, without having been started. Those of
// a pod that is to go will not be.
func backoffRegressions(before, after *v1.Pod) (problems []string) {
	if after.DeletionTimestamp != nil || recorder.IsEnded(after.Status.Phase) {
		return nil
	}
	for _, was := range recorder.ContainersOf(&before.Status) {
		for _, is := range recorder.ContainersOf(&after.Status) {
			if was.Name == is.Name && was.RestartCount == is.RestartCount && was.State.Waiting != nil && is.State.Terminated != nil &&
				was.State.Waiting.Reason == "CrashLoopBackOff" {
				problems = append(problems, fmt.Sprintf("on the way, herald takes %s back from its back-off to its end at version %s",
					is.Name, after.ResourceVersion))
			}
		}
	}
	return problems
}
