package explain

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
)

// ready answers about a pod whose Ready condition is True: what is wrong nevertheless, or since when it is Ready.
func (e *explainer) ready() Verdict {
	if v, ok := e.runtimeDown(); ok {
		return v
	}
	if v, ok := e.runtimeStale(); ok {
		return v
	}
	if e.Source.Problem != "" {
		return Verdict{
			Code: CodeManifestRefused, Headline: e.name() + " is Ready, but runs an earlier version: its manifest cannot be used",
			Summary: "ready, but its manifest cannot be used", Since: e.Source.Since, Chain: []Because{e.refusedManifest()},
			Next:    Step{What: "the source is read again when it changes", By: ByHerald},
			Changes: []string{"correct the manifest"},
		}
	}
	if v, ok := e.apiDiffers(); ok {
		return v
	}
	if v, ok := e.ephemeral(); ok {
		return v
	}
	if v, ok := e.resize(); ok {
		return v
	}
	if v, ok := e.unstable(); ok {
		return v
	}
	v := Verdict{
		Code: CodeReady, Headline: e.name() + " is Ready" + ageSuffix(e.Now, e.readySince()), Summary: "ready",
		Chain: []Because{{
			Rule: "GEN-14", Text: "all containers are ready, and all readiness gates are True", Input: "condition Ready", Since: e.readySince(),
		}},
		Next: Step{What: "nothing: it is as it should be"},
	}
	if e.isEnding() {
		v.Headline = e.name() + " is Ready, and" + strings.TrimPrefix(e.isBeing(), e.name())
		v.Chain = append(v.Chain, Because{Rule: "PRB-37", Text: "readiness counts until its containers have stopped"})
	}
	return v
}

// running answers WhyNotRunning about a pod whose phase is Running.
func (e *explainer) running() Verdict {
	v := Verdict{
		Code: CodeRunning, Headline: e.name() + " is Running", Summary: "running",
		Chain: []Because{{Rule: "PH-8", Text: "a container runs, or is started again", Input: "status.phase Running"}},
		Next:  Step{What: "nothing: it is as it should be"},
	}
	if start := e.Pod.Status.StartTime; start != nil {
		v.Since = start.Time
		v.Headline += ageSuffix(e.Now, start.Time)
	}
	if !e.isReady() {
		e.question = WhyNotReady
		why := e.notAsWanted()
		e.question = WhyNotRunning
		v.Chain = append(v.Chain, Because{Text: why.Headline})
		v.Next = why.Next
	}
	return v
}

