package explain

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// node matches what is wrong with the node, and keeps the pod from starting or its state from being known.
func (e *explainer) node() (Verdict, bool) {
	if v, ok := e.runtimeDown(); ok {
		return v, true
	}
	if v, ok := e.runtimeStale(); ok {
		return v, true
	}
	if isTrue(&e.Pod.Status, v1.PodReadyToStartContainers) && e.Runtime.Network != nil {
		return e.volumesOrSandbox()
	}
	if e.Runtime.Network != nil && !e.Pod.Spec.HostNetwork && !e.hasStartedContainer() {
		return Verdict{
			Code: CodeNetworkNotReady, Headline: e.isNot() + ": the node's network is not ready", Summary: "the node's network is not ready",
			Chain:   []Because{{Rule: "PW-35", Text: clean(e.Runtime.Network.Error(), maxQuote), Input: "runtime condition NetworkReady"}},
			Next:    Step{What: "try", At: e.Worker.RetryAt, By: ByHerald},
			Changes: []string{"install or repair the node's CNI network", "spec.hostNetwork needs no CNI network"},
		}, true
	}
	return e.volumesOrSandbox()
}

// asOf begins a headline about a pod whose state is not known now.
func (e *explainer) asOf() string {
	text := e.name()
	switch {
	case e.isReady():
		text += " is Ready"
	case e.Pod.Status.Phase != "":
		text += " is " + clean(string(e.Pod.Status.Phase), maxName)
	}
	if e.Runtime.Observed.IsZero() {
		return text + " as of its last observation"
	}
	return text + " as of " + clock(e.Now, e.Runtime.Observed)
}

func (e *explainer) runtimeDown() (Verdict, bool) {
	if e.Runtime.Err == nil {
		return Verdict{}, false
	}
	summary := "the container runtime does not answer"
	headline := e.asOf() + ": " + summary + ageSuffix(e.Now, e.Runtime.Since)
	return Verdict{
		Code: CodeRuntimeDown, Headline: headline, Summary: summary, Since: e.Runtime.Since,
		Chain: []Because{{
			Rule: "PLEG-2", Text: clean(e.Runtime.Err.Error(), maxQuote), Input: "the container runtime's socket", Since: e.Runtime.Since,
		}},
		Next:    Step{What: "check of the runtime", At: e.Runtime.NextTry, By: ByHerald},
		Changes: []string{"the runtime answering; until then the states of containers are not known, and none is called failed"},
	}, true
}

func (e *explainer) runtimeStale() (Verdict, bool) {
	if !e.Runtime.Stale {
		return Verdict{}, false
	}
	summary := "the container runtime is too slow to be observed"
	return Verdict{
		Code: CodeRuntimeStale, Headline: e.asOf() + ": " + summary, Summary: summary, Since: e.Runtime.Observed,
		Chain: []Because{{
			Rule: "PLEG-11", Text: "the last complete observation was too long ago" + ageBrackets(e, e.Runtime), Input: "relist of the runtime",
		}},
		Next:    Step{What: "next observation", By: ByHerald},
		Changes: []string{"a runtime that lists its containers in time"},
	}, true
}

func ageBrackets(e *explainer, r Runtime) string {
	if text := age(e.Now, r.Observed); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// volumesOrSandbox matches a pod whose volumes or sandbox are not ready.
func (e *explainer) volumesOrSandbox() (Verdict, bool) {
	switch {
	case e.Worker.VolumesPending && e.Worker.Trouble != nil:
		summary := "volumes are not ready: " + clean(cause(e.Worker.Trouble.Error()), maxQuote)
		return Verdict{
			Code: CodeVolumeFailed, Headline: e.isNot() + ": its " + summary, Summary: summary,
			Chain: []Because{e.trouble("PW-35")}, Next: e.retry(), Changes: []string{"create or correct what the volume refers to"},
		}, true
	case e.Worker.VolumesPending:
		return Verdict{
			Code: CodeMountingVolumes, Headline: e.isNot() + " yet: its volumes are being mounted", Summary: "volumes are being mounted",
			Chain: []Because{{Rule: "PW-35", Text: "containers start when all volumes are mounted"}},
			Next:  Step{What: "end of the mounts", By: ByHerald},
		}, true
	case e.Worker.SandboxPending && e.Worker.Trouble != nil:
		return Verdict{
			Code: CodeSandboxFailed, Headline: e.isNot() + ": its sandbox could not be created", Summary: "sandbox could not be created",
			Chain: []Because{e.trouble("GEN-24")}, Next: e.retry(), Changes: []string{"correct what the container runtime reports"},
		}, true
	case e.Worker.SandboxPending:
		return Verdict{
			Code: CodeStartingSandbox, Headline: e.isNot() + " yet: its sandbox is being created", Summary: "sandbox is being created",
			Chain: []Because{{Rule: "GEN-24", Text: "containers start in the sandbox"}},
			Next:  Step{What: "sandbox", By: ByRuntime},
		}, true
	default:
		return Verdict{}, false
	}
}

// hasStartedContainer reports whether a container of the pod runs or has run.
func (e *explainer) hasStartedContainer() bool {
	return e.findAny(func(c *container) bool { return c.isRunning() || c.lastEnd() != nil }) != nil
}

// trouble is the error of the last sync.
func (e *explainer) trouble(rule string) Because {
	text := clean(e.Worker.Trouble.Error(), maxQuote)
	if e.Worker.Failures > 1 {
		text += fmt.Sprintf(" (%d tries)", e.Worker.Failures)
	}
	return Because{Rule: rule, Text: text, Input: "the last sync of the pod"}
}

// retry is the worker's next attempt.
func (e *explainer) retry() Step { return Step{What: "try", At: e.Worker.RetryAt, By: ByHerald} }
