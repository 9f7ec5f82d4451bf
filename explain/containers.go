package explain

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// containers matches the first sidecar or regular container that keeps the pod from being Ready, or Running: first those that do not
// run, then those that run and are not ready.
func (e *explainer) containers() (Verdict, bool) {
	for _, leaf := range [...]struct {
		matches func(*explainer, *container) bool
		verdict func(*explainer, *container) Verdict
	}{
		{(*explainer).isCrashLooping, (*explainer).crashLoop},
		{(*explainer).isBeingReplaced, (*explainer).replaced},
		{(*explainer).hasEnded, (*explainer).ended},
		{(*explainer).hasUnknownState, (*explainer).unknownState},
		{(*explainer).isNotCreated, (*explainer).creating},
	} {
		if c := e.find(func(c *container) bool { return leaf.matches(e, c) }); c != nil {
			return leaf.verdict(e, c), true
		}
	}
	if e.wantsRunning() {
		return Verdict{}, false
	}
	if c := e.find(func(c *container) bool { return c.isRunning() && !c.isStarted() }); c != nil {
		return e.startupPending(c), true
	}
	if c := e.find(func(c *container) bool { return c.isRunning() && !c.status.Ready && c.spec.ReadinessProbe != nil }); c != nil {
		return e.readiness(c), true
	}
	return Verdict{}, false
}

func waitingText(c *container) string {
	if waiting := c.waiting(); waiting != nil && waiting.Reason != "" {
		return clean(waiting.Reason, maxName)
	}
	return "none"
}

func (e *explainer) isCrashLooping(c *container) bool {
	waiting := c.waiting()
	return waiting != nil && waiting.Reason == plan.ReasonCrashLoopBackOff
}

// crashLoop is about a container that exits soon after each start.
func (e *explainer) crashLoop(c *container) Verdict {
	start := e.Worker.Starts[c.spec.Name]
	v := Verdict{
		Code: CodeCrashLoop, Container: c.spec.Name, Summary: c.name() + " is not started (CrashLoopBackOff)",
		Headline: e.isNot() + ": " + c.name() + " is not started (CrashLoopBackOff)",
		Next:     Step{What: "start", At: start.At, By: ByHerald},
		Changes:  []string{"10 minutes of running reset the back-off", "an edit of the container starts it at once"},
	}
	end := c.lastEnd()
	if end == nil {
		v.Chain = []Because{{Rule: "PH-31", Text: "it waits for the end of its back-off", Input: "waiting reason CrashLoopBackOff"}}
		if message := clean(c.waiting().Message, maxQuote); message != "" {
			v.Chain[0].Text = message
		}
		return v
	}
	v.Summary = c.name() + " exits " + strconv.Itoa(int(end.ExitCode))
	if ran := e.ranFor(c, end); ran != "" {
		v.Summary += " after " + ran
	}
	v.Chain = []Because{e.runs(c, end, start, "PH-12")}
	if message := clean(end.Message, maxQuote); message != "" {
		v.Chain = append(v.Chain, Because{Rule: "PH-50", Text: "its termination message: " + message})
	}
	switch stoppedBy := plan.StopReason(e.Recent[c.spec.Name].StoppedBy); {
	case end.Reason == restart.ReasonOOMKilled:
		v.Summary = c.name() + " is killed for lack of memory (OOMKilled)"
		v.Changes = append(v.Changes, "a larger memory limit, or a container that uses less")
	case stoppedBy == plan.StopLivenessProbe || stoppedBy == plan.StopStartupProbe:
		v.Chain = append(v.Chain, Because{Rule: "PRB-41", Text: "it was last stopped by its " + probeOf(stoppedBy) + " probe"})
	}
	return v
}

func probeOf(reason plan.StopReason) string {
	if reason == plan.StopStartupProbe {
		return "startup"
	}
	return "liveness"
}

