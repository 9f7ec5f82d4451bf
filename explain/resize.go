package explain

import (
	v1 "k8s.io/api/core/v1"
)

// resize matches a pod whose containers do not have the resources of its spec: its resize is deferred, infeasible, in progress, or
// cannot be applied.
func (e *explainer) resize() (Verdict, bool) {
	pending, inProgress := condition(&e.Pod.Status, v1.PodResizePending), condition(&e.Pod.Status, v1.PodResizeInProgress)
	switch {
	case pending != nil && pending.Reason == v1.PodReasonInfeasible:
		return e.resizeVerdict(pending, Verdict{
			Code: CodeResizeInfeasible, Summary: "its resize is not possible on this node", Chain: []Because{{Rule: "RSZ-9"}},
			Next:    Step{What: "nothing before the spec asks for other resources"},
			Changes: []string{"ask for other resources, or a new pod on another node"},
		}), true
	case pending != nil:
		return e.resizeVerdict(pending, Verdict{
			Code: CodeResizeDeferred, Summary: "its resize waits", Chain: []Because{{Rule: "RSZ-4"}},
			Next:    Step{What: "resize when another pod leaves or shrinks", By: ByHerald},
			Changes: []string{"ask for less, or remove another pod of this node"},
		}), true
	case inProgress != nil && inProgress.Reason == v1.PodReasonError:
		return e.resizeVerdict(inProgress, Verdict{
			Code: CodeResizeFailed, Summary: "its resize cannot be applied now", Chain: []Because{{Rule: "RSZ-20"}},
			Next:    Step{What: "try", At: e.Worker.RetryAt, By: ByHerald},
			Changes: []string{"see the message; a limit of memory must be above what is in use"},
		}), true
	case inProgress != nil:
		return e.resizeVerdict(inProgress, Verdict{
			Code: CodeResizing, Summary: "it is being resized", Chain: []Because{{Rule: "RSZ-12"}},
			Next: Step{What: "new limits of its containers", By: ByHerald},
		}), true
	default:
		return Verdict{}, false
	}
}

// resizeVerdict adds what all verdicts about a resize have in common.
func (e *explainer) resizeVerdict(found *v1.PodCondition, v Verdict) Verdict {
	v.Since = found.LastTransitionTime.Time
	v.Headline = e.name() + " is Ready, but " + v.Summary
	text := "the resources are allocated, and the containers get them now"
	if found.Message != "" {
		text = quote(found.Message)
	}
	v.Chain[0].Text, v.Chain[0].Since = text+ageSuffix(e.Now, v.Since), v.Since
	v.Chain[0].Input = "condition " + string(found.Type) + " " + clean(found.Reason, maxName)
	return v
}
