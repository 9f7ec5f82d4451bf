package agent_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// transcript records what happens to the pods. It is updated so often that little is missed, and only when all goroutines of
// the bubble are blocked, so that its content does not depend on the scheduler.
type transcript struct {
	start        time.Time
	noTimestamps bool   // for steps with jitter
	statusOrigin string // where statuses are read: "api" or "node"
	pods         map[podid.FullName]podSnapshot
	runtimeLines int // number of lines of the runtime's transcript that were recorded
	entries      []entry

	mu     sync.Mutex // guards events
	events []string   // since the last update
}

// entry is one line of the transcript.
type entry struct{ timestamp, origin, pod, text string }

func (e entry) String() string { return fmt.Sprintf("%8s  %-7s  %s", e.timestamp, e.origin, e.text) }

// podSnapshot is the last recorded state of a pod.
type podSnapshot struct {
	uid        types.UID
	line       string
	conditions map[v1.PodConditionType]v1.ConditionStatus
	startTime  *metav1.Time
	message    string
}

func newTranscript() *transcript {
	return &transcript{start: time.Now(), statusOrigin: "api", pods: map[podid.FullName]podSnapshot{}}
}

// take returns the entries since its last call. Entries without timestamps are grouped by pod.
func (t *transcript) take() []string {
	if t.noTimestamps {
		slices.SortStableFunc(t.entries, func(a, b entry) int { return strings.Compare(a.pod, b.pod) })
	}
	lines := make([]string, 0, len(t.entries))
	for _, e := range t.entries {
		lines = append(lines, e.String())
	}
	t.entries = nil
	return lines
}

// record adds an entry for each change and reports whether there was any. Simultaneous changes are ordered: the runtime
// first, then pods by name, then events.
func (t *transcript) record(runtimeLines []string, pods []*v1.Pod) bool {
	before := len(t.entries)
	for _, line := range sortStops(runtimeLines[t.runtimeLines:]) {
		t.add("runtime", podOfLine(line), line)
	}
	t.runtimeLines = len(runtimeLines)
	exists := map[podid.FullName]bool{}
	for _, pod := range pods {
		exists[podid.FullNameOf(pod)] = true
	}
	for _, name := range slices.SortedFunc(maps.Keys(t.pods), compareNames) {
		if !exists[name] {
			t.add(t.statusOrigin, name.Name, name.Name+" deleted")
			delete(t.pods, name)
		}
	}
	for _, pod := range pods {
		t.recordPod(pod)
	}
	for _, event := range t.takeEvents() {
		t.add("event", strings.Fields(event)[0], event)
	}
	return len(t.entries) > before
}

// addEvent adds an event to the next update. It is safe for concurrent use.
func (t *transcript) addEvent(event string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, event)
}

func (t *transcript) takeEvents() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	slices.Sort(events)
	return slices.Compact(events)
}

func (t *transcript) add(origin, pod, text string) {
	timestamp := ""
	if !t.noTimestamps {
		timestamp = fmt.Sprintf("%.1fs", time.Since(t.start).Truncate(time.Second/10).Seconds())
	}
	t.entries = append(t.entries, entry{timestamp, origin, pod, text})
}

func (t *transcript) recordPod(pod *v1.Pod) {
	name := podid.FullNameOf(pod)
	before := t.pods[name]
	if isIntermediate(pod) && before.uid == pod.UID {
		return
	}
	if before.uid != "" && before.uid != pod.UID {
		t.add(t.statusOrigin, name.Name, name.Name+" replaced")
		before = podSnapshot{}
	}
	current := podSnapshot{
		uid: pod.UID, line: describe(pod), conditions: map[v1.PodConditionType]v1.ConditionStatus{},
		startTime: pod.Status.StartTime, message: pod.Status.Message,
	}
	line := current.line
	if !current.startTime.Equal(before.startTime) {
		line += fmt.Sprintf(", started at %.0fs", current.startTime.Sub(t.start).Seconds())
	}
	for _, condition := range pod.Status.Conditions {
		current.conditions[condition.Type] = condition.Status
		if before.conditions[condition.Type] != condition.Status {
			line += describeCondition(condition)
		}
	}
	for conditionType := range before.conditions {
		if _, found := current.conditions[conditionType]; !found {
			line += " without " + string(conditionType)
		}
	}
	if current.message != before.message && current.message != "" {
		line += fmt.Sprintf(" %q", current.message)
	}
	if line != before.line {
		t.add(t.statusOrigin, name.Name, name.Name+": "+line)
	}
	t.pods[name] = current
}

