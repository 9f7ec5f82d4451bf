package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
)

// terminal matches a pod that has ended. Its phase is final (PH-17).
func (e *explainer) terminal() (Verdict, bool) {
	status := &e.Pod.Status
	if !derive.IsTerminal(status.Phase) {
		return Verdict{}, false
	}
	var v Verdict
	switch {
	case status.Phase == v1.PodSucceeded:
		v = e.succeeded()
	case status.Reason != "":
		v = e.failedForReason()
	default:
		v = e.failedContainer()
	}
	v.Final = true
	v.Next = Step{What: "nothing: a pod that has ended is not started again"}
	if e.Sync.State == SyncWithheld {
		v.Chain = append(v.Chain, Because{Rule: "SM-67", Text: "the API server is told when all containers have stopped", Input: "sync withheld"})
	}
	return v, true
}

func (e *explainer) succeeded() Verdict {
	v := Verdict{
		Code: CodeSucceeded, Headline: e.name() + " has Succeeded", Summary: "succeeded",
		Chain:   []Because{{Rule: "PH-10", Text: "all containers have exited with 0, and none restarts", Input: e.policy()}},
		Changes: []string{"a new pod"},
	}
	if c := e.find(func(c *container) bool { return c.kind == derive.RegularContainer && c.isRunning() }); c != nil {
		v.Code, v.Chain = CodeForeignPhase, e.foreignPhase()
		v.Headline = fmt.Sprintf("%s has Succeeded, though %s runs", e.name(), c.name())
		v.Summary = "succeeded, though " + c.name() + " runs"
		return v
	}
	if last := e.lastFinish(); !last.IsZero() {
		v.Since = last
		if since := age(e.Now, last); since != "" {
			v.Headline = e.name() + " Succeeded " + since + " ago"
		}
	}
	return v
}

