package table

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
)

// Row is the line of one pod. The fields after Age are for wide tables.
type Row struct {
	Namespace, Name, Ready, Status, Restarts, Age string
	IP, Node, NominatedNode, ReadinessGates       string
	// Extra has the cells of Options.Extra.
	Extra []string
}

// NewRow returns the row of a pod at a time. All texts are safe for a terminal.
func NewRow(pod *v1.Pod, now time.Time) Row {
	c := newColumns(pod, &pod.Status)
	return Row{
		Namespace: Printable(pod.Namespace), Name: Printable(pod.Name),
		Ready:  fmt.Sprintf("%d/%d", c.ready, readyTotal(pod)),
		Status: Printable(c.reason), Restarts: c.formatRestarts(now), Age: formatAge(pod.CreationTimestamp, now),
		IP: Printable(firstIP(pod)), Node: cmp.Or(Printable(pod.Spec.NodeName), none),
		NominatedNode: cmp.Or(Printable(pod.Status.NominatedNodeName), none), ReadinessGates: formatGates(pod),
	}
}

// Summary holds the columns READY, STATUS and RESTARTS as values.
type Summary struct {
	Status                 string
	Ready, Total, Restarts int
}

// Summarize returns the summary of a pod with the given status instead of its own. Of a pod without a spec, the status tells the
// number of containers.
func Summarize(pod *v1.Pod, status *v1.PodStatus) Summary {
	c := newColumns(pod, status)
	total := readyTotal(pod)
	if total == 0 {
		total = len(status.ContainerStatuses)
	}
	return Summary{Status: c.reason, Ready: c.ready, Total: total, Restarts: c.restarts.times}
}

// readyTotal returns the number of containers that can be ready: regular containers and sidecars.
func readyTotal(pod *v1.Pod) int {
	total := len(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if restart.IsSidecar(&pod.Spec.InitContainers[i]) {
			total++
		}
	}
	return total
}

func formatAge(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

func firstIP(pod *v1.Pod) string {
	if len(pod.Status.PodIPs) == 0 {
		return cmp.Or(pod.Status.PodIP, none) // without an API server, nothing fills podIPs
	}
	return cmp.Or(pod.Status.PodIPs[0].IP, none)
}

func formatGates(pod *v1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	passed := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if isTrue(&pod.Status, gate.ConditionType) {
			passed++
		}
	}
	return fmt.Sprintf("%d/%d", passed, len(pod.Spec.ReadinessGates))
}

const none = "<none>"

func isTrue(status *v1.PodStatus, kind v1.PodConditionType) bool {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// columns accumulates READY, STATUS and RESTARTS as the API server's printer does.
type columns struct {
	pod      *v1.Pod       // spec and metadata
	status   *v1.PodStatus // not necessarily the pod's own
	reason   string
	ready    int
	restarts restartCount
	sidecars restartCount // the part of restarts that belongs to sidecars
}

func newColumns(pod *v1.Pod, status *v1.PodStatus) columns {
	c := columns{pod: pod, status: status, reason: string(status.Phase)}
	if status.Reason != "" {
		c.reason = status.Reason
	}
	for i := range status.Conditions {
		if condition := &status.Conditions[i]; condition.Type == v1.PodScheduled && condition.Reason == v1.PodReasonSchedulingGated {
			c.reason = condition.Reason
		}
	}
	if !c.addInitContainers() || isTrue(status, v1.PodInitialized) {
		c.addContainers()
	}
	c.addDeletion()
	return c
}

// restartCount is the number of restarts and the time of the last one.
type restartCount struct {
	times int
	last  time.Time
}

func (c *restartCount) add(status *v1.ContainerStatus) {
	c.times += int(status.RestartCount)
	if terminated := status.LastTerminationState.Terminated; terminated != nil && terminated.FinishedAt.After(c.last) {
		c.last = terminated.FinishedAt.Time
	}
}

// addInitContainers adds the init containers up to the current one and reports whether the pod is initializing.
func (c *columns) addInitContainers() (initializing bool) {
	for i := range c.status.InitContainerStatuses {
		status := &c.status.InitContainerStatuses[i]
		isSidecar := c.isSidecar(status.Name)
		c.restarts.add(status)
		if isSidecar {
			c.sidecars.add(status)
		}
		switch {
		case status.State.Terminated != nil && status.State.Terminated.ExitCode == 0:
			continue
		case isSidecar && status.Started != nil && *status.Started:
			if status.Ready {
				c.ready++
			}
			continue
		case status.State.Terminated != nil:
			c.reason = "Init:" + terminatedReason(status.State.Terminated)
		case waitingReason(status) != "" && waitingReason(status) != "PodInitializing":
			c.reason = "Init:" + waitingReason(status)
		default:
			c.reason = fmt.Sprintf("Init:%d/%d", i, len(c.pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

func (c *columns) isSidecar(name string) bool {
	for i := range c.pod.Spec.InitContainers {
		if container := &c.pod.Spec.InitContainers[i]; container.Name == name {
			return restart.IsSidecar(container)
		}
	}
	return false
}

// addContainers adds the regular containers. The first container that is not running determines the reason.
func (c *columns) addContainers() {
	c.restarts = c.sidecars
	anyReady, failure := false, ""
	for i := len(c.status.ContainerStatuses) - 1; i >= 0; i-- {
		status := &c.status.ContainerStatuses[i]
		c.restarts.add(status)
		switch {
		case waitingReason(status) != "":
			c.reason = waitingReason(status)
		case status.State.Terminated != nil:
			c.reason = terminatedReason(status.State.Terminated)
			if status.State.Terminated.ExitCode != 0 {
				failure = c.reason
			}
		case status.Ready && status.State.Running != nil:
			anyReady = true
			c.ready++
		}
	}
	if c.reason != "Completed" {
		return
	}
	switch { // some containers completed: the others decide
	case anyReady && isTrue(c.status, v1.PodReady):
		c.reason = "Running"
	case failure != "":
		c.reason = failure
	case anyReady:
		c.reason = "NotReady"
	}
}

func (c *columns) addDeletion() {
	const nodeLost = "NodeLost"
	switch {
	case c.pod.DeletionTimestamp == nil:
	case c.status.Reason == nodeLost:
		c.reason = "Unknown"
	case !derive.IsTerminal(c.status.Phase):
		c.reason = "Terminating"
	}
}

func (c *columns) formatRestarts(now time.Time) string {
	if c.restarts.times == 0 || c.restarts.last.IsZero() {
		return fmt.Sprint(c.restarts.times)
	}
	return fmt.Sprintf("%d (%s ago)", c.restarts.times, duration.HumanDuration(now.Sub(c.restarts.last)))
}

func waitingReason(status *v1.ContainerStatus) string {
	if status.State.Waiting == nil {
		return ""
	}
	return status.State.Waiting.Reason
}

func terminatedReason(terminated *v1.ContainerStateTerminated) string {
	switch {
	case terminated.Reason != "":
		return terminated.Reason
	case terminated.Signal != 0:
		return fmt.Sprintf("Signal:%d", terminated.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", terminated.ExitCode)
	}
}

// Printable returns the text as one line that is safe for a terminal. Texts of a status come from runtimes and from anyone
// with write access. Escape sequences are made visible as kubectl does, text after the first line is cut, and other
// unprintable characters are dropped.
func Printable(text string) string {
	first, rest := text, ""
	if end := strings.IndexAny(text, "\n\r\f\v"); end >= 0 {
		first, rest = text[:end], "..."
	}
	first = strings.ReplaceAll(first, "\x1b", "^[")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return -1
		}
	}, first) + rest
}