// isIntermediate reports whether all containers of the pod have stopped but its terminal phase is not set yet. Whether this
// state is visible is a matter of chance.
func isIntermediate(pod *v1.Pod) bool {
	if pod.Status.Phase != v1.PodRunning || podid.IsMirror(pod) || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Terminated == nil {
			return false
		}
	}
	return hasCondition(pod, v1.PodReadyToStartContainers, v1.ConditionFalse)
}

func hasCondition(pod *v1.Pod, conditionType v1.PodConditionType, status v1.ConditionStatus) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition v1.PodCondition) bool {
		return condition.Type == conditionType && condition.Status == status
	})
}

func describeCondition(condition v1.PodCondition) string {
	sign := map[v1.ConditionStatus]string{v1.ConditionTrue: " +", v1.ConditionFalse: " -"}[condition.Status]
	return sign + string(condition.Type)
}

// sortStops sorts consecutive stops of containers, which are concurrent.
func sortStops(lines []string) []string {
	lines = slices.Clone(lines)
	for from := 0; from < len(lines); {
		to := from
		for to < len(lines) && strings.HasPrefix(lines[to], "stop ") && !strings.HasPrefix(lines[to], "stop sandbox") {
			to++
		}
		slices.Sort(lines[from:to])
		from = to + 1
	}
	return lines
}

// podOfLine returns the pod of a line of the runtime's transcript, such as "stop web_shop/main".
func podOfLine(line string) string {
	for word := range strings.FieldsSeq(line) {
		if name, _, found := strings.Cut(word, "_"); found {
			return name
		}
	}
	return ""
}

func compareNames(a, b podid.FullName) int { return cmp.Compare(a.String(), b.String()) }

// describe returns a pod in one line, similar to kubectl get.
func describe(pod *v1.Pod) string {
	ready, restarts := 0, int32(0)
	for _, container := range pod.Status.ContainerStatuses {
		restarts += container.RestartCount
		if container.Ready {
			ready++
		}
	}
	kind := ""
	if podid.IsMirror(pod) {
		kind = "(mirror) "
	}
	line := fmt.Sprintf("%s%s %d/%d %s", kind, pod.Status.Phase, ready, len(pod.Spec.Containers), statusWord(pod))
	if restarts > 0 {
		line += fmt.Sprintf(", restarts %d", restarts)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if cpu, found := container.AllocatedResources[v1.ResourceCPU]; found {
			line += fmt.Sprintf(", %s has %s", container.Name, cpu.String())
		}
	}
	return line
}

// statusWord returns the column STATUS of kubectl get.
func statusWord(pod *v1.Pod) string {
	if pod.DeletionTimestamp != nil && !derive.IsTerminal(pod.Status.Phase) {
		return fmt.Sprintf("Terminating(%ds)", *pod.DeletionGracePeriodSeconds)
	}
	if pod.Status.Reason != "" {
		return pod.Status.Reason
	}
	isInitialized := hasCondition(pod, v1.PodInitialized, v1.ConditionTrue)
	for i, container := range pod.Status.InitContainerStatuses {
		if isInitialized {
			break
		}
		if word, done := initStatusWord(pod.Spec.InitContainers[i], container); !done {
			return fmt.Sprintf("Init:%d/%d%s", i, len(pod.Spec.InitContainers), word)
		}
	}
	word := string(pod.Status.Phase)
	for _, container := range pod.Status.ContainerStatuses {
		switch {
		case container.State.Waiting != nil && container.State.Waiting.Reason != "":
			word = container.State.Waiting.Reason
		case container.State.Terminated != nil:
			word = describeTermination(container.State.Terminated)
		}
	}
	return word
}

// initStatusWord returns the state of an init container and whether it is done.
func initStatusWord(container v1.Container, status v1.ContainerStatus) (word string, done bool) {
	state := status.State
	switch isSidecar := container.RestartPolicy != nil; {
	case !isSidecar && state.Terminated != nil && state.Terminated.ExitCode == 0, isSidecar && status.Started != nil && *status.Started:
		return "", true
	case state.Terminated != nil:
		return " " + describeTermination(state.Terminated), false
	case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
		return " " + state.Waiting.Reason, false
	default:
		return "", false
	}
}

func describeTermination(terminated *v1.ContainerStateTerminated) string {
	word := terminated.Reason
	if terminated.ExitCode != 0 {
		word += fmt.Sprintf("(%d)", terminated.ExitCode)
	}
	if terminated.Message != "" {
		word += fmt.Sprintf("(%q)", terminated.Message)
	}
	return word
}