// runs describes how often the container ended: "web exited 3 after 1.2s, 14 restarts in 61m, last 14:01:03; back-off 5m".
func (e *explainer) runs(c *container, end *v1.ContainerStateTerminated, start Start, rule string) Because {
	restarts, last, backoff := "", "", ""
	if n := c.status.RestartCount; n > 0 {
		restarts = ", restarted " + times(int(n))
		if started := e.Pod.Status.StartTime; started != nil && age(e.Now, started.Time) != "" {
			restarts += " in " + age(e.Now, started.Time)
		}
	}
	if !end.FinishedAt.IsZero() {
		last = ", last " + clock(e.Now, end.FinishedAt.Time)
	}
	if start.Failures > 0 && start.Delay > 0 {
		backoff = "; " + strconv.Itoa(start.Failures) + " short runs give a back-off of " + duration(start.Delay)
	} else if start.Delay > 0 {
		backoff = "; back-off " + duration(start.Delay)
	}
	return Because{
		Rule: rule, Text: c.name() + " " + e.ending(c, end) + restarts + last + backoff, Since: end.FinishedAt.Time,
		Input: "exit code " + strconv.Itoa(int(end.ExitCode)) + ", restartCount " + strconv.Itoa(int(c.status.RestartCount)),
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// isBeingReplaced reports whether the container is being stopped to be started again.
func (e *explainer) isBeingReplaced(c *container) bool {
	_, ok := e.stopOf(c)
	return ok && c.isRunning()
}

func (e *explainer) stopOf(c *container) (Stopping, bool) {
	for _, stop := range e.Worker.Stopping {
		if stop.Container == c.spec.Name {
			return stop, true
		}
	}
	return Stopping{}, false
}

func (e *explainer) replaced(c *container) Verdict {
	stop, _ := e.stopOf(c)
	v := Verdict{
		Code: CodeContainerStopping, Container: c.spec.Name, Since: stop.Since,
		Summary: fmt.Sprintf("%s is being stopped (%s)", c.name(), clean(string(stop.Reason), maxName)),
		Chain:   []Because{{Rule: "PW-24", Text: "it gets time to end by itself", Since: stop.Since}},
		Next:    Step{What: "kill", At: stop.KillAt, By: ByHerald, Then: "a new instance follows if the restart policy allows it"},
	}
	if stop.Message != "" {
		v.Chain[0].Text = clean(stop.Message, maxQuote)
	}
	switch stop.Reason {
	case plan.StopLivenessProbe:
		v.Code, v.Summary, v.Chain[0].Rule = CodeLivenessFailed, "liveness probe of "+c.name()+" failed, it is being stopped", "PRB-41"
		v.Changes = []string{"a liveness probe that the container can answer"}
	case plan.StopStartupProbe:
		v.Code, v.Summary, v.Chain[0].Rule = CodeStartupFailed, "startup probe of "+c.name()+" failed, it is being stopped", "PRB-41"
		v.Changes = []string{"a startup probe with more time"}
	}
	v.Headline = e.isNot() + ": " + v.Summary
	return v
}

// hasEnded reports whether the container has exited, and nothing says that it waits.
func (e *explainer) hasEnded(c *container) bool {
	return c.status != nil && c.status.State.Terminated != nil
}

// ended is about a container that has exited while the pod has not ended.
func (e *explainer) ended(c *container) Verdict {
	end := c.status.State.Terminated
	isSidecar := c.kind == derive.SidecarContainer
	v := Verdict{
		Code: CodeContainerRestarting, Container: c.spec.Name, Since: end.FinishedAt.Time,
		Summary: fmt.Sprintf("%s %s and is started again", c.name(), e.ending(c, end)),
		Chain:   []Because{e.runs(c, end, e.Worker.Starts[c.spec.Name], "PH-33")},
		Next:    Step{What: "start", At: e.Worker.Starts[c.spec.Name].At, By: ByHerald},
	}
	switch {
	case isTrue(&e.Pod.Status, v1.AllContainersRestarting):
		v.Code, v.Summary = CodeRestartingAll, "all containers are restarted because one exited"
		v.Chain = append(v.Chain, Because{Rule: "GEN-34", Text: "a restart rule of a container matched its exit code"})
	case isSidecar || restart.ShouldRestart(&e.Pod.Spec, c.spec, end.ExitCode):
	default:
		v.Code, v.Final = CodeContainerEnded, true
		v.Summary = fmt.Sprintf("%s %s and is not started again", c.name(), e.ending(c, end))
		v.Chain[0].Rule = "SM-43"
		v.Chain = append(v.Chain, Because{Rule: "GEN-4", Text: "a container that has ended is not ready", Input: e.policy()})
		v.Next = Step{What: "nothing: its restart policy does not restart it"}
		v.Changes = []string{"a new pod"}
	}
	v.Headline = e.isNot() + ": " + v.Summary
	if v.Final {
		v.Headline = e.isNot() + ", and will not be: " + v.Summary
	}
	return v
}

// hasUnknownState reports whether nothing says in what state the container is.
func (e *explainer) hasUnknownState(c *container) bool {
	if c.status == nil {
		return len(e.Pod.Status.ContainerStatuses) > 0 && e.Worker.Starts[c.spec.Name].Reason == ""
	}
	state := c.status.State
	if state.Running == nil && state.Waiting == nil && state.Terminated == nil {
		return true
	}
	if state.Waiting == nil || state.Waiting.Reason != "" || e.Observed == nil {
		return false
	}
	instance := e.Observed.Newest(c.spec.Name)
	return instance != nil && derive.ContainerState(instance) == observed.Unknown
}

func (e *explainer) unknownState(c *container) Verdict {
	return Verdict{
		Code: CodeStateUnknown, Container: c.spec.Name, Headline: fmt.Sprintf("%s: the state of %s is not known", e.isNot(), c.name()),
		Summary: "the state of " + c.name() + " is not known",
		Chain:   []Because{{Rule: "PH-11", Text: "the container runtime has not said in what state it is", Input: "status of the container"}},
		Next:    Step{What: "next observation", By: ByHerald},
		Changes: []string{"a container runtime that reports the container"},
	}
}

func (e *explainer) isNotCreated(c *container) bool { return !c.isRunning() }

// creating is about a container without an instance that runs, and without a reason.
func (e *explainer) creating(c *container) Verdict {
	v := Verdict{
		Code: CodeContainerCreating, Container: c.spec.Name, Summary: c.name() + " is being started",
		Headline: fmt.Sprintf("%s yet: %s is being started", e.isNot(), c.name()),
		Chain:    []Because{{Rule: "PH-22", Text: "its image is pulled, or it is created", Input: "waiting reason " + waitingText(c)}},
		Next:     Step{What: "start", By: ByHerald},
	}
	if waiting := c.waiting(); waiting != nil && waiting.Reason == "RestartingAllContainers" {
		v.Code, v.Summary = CodeRestartingAll, "all containers are restarted because one exited"
		v.Headline = e.isNot() + ": " + v.Summary
		v.Chain[0] = Because{Rule: "GEN-34", Text: "a restart rule of a container matched its exit code"}
		return v
	}
	if end := c.lastEnd(); end != nil {
		v.Code, v.Chain = CodeContainerRestarting, []Because{e.runs(c, end, e.Worker.Starts[c.spec.Name], "PH-33")}
		v.Headline = fmt.Sprintf("%s: %s is started again", e.isNot(), c.name())
		if end.Reason == derive.ReasonContainerStatusUnknown {
			v.Chain[0] = Because{Rule: "PH-29", Text: "it ran, and its end was not observed", Input: "lastState ContainerStatusUnknown"}
		}
	}
	return e.starting(c, v)
}

// starting turns a verdict about a start into one about the trouble that keeps it from happening.
func (e *explainer) starting(c *container, v Verdict) Verdict {
	if e.Worker.Trouble == nil {
		if created := e.Pod.CreationTimestamp.Time; v.Since.IsZero() && !created.IsZero() {
			v.Since = created
		}
		return v
	}
	return Verdict{
		Code: CodeSyncFailed, Container: c.spec.Name, Headline: fmt.Sprintf("%s: %s could not be started", e.isNot(), c.name()),
		Summary: c.name() + " could not be started", Chain: []Because{e.trouble("PW-31")}, Next: e.retry(),
		Changes: []string{"correct what the message says"},
	}
}

// startedAgo returns how long the container runs. Empty if it does not.
func (e *explainer) startedAgo(c *container) string {
	if !c.isRunning() {
		return ""
	}
	return age(e.Now, c.status.State.Running.StartedAt.Time)
}

// period returns the period of a probe.
func period(probe *v1.Probe) time.Duration {
	if probe == nil || probe.PeriodSeconds <= 0 {
		return 10 * time.Second
	}
	return time.Duration(probe.PeriodSeconds) * time.Second
}