// ephemeral matches a pod with an ephemeral container that could not be started.
func (e *explainer) ephemeral() (Verdict, bool) {
	for i := range e.Pod.Spec.EphemeralContainers {
		spec := v1.Container(e.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		c := container{
			spec: &spec, list: "ephemeralContainers", index: i,
			status: findStatus(e.Pod.Status.EphemeralContainerStatuses, spec.Name),
		}
		reason, message, start := e.waitReason(&c)
		if !isStartError(reason) {
			continue
		}
		return Verdict{
			Code: CodeEphemeralFailed, Container: spec.Name, Summary: "ready, but ephemeral container " + c.name() + " could not be started",
			Headline: fmt.Sprintf("%s is Ready, but its ephemeral container %s could not be started", e.name(), c.name()),
			Chain: []Because{
				{Rule: "PH-31", Text: e.startMessage(reason, message, start), Input: "waiting reason " + clean(reason, maxName)},
				{Rule: "PH-5", Text: "ephemeral containers do not affect the pod"},
			},
			Next: Step{What: "start", At: start.At, By: ByHerald},
		}, true
	}
	return Verdict{}, false
}

// minFlips is how often readiness must have changed within an hour to be called unstable.
const minFlips = 4

// unstable matches a pod that is Ready, and of which a container restarted or changed its readiness often within the last hour.
func (e *explainer) unstable() (Verdict, bool) {
	c, restarts := e.restarted()
	if c != nil && !e.isDeliberate(c, restarts) {
		summary := fmt.Sprintf("%s restarted %s in the last hour", c.name(), times(restarts))
		v := Verdict{
			Code: CodeUnstable, Container: c.spec.Name, Summary: "ready, but " + summary,
			Headline: fmt.Sprintf("%s is Ready, but %s", e.name(), summary), Chain: e.restartReasons(c, restarts),
			Next: Step{What: "nothing: it is Ready now"}, Changes: []string{"see its history and its last lines"},
		}
		return v, true
	}
	c = e.find(func(c *container) bool { return e.Recent[c.spec.Name].Flips >= minFlips })
	if c == nil {
		return Verdict{}, false
	}
	summary := fmt.Sprintf("readiness of %s changed %d times in the last hour", c.name(), e.Recent[c.spec.Name].Flips)
	return Verdict{
		Code: CodeUnstable, Container: c.spec.Name, Summary: "ready, but " + summary,
		Headline: fmt.Sprintf("%s is Ready, but %s", e.name(), summary),
		Chain: []Because{{
			Rule: "PRB-19", Text: "a probe that fails now and then changes readiness with each streak", Input: "history of the last hour",
		}},
		Next:    Step{What: "nothing: it is Ready now"},
		Changes: []string{"a larger failureThreshold or timeoutSeconds", "a container that answers in time"},
	}, true
}

// isDeliberate reports whether the only restart was not caused by the container or its probes.
func (e *explainer) isDeliberate(c *container, restarts int) bool {
	switch plan.StopReason(e.Recent[c.spec.Name].StoppedBy) {
	case "", plan.StopLivenessProbe, plan.StopStartupProbe, plan.StopUnknownState:
		return false
	default:
		return restarts == 1
	}
}

// recentWindow is the time that Recent covers.
const recentWindow = time.Hour

// restarted returns the container that restarted most often in the last hour. Without a history the last end of a container proves
// one restart. It returns nil if none did.
func (e *explainer) restarted() (most *container, restarts int) {
	for i := range e.all {
		c := &e.all[i]
		n := e.Recent[c.spec.Name].Restarts
		if n == 0 && e.hasJustRestarted(c) {
			n = 1
		}
		if n > restarts {
			most, restarts = c, n
		}
	}
	return most, restarts
}

// hasJustRestarted reports whether the status proves a restart within the last hour.
func (e *explainer) hasJustRestarted(c *container) bool {
	if c.status == nil || c.status.RestartCount == 0 {
		return false
	}
	isRecent := func(t time.Time) bool { return !t.IsZero() && e.Now.Sub(t) < recentWindow }
	end := c.status.LastTerminationState.Terminated
	return end != nil && isRecent(end.FinishedAt.Time) || c.isRunning() && isRecent(c.status.State.Running.StartedAt.Time)
}

// restartReasons says how the container last ended, and who ended it.
func (e *explainer) restartReasons(c *container, restarts int) []Because {
	var chain []Because
	if end := c.lastEnd(); end != nil {
		chain = append(chain, e.runs(c, end, e.Worker.Starts[c.spec.Name], "PH-24"))
	}
	switch reason := plan.StopReason(e.Recent[c.spec.Name].StoppedBy); reason {
	case "":
	case plan.StopLivenessProbe, plan.StopStartupProbe:
		text := "last killed by its " + probeOf(reason) + " probe"
		chain = append(chain, Because{Rule: "PRB-41", Text: text, Input: "stop reason " + string(reason)})
	default:
		chain = append(chain, Because{Rule: "PW-24", Text: "last stopped by the agent: " + clean(string(reason), maxName), Input: "stop reason"})
	}
	if len(chain) == 0 {
		chain = append(chain, Because{Rule: "PH-36", Text: "it restarted " + times(restarts), Input: "history of the last hour"})
	}
	return chain
}
