package explain

import "fmt"

// restarting answers WhyRestarting.
func (e *explainer) restarting() Verdict {
	if c := e.findAny(e.isCrashLooping); c != nil {
		v := e.crashLoop(c)
		v.Headline = fmt.Sprintf("%s restarts: %s", e.name(), v.Summary)
		return v
	}
	c, restarts := e.restarted()
	if c == nil {
		return Verdict{
			Code: CodeNotRestarting, Headline: "no container of " + e.name() + " restarted in the last hour",
			Summary: "no restart in the last hour", Since: e.readySince(),
			Chain: []Because{{Rule: "PH-36", Text: fmt.Sprintf("%d restarts in all", e.restartCount()), Input: "restartCount"}},
			Next:  Step{What: "nothing: it is as it should be"},
		}
	}
	summary := fmt.Sprintf("%s restarted %s in the last hour", c.name(), times(restarts))
	v := Verdict{
		Code: CodeRestarted, Container: c.spec.Name, Headline: e.name() + ": " + summary, Summary: summary,
		Chain: e.restartReasons(c, restarts), Next: Step{What: "nothing: it runs now"}, Changes: []string{"see its history and its last lines"},
	}
	if start := e.Worker.Starts[c.spec.Name]; !start.At.IsZero() && !c.isRunning() {
		v.Next = Step{What: "start", At: start.At, By: ByHerald}
	}
	return v
}

func (e *explainer) restartCount() int {
	restarts := 0
	for i := range e.all {
		if status := e.all[i].status; status != nil {
			restarts += int(status.RestartCount)
		}
	}
	return restarts
}