// lastFinish returns when the last regular container ended. Zero if unknown.
func (e *explainer) lastFinish() time.Time {
	var last time.Time
	for i := range e.Pod.Status.ContainerStatuses {
		if end := e.Pod.Status.ContainerStatuses[i].State.Terminated; end != nil && end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	return last
}

func (e *explainer) policy() string {
	return "spec.restartPolicy " + clean(string(e.Pod.Spec.RestartPolicy), maxName)
}

// failedForReason is about a pod that was failed as a whole.
func (e *explainer) failedForReason() Verdict {
	status := &e.Pod.Status
	message := clean(status.Message, maxQuote)
	v := Verdict{
		Code: CodeFailedForReason, Summary: "failed: " + clean(status.Reason, maxName),
		Chain:   []Because{{Rule: "PH-18", Text: message, Input: "status.reason " + clean(status.Reason, maxName)}},
		Changes: []string{"a new pod"},
	}
	switch status.Reason {
	case "DeadlineExceeded":
		v.Code, v.Summary = CodeDeadlineExceeded, "failed: it ran longer than its deadline"
		if limit := e.Pod.Spec.ActiveDeadlineSeconds; limit != nil {
			v.Summary = fmt.Sprintf("failed: it ran longer than %ds", *limit)
		}
		v.Chain[0].Rule = "PH-19"
		v.Changes = []string{"a new pod with a larger spec.activeDeadlineSeconds"}
	case "Evicted":
		explainEviction(&v, status.Message)
	case "Preempting", "Preempted":
		v.Code, v.Summary, v.Chain[0].Rule = CodePreempted, "stopped for a more important pod", "GEN-33"
	case "NodeShutdown", "Shutdown", "Terminated":
		v.Code, v.Summary, v.Chain[0].Rule = CodeNodeShutdown, "stopped because the node was shut down", "GEN-33"
	}
	v.Headline = e.name() + " has " + capitalFailed(v.Summary)
	if message == "" {
		v.Chain[0].Text = "the status has no message"
	} else if v.Summary == "evicted" || v.Code == CodeFailedForReason { // others repeat the message in short
		v.Headline += ": " + message
	}
	return v
}

// explainEviction tells a pod that exceeded its own limit from one that had to go, or could not come, because the node was short of
// something.
func explainEviction(v *Verdict, message string) {
	v.Code, v.Summary, v.Chain[0].Rule = CodeEvicted, "evicted", "EVI-20"
	v.Changes = []string{"a new pod that uses less, or has higher limits"}
	if rest, isStarved := strings.CutPrefix(message, "The node was low on resource: "); isStarved {
		name, _, _ := strings.Cut(rest, ". ")
		name = clean(name, maxName)
		v.Summary, v.Chain[0].Rule = "evicted: the node was short of "+name, "EVI-21"
		v.Changes = []string{
			"a new pod that requests the " + name + " that it uses: pods that use more than they request go first", "more " + name + " on the node",
		}
		if name != string(v1.ResourceMemory) && name != string(v1.ResourceEphemeralStorage) { // they cannot be requested
			v.Changes[0] = "a new pod that uses fewer " + name + ", or has a higher priority"
		}
	}
	if rest, isRejected := strings.CutPrefix(message, "The node had condition: "); isRejected {
		conditions, _, _ := strings.Cut(rest, ". ")
		v.Summary, v.Chain[0].Rule = "not admitted: the node had "+clean(conditions, maxName), "ADM-22"
		v.Changes = []string{"a new pod on another node, or after the pressure of this one", "a critical priority"}
	}
}

// capitalFailed turns a summary into the end of a headline.
func capitalFailed(summary string) string {
	const failed = "failed: "
	if len(summary) > len(failed) && summary[:len(failed)] == failed {
		return "Failed: " + summary[len(failed):]
	}
	return "Failed: it was " + summary
}

// failedContainer is about a pod of which a container has failed for good.
func (e *explainer) failedContainer() Verdict {
	failed := func(c *container) bool {
		if c.kind == derive.SidecarContainer {
			return false
		}
		end := c.lastEnd()
		return end != nil && !c.isRunning() && !restart.InitSucceeded(end.ExitCode, end.Reason)
	}
	c := e.findAny(func(c *container) bool { return failed(c) && c.lastEnd().Reason == restart.ReasonOOMKilled })
	if c == nil {
		c = e.findAny(failed)
	}
	if c == nil {
		return Verdict{
			Code: CodeForeignPhase, Headline: e.name() + " has Failed, though no container of it failed", Summary: "failed, though no container did",
			Chain: e.foreignPhase(), Changes: []string{"a new pod"},
		}
	}
	end := c.lastEnd()
	v := Verdict{
		Code: CodeFailed, Container: c.spec.Name, Since: end.FinishedAt.Time,
		Summary: fmt.Sprintf("%s %s", c.name(), e.ending(c, end)),
		Chain:   []Because{{Rule: "PH-10", Text: "no container restarts", Input: e.policy(), Since: end.FinishedAt.Time}},
		Changes: []string{"a new pod"},
	}
	switch {
	case end.Reason == restart.ReasonOOMKilled:
		v.Code, v.Changes = CodeOOMKilled, []string{"a new pod with more memory"}
	case end.Reason == derive.ReasonContainerStatusUnknown:
		v.Code, v.Summary = CodeContainerLost, "the end of "+c.name()+" was not observed"
		v.Chain[0] = Because{Rule: "PH-28", Text: "it may have completed, so it does not run a second time", Input: e.policy()}
	case c.kind == derive.InitContainer:
		v.Code, v.Summary = CodeInitFailed, "init container "+v.Summary
		v.Chain[0].Rule = "PH-6"
	}
	if message := clean(end.Message, maxQuote); message != "" && v.Code != CodeContainerLost {
		v.Chain = append(v.Chain, Because{Rule: "PH-50", Text: "its termination message: " + message})
	}
	v.Headline = e.name() + " has Failed: " + v.Summary
	return v
}

// foreignPhase explains a terminal phase that does not follow from the containers.
func (e *explainer) foreignPhase() []Because {
	return []Because{{
		Rule: "PH-20", Text: "the phase does not follow from the containers; what the API server calls final stays so",
		Input: "status.phase " + string(e.Pod.Status.Phase),
	}}
}

// ending describes how a container ended: "exited 137 (OOMKilled, memory limit 512Mi) after 4m".
func (e *explainer) ending(c *container, end *v1.ContainerStateTerminated) string {
	how := ""
	switch {
	case end.Reason == restart.ReasonOOMKilled:
		how = " (OOMKilled" + memoryLimit(c) + ")"
	case end.Signal != 0:
		how = fmt.Sprintf(" (signal %d)", end.Signal)
	case end.Reason != "" && end.Reason != "Error" && end.Reason != "Completed":
		how = " (" + clean(end.Reason, maxName) + ")"
	}
	after := ""
	if ran := e.ranFor(c, end); ran != "" {
		after = " after " + ran
	}
	return "exited " + strconv.Itoa(int(end.ExitCode)) + how + after
}

func memoryLimit(c *container) string {
	if limit, ok := c.spec.Resources.Limits[v1.ResourceMemory]; ok {
		return ", memory limit " + limit.String()
	}
	return ""
}

// ranFor returns how long the instance ran. The runtime knows it to the millisecond, the status to the second.
func (e *explainer) ranFor(c *container, end *v1.ContainerStateTerminated) string {
	if e.Observed != nil && end.ContainerID != "" {
		id := observed.ParseContainerID(end.ContainerID)
		for i := range e.Observed.Containers {
			instance := &e.Observed.Containers[i]
			if instance.Name == c.spec.Name && instance.Exit != nil && !instance.StartedAt.IsZero() && instance.ID == id {
				return duration(instance.Exit.FinishedAt.Sub(instance.StartedAt))
			}
		}
	}
	if end.StartedAt.IsZero() || end.FinishedAt.IsZero() {
		return ""
	}
	return duration(end.FinishedAt.Sub(end.StartedAt.Time))
}
