package explain

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// absent answers about a pod that the node does not have.
func (e *explainer) absent() Verdict {
	switch {
	case e.Source.Problem != "" && e.question != WhyNotDeleted:
		return Verdict{
			Code: CodeManifestRefused, Headline: fmt.Sprintf("%s is not on this node: its manifest cannot be used", e.name()),
			Summary: "manifest cannot be used", Since: e.Source.Since, Chain: []Because{e.refusedManifest()},
			Next:    Step{What: "the source is read again when it changes", By: ByHerald},
			Changes: []string{"correct the manifest"},
		}
	case e.Left != nil:
		headline := fmt.Sprintf("%s left this node at %s", e.name(), clock(e.Now, e.Left.At))
		if e.Left.Summary != "" {
			headline += " (" + clean(e.Left.Summary, maxQuote) + ")"
		}
		return Verdict{
			Code: CodeLeft, Headline: headline, Summary: "left this node", Since: e.Left.At,
			Next: Step{What: "nothing: the node does not have the pod"},
		}
	default:
		return Verdict{
			Code: CodeNotFound, Headline: e.name() + " is not on this node", Summary: "not on this node",
			Next:    Step{What: "nothing: the node does not have the pod"},
			Changes: []string{"check name and namespace"},
		}
	}
}

func (e *explainer) refusedManifest() Because {
	return Because{
		Rule: "CFG-15", Text: "the newest manifest cannot be used: " + clean(e.Source.Problem, maxQuote),
		Input: "source " + string(e.Source.Name), Since: e.Source.Since,
	}
}

// withRefusedManifest adds that the pod is not as its newest manifest wants it.
func (e *explainer) withRefusedManifest(v Verdict) Verdict {
	if e.Source.Problem != "" {
		v.Chain = append(v.Chain, e.refusedManifest())
	}
	return v
}

// notStarted matches a pod that the node does not begin to run.
func (e *explainer) notStarted() (Verdict, bool) {
	if e.Worker.WaitsFor != "" {
		return Verdict{
			Code: CodeWaitsForName, Headline: e.name() + " does not start: an earlier pod with the same name still stops",
			Summary: "waits for an earlier pod with its name",
			Chain: []Because{{
				Rule: "PW-15", Text: "two static pods with the same name never run at the same time",
				Input: "earlier pod " + clean(string(e.Worker.WaitsFor), maxName),
			}},
			Next: Step{What: "start when the earlier pod has ended", By: ByHerald},
		}, true
	}
	if v, ok := e.rejected(); ok {
		return v, true
	}
	if e.Pod.Status.Phase == "" && len(e.Pod.Status.Conditions) == 0 && e.Worker.Trouble == nil && e.Runtime.Err == nil {
		return Verdict{
			Code: CodeNoStatus, Headline: e.isNot() + ": it has no status yet", Summary: "no status yet",
			Since: e.Pod.CreationTimestamp.Time, Next: Step{What: "first status", By: ByHerald},
		}, true
	}
	return Verdict{}, false
}

// rejectedPrefix begins the message of a rejected pod (PH-49).
const rejectedPrefix = "Pod was rejected: "

// rejected matches a pod that the node does not admit. A static pod stays Pending and is tried again; no other is (PH-49, BUG-29).
func (e *explainer) rejected() (Verdict, bool) {
	reason, message, ok := e.rejection()
	if !ok {
		return Verdict{}, false
	}
	message, remedy, _ := strings.Cut(message, "; ")
	if e.isTemporary() {
		_, others, _ := strings.Cut(remedy, "it waits for ")
		return Verdict{
			Code: CodeWaitsForResources, Headline: e.name() + " waits for resources: " + shortage(message), Summary: "waits: " + shortage(message),
			Chain: []Because{{Rule: "ADM-4", Text: "it waits for " + clean(others, maxQuote), Input: "the pods of the node"}},
			Next:  Step{What: "try", At: e.Worker.RetryAt, By: ByHerald, Then: "at once when another pod leaves"},
		}, true
	}
	v := Verdict{
		Code: CodeRejected, Headline: e.name() + " was rejected: " + shortage(message), Summary: "rejected: " + shortage(message),
		Chain: []Because{{Rule: "PH-49", Text: fmt.Sprintf("%s: %s", clean(reason, maxName), clean(message, maxQuote)), Input: "status.reason"}},
	}
	if remedy != "" {
		v.Changes = append(v.Changes, remedy)
	}
	if e.isStatic() {
		v.Next = Step{What: "try", At: e.Worker.RetryAt, By: ByHerald, Then: "at once when another pod leaves"}
		return v, true
	}
	v.Next = Step{What: "nothing: a rejected pod is not tried again"}
	v.Changes = append(v.Changes, "a new pod")
	v.Final = true
	return v, true
}

// rejection returns reason and message of a rejection, from the worker or from the status.
func (e *explainer) rejection() (reason, message string, ok bool) {
	status := &e.Pod.Status
	if rest, found := strings.CutPrefix(status.Message, rejectedPrefix); found && status.Phase != v1.PodRunning {
		return status.Reason, rest, true
	}
	if status.Phase == v1.PodFailed && isAdmissionReason(status.Reason) && len(status.ContainerStatuses) == 0 {
		return status.Reason, status.Message, true
	}
	if e.Worker.Rejected == nil || status.Phase == v1.PodRunning {
		return "", "", false
	}
	reason = "UnexpectedAdmissionError"
	var typed interface{ RejectionReason() string }
	if errors.As(e.Worker.Rejected, &typed) {
		reason = typed.RejectionReason()
	}
	return reason, e.Worker.Rejected.Error(), true
}

// isTemporary reports whether what the pod lacks is about to be freed.
func (e *explainer) isTemporary() bool {
	var typed interface{ IsTemporary() bool }
	return errors.As(e.Worker.Rejected, &typed) && typed.IsTemporary()
}

// isAdmissionReason reports whether the reason is one that the kubelet gives to pods that it does not admit. Those of older
// versions have no common message.
func isAdmissionReason(reason string) bool {
	switch reason {
	case "NodeAffinity", "NodeName", "NodePorts", "TaintToleration", "SysctlForbidden", "AppArmor", "PodOSNotSupported",
		"PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "UnexpectedAdmissionError", "InvalidNodeInfo":
		return true
	default:
		return strings.HasPrefix(reason, "OutOf")
	}
}

// shortage shortens the message of a pod that asks for more of a resource than is left: "110 of 110 pods are used".
func shortage(message string) string {
	rest, isShortage := strings.CutPrefix(message, "Node didn't have enough resource: ")
	resource, rest, ok1 := strings.Cut(rest, ", requested: ")
	requested, rest, ok2 := strings.Cut(rest, ", used: ")
	used, capacity, ok3 := strings.Cut(rest, ", capacity: ")
	if !isShortage || !ok1 || !ok2 || !ok3 {
		return clean(message, maxQuote)
	}
	if resource == string(v1.ResourcePods) {
		return clean(used+" of "+capacity+" pods", maxQuote)
	}
	if resource == string(v1.ResourceCPU) {
		resource = "milli-CPU"
	}
	return clean(requested+" "+resource+" requested, "+used+" of "+capacity+" used", maxQuote)
}
