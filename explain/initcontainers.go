package explain

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/restart"
)

// initContainers matches a pod whose init containers have not all completed. Init containers of a pod of which a regular container
// has run are done, whatever their statuses say (GEN-21).
func (e *explainer) initContainers() (Verdict, bool) {
	if len(e.Pod.Spec.InitContainers) == 0 || e.hasRunRegular() {
		return Verdict{}, false
	}
	list := e.initList()
	for i := range list {
		if !isInitDone(&list[i]) {
			return e.initContainerState(&list[i]), true
		}
	}
	return Verdict{}, false
}

// hasRunRegular reports whether a regular container runs or has run.
func (e *explainer) hasRunRegular() bool {
	return slices.ContainsFunc(e.regularList(), func(c container) bool {
		return c.status != nil && (c.status.State.Running != nil || c.status.State.Terminated != nil)
	})
}

// isInitDone reports whether the next container may start (GEN-18, GEN-19).
func isInitDone(c *container) bool {
	if c.kind == derive.SidecarContainer {
		return c.isStarted()
	}
	if c.status == nil {
		return false
	}
	end := c.status.State.Terminated
	return end != nil && restart.InitSucceeded(end.ExitCode, end.Reason)
}

// position names an init container by its place: "init container 2 of 3 (migrate)".
func (e *explainer) position(c *container) string {
	if n := len(e.Pod.Spec.InitContainers); n > 1 {
		return fmt.Sprintf("init container %d of %d (%s)", c.index+1, n, c.name())
	}
	return "init container " + c.name()
}

func (e *explainer) initContainerState(c *container) Verdict {
	switch {
	case c.isRunning() && c.kind == derive.SidecarContainer:
		return e.sidecarStarting(c)
	case c.isRunning():
		return e.initRunning(c)
	case e.lastFailure(c) != nil:
		return e.initFailing(c)
	default:
		return e.starting(c, Verdict{
			Code: CodeInitStarting, Container: c.spec.Name, Summary: e.position(c) + " is being started",
			Headline: e.isNot() + " yet: " + e.position(c) + " is being started",
			Chain:    []Because{{Rule: "PH-22", Text: "its image is pulled, or it is created", Input: "waiting reason " + waitingText(c)}},
			Next:     Step{What: "start", By: ByHerald},
		})
	}
}

// lastFailure returns how the container last failed, if it did and does not run.
func (e *explainer) lastFailure(c *container) *v1.ContainerStateTerminated {
	end := c.lastEnd()
	if end == nil || c.isRunning() || c.kind == derive.InitContainer && restart.InitSucceeded(end.ExitCode, end.Reason) {
		return nil
	}
	return end
}

func (e *explainer) initRunning(c *container) Verdict {
	startedAt := c.status.State.Running.StartedAt.Time
	summary := e.position(c) + " runs" + ageSuffix(e.Now, startedAt)
	v := Verdict{
		Code: CodeInitRunning, Container: c.spec.Name, Headline: e.isNot() + ": " + summary, Summary: summary, Since: startedAt,
		Chain: []Because{{Rule: "PH-7", Text: "the next container starts when it has exited with 0", Since: startedAt}},
		Next:  Step{What: "end of " + c.name(), By: ByContainer},
	}
	if limit := e.Pod.Spec.ActiveDeadlineSeconds; limit == nil {
		v.Changes = []string{"nothing limits its time: spec.activeDeadlineSeconds is not set"}
	} else {
		v.Changes = []string{fmt.Sprintf("spec.activeDeadlineSeconds %d ends the pod", *limit)}
	}
	return v
}

func (e *explainer) initFailing(c *container) Verdict {
	end, start := e.lastFailure(c), e.Worker.Starts[c.spec.Name]
	summary := fmt.Sprintf("init container %s fails: %s", c.name(), e.ending(c, end))
	v := Verdict{
		Code: CodeInitFailing, Container: c.spec.Name, Headline: e.isNot() + ": " + summary, Summary: summary,
		Chain:   []Because{e.runs(c, end, start, "PH-1")},
		Next:    Step{What: "start", At: start.At, By: ByHerald},
		Changes: []string{"the container exiting with 0"},
	}
	if message := clean(end.Message, maxQuote); message != "" {
		v.Chain = append(v.Chain, Because{Rule: "PH-50", Text: "its termination message: " + message})
	}
	return v
}

func (e *explainer) sidecarStarting(c *container) Verdict {
	v := e.startupPending(c)
	v.Code = CodeSidecarStarting
	v.Summary = "sidecar " + c.name() + " has not started"
	v.Headline = e.isNot() + ": " + v.Summary + ", and the next containers wait for it"
	return v
}
