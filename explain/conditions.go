package explain

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// conditions matches a pod whose containers are ready, and whose Ready condition is not True: a readiness gate.
func (e *explainer) conditions() (Verdict, bool) {
	if e.wantsRunning() {
		return Verdict{}, false
	}
	for i := range e.Pod.Spec.ReadinessGates {
		gate := e.Pod.Spec.ReadinessGates[i].ConditionType
		found := condition(&e.Pod.Status, gate)
		if found == nil || found.Status != v1.ConditionTrue {
			return e.gate(gate, found), true
		}
	}
	return Verdict{}, false
}

func (e *explainer) gate(gate v1.PodConditionType, found *v1.PodCondition) Verdict {
	name := clean(string(gate), maxName)
	prefix := e.isNot() + " though its containers are: "
	if !isTrue(&e.Pod.Status, v1.ContainersReady) {
		prefix = e.isNot() + ": "
	}
	v := Verdict{
		Code: CodeGateMissing, Summary: "readiness gate " + name + " does not exist",
		Chain:   []Because{{Rule: "GEN-12", Text: "nobody has set the condition", Input: "spec.readinessGates " + name}},
		Next:    Step{What: "new value of the condition", By: ByCluster},
		Changes: []string{"the controller that sets " + name},
	}
	if found != nil {
		v.Code = CodeGateNotTrue
		v.Summary = fmt.Sprintf("readiness gate %s is %s", name, clean(string(found.Status), maxName))
		text := "its controller has not set it to True"
		if said := strings.TrimSuffix(found.Reason+": "+found.Message, ": "); said != "" {
			text = quote(strings.TrimPrefix(said, ": ")) + " by its controller"
		}
		v.Since = found.LastTransitionTime.Time
		v.Chain = []Because{{Rule: "GEN-13", Text: text + ageSuffix(e.Now, v.Since), Input: "condition " + name, Since: v.Since}}
	}
	v.Headline = prefix + v.Summary
	return v
}

// statusPending is about a pod whose status is not what follows from its parts, or whose parts are not known.
func (e *explainer) statusPending() Verdict {
	v := Verdict{
		Code: CodeStatusPending, Headline: e.isNot() + ": its status does not say why", Summary: "the status does not say why",
		Chain: []Because{{
			Rule: "PW-32", Text: "the status is computed again at the next sync",
			Input: "status.phase " + clean(string(e.Pod.Status.Phase), maxName),
		}},
		Next: Step{What: "status", At: e.Worker.RetryAt, By: ByHerald},
	}
	if ready := condition(&e.Pod.Status, v1.PodReady); ready != nil && ready.Reason != "" {
		v.Headline = e.isNot() + ": " + clean(ready.Reason, maxName)
		if ready.Message != "" {
			v.Headline += ": " + clean(ready.Message, maxQuote)
		}
		v.Summary = clean(ready.Reason, maxName)
	}
	return v
}

// syncReason says why the API server does not have the local status.
func (e *explainer) syncReason() string {
	text := clean(e.Sync.Reason, maxQuote)
	if text == "" {
		text = "the API server does not have the newest status"
	}
	if e.Sync.Failures > 0 {
		text += ", " + tries(e.Sync.Failures)
	}
	if e.Sync.Behind > 0 {
		text += fmt.Sprintf(", %d unsent", e.Sync.Behind)
	}
	return text
}

func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return fmt.Sprintf("%d tries", n)
}

// sendingSlack is how long a status may be under way before that is worth a verdict.
const sendingSlack = 5 * time.Second

// apiDiffers matches a pod that is Ready here and not in the API, or whose changes the API server does not have.
func (e *explainer) apiDiffers() (Verdict, bool) {
	here := e.name() + " is Ready here, "
	synced := e.Sync.Synced
	differs := synced != nil && !isTrue(synced, v1.PodReady)
	because := Because{Rule: "SM-57", Text: e.syncReason(), Input: "sync " + string(e.Sync.State), Since: e.Sync.Since}
	try := Step{What: "try", At: e.Sync.NextTry, By: ByHerald}
	switch {
	case e.Sync.State == SyncRefused:
		return Verdict{
			Code: CodeStatusRefused, Headline: here + "the API server rejects its status", Summary: "the API server rejects its status",
			Since: e.Sync.Since, Chain: []Because{because}, Next: try, Changes: []string{"correct what the API server says"},
		}, true
	case e.Sync.State == SyncGone:
		because.Rule, because.Text = "SM-56", "the API server does not have the pod"
		return Verdict{
			Code: CodeObjectGone, Headline: here + "its object is not in the API", Summary: "its object is not in the API",
			Since: e.Sync.Since, Chain: []Because{because}, Next: Step{What: "stop of the pod when its source says so", By: ByHerald},
		}, true
	case differs && (e.Sync.Repairs > 0 || e.Sync.State == SyncSynced):
		because.Rule, because.Text = "SM-53", "another writer changed its conditions"
		if e.Sync.Repairs > 0 {
			because.Text += ", corrected " + times(e.Sync.Repairs)
		}
		return Verdict{
			Code: CodeConditionOverwritten, Headline: here + "the API shows not Ready", Summary: "Ready here, not in the API",
			Since: e.Sync.Since, Chain: []Because{because}, Next: Step{What: "repair", At: e.Sync.NextTry, By: ByHerald},
			Changes: []string{"find out why the node was NotReady"},
		}, true
	case e.Sync.State == SyncWaiting, e.Sync.State == SyncSending && e.isLate():
		headline := here + "the API is behind"
		if behind := age(e.Now, e.Sync.Since); behind != "" {
			headline = here + "the API is " + behind + " behind"
		}
		return Verdict{
			Code: CodeAPIBehind, Headline: headline, Summary: "the API is behind", Since: e.Sync.Since,
			Chain: []Because{because}, Next: try, Changes: []string{"an API server that answers"},
		}, true
	default:
		return Verdict{}, false
	}
}

func (e *explainer) isLate() bool {
	return !e.Sync.Since.IsZero() && e.Now.Sub(e.Sync.Since) > sendingSlack
}
