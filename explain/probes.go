package explain

import (
	"fmt"
	"time"
)

func (e *explainer) probe(c *container, kind ProbeKind) (Probe, bool) {
	for i := range e.Probes {
		if e.Probes[i].Container == c.spec.Name && e.Probes[i].Kind == kind {
			return e.Probes[i], true
		}
	}
	return Probe{}, false
}

// answer describes the last answer: `http-get :8080/ready: "HTTP 503"`.
func answer(p *Probe) string {
	text := clean(p.Target, maxName)
	if text == "" {
		text = "the probe"
	}
	switch {
	case p.Last.At.IsZero():
		return text + " was not asked yet"
	case p.Last.OK:
		return text + " succeeds"
	case p.Last.Message == "":
		return text + " fails"
	default:
		return text + ": " + clean(p.Last.Message, maxQuote)
	}
}

// startupPending is about a container that runs and whose startup probe has not passed.
func (e *explainer) startupPending(c *container) Verdict {
	v := Verdict{
		Code: CodeStartupPending, Container: c.spec.Name, Summary: "startup probe of " + c.name() + " has not passed",
		Headline: fmt.Sprintf("%s: startup probe of %s has not passed", e.isNot(), c.name()), Since: c.status.State.Running.StartedAt.Time,
		Chain:   []Because{{Rule: "PRB-17", Text: "no other probe is asked before it passes", Input: "started false"}},
		Next:    Step{What: "probe", By: ByHerald},
		Changes: []string{"the container answering its startup probe"},
	}
	p, ok := e.probe(c, Startup)
	if !ok {
		return v
	}
	v.Next.At = p.Next
	if p.Errors > 0 {
		v.Chain[0] = e.probeError(&p)
		return v
	}
	text := answer(&p)
	if p.StreakFailed && p.Threshold > 0 {
		text += fmt.Sprintf("; %d of %d failures", p.Streak, p.Threshold)
		if left := time.Duration(max(p.Threshold-p.Streak, 0)) * period(c.spec.StartupProbe); left > 0 {
			text += ", " + duration(left) + " left"
		}
		v.Next.Then = fmt.Sprintf("after %d failures %s is killed", p.Threshold, c.name())
	}
	v.Chain[0] = Because{Rule: "PRB-17", Text: text, Input: "started false"}
	return v
}

// probeError says that the question could not be put (PRB-18).
func (e *explainer) probeError(p *Probe) Because {
	text := answer(p) + fmt.Sprintf("; %d rounds without an answer", p.Errors)
	if !p.LastSuccess.IsZero() {
		text += "; the last success was at " + clock(e.Now, p.LastSuccess)
	}
	return Because{Rule: "PRB-18", Text: text, Input: string(p.Kind) + " probe"}
}

// readiness is about a container that has started and is not ready.
func (e *explainer) readiness(c *container) Verdict {
	p, ok := e.probe(c, Readiness)
	if !ok {
		summary := "readiness probe of " + c.name() + " has not passed"
		return Verdict{
			Code: CodeReadinessNotPassed, Container: c.spec.Name, Headline: e.isNot() + ": " + summary, Summary: summary,
			Chain: []Because{{Rule: "PRB-33", Text: "the container is not ready before its readiness probe passes", Input: "ready false"}},
			Next:  Step{What: "probe", By: ByHerald}, Changes: []string{"the container answering its readiness probe"},
		}
	}
	v := Verdict{Container: c.spec.Name, Next: Step{What: "probe", At: p.Next, By: ByHerald}}
	switch {
	case p.Errors > 0:
		v.Code, v.Summary = CodeReadinessError, "readiness probe of "+c.name()+" could not be asked"
		v.Chain = []Because{e.probeError(&p)}
		v.Changes = []string{"a container runtime or network through which the probe can be asked"}
	case p.Last.At.IsZero():
		return e.readinessNotAsked(c, v)
	case p.Result == Passing:
		v.Code, v.Summary = CodeStatusPending, "readiness probe of "+c.name()+" has just passed"
		v.Chain = []Because{{Rule: "PRB-40", Text: answer(&p), Input: "readiness probe"}}
		v.Next = Step{What: "status", By: ByHerald}
	case !p.StreakFailed:
		v.Code, v.Summary = CodeReadinessPending, "readiness probe of "+c.name()+" has not succeeded often enough"
		text := fmt.Sprintf("%s; %d of %d successes", answer(&p), p.Streak, p.Threshold)
		v.Chain = []Because{{Rule: "PRB-19", Text: text, Input: "successThreshold"}}
		v.Next.Then = fmt.Sprintf("%d successes in a row make it ready", p.Threshold)
	default:
		return e.readinessFailing(c, &p, v)
	}
	v.Headline = e.isNot() + ": " + v.Summary
	return v
}

func (e *explainer) readinessNotAsked(c *container, v Verdict) Verdict {
	v.Code, v.Summary = CodeReadinessNotAsked, "readiness probe of "+c.name()+" was not asked yet"
	v.Headline = e.isNot() + " yet: " + v.Summary
	text := "it is asked soon after the start"
	rule := "PRB-5"
	if delay := c.spec.ReadinessProbe.InitialDelaySeconds; delay > 0 {
		rule, text = "PRB-15", fmt.Sprintf("initialDelaySeconds %d", delay)
	}
	if started := e.startedAgo(c); started != "" {
		text += ", started " + started + " ago"
	}
	v.Chain = []Because{{Rule: rule, Text: text, Input: "readiness probe"}}
	return v
}

func (e *explainer) readinessFailing(c *container, p *Probe, v Verdict) Verdict {
	v.Code, v.Summary = CodeReadinessFailing, "readiness probe of "+c.name()+" fails"
	v.Headline = e.isNot() + ": " + v.Summary
	if since := e.readySince(); !since.IsZero() {
		v.Since = since
		v.Headline += " since " + clock(e.Now, since)
	}
	text := fmt.Sprintf("%s; %d in a row", answer(p), p.Streak)
	if p.Threshold > 0 {
		text += fmt.Sprintf(", threshold %d", p.Threshold)
	}
	v.Chain = []Because{{Rule: "PRB-22", Text: text, Input: "readiness probe"}}
	v.Next.Then = "1 success makes it ready"
	if n := c.spec.ReadinessProbe.SuccessThreshold; n > 1 {
		v.Next.Then = fmt.Sprintf("%d successes in a row make it ready", n)
	}
	return v
}
