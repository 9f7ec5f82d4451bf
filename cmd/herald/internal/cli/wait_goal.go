package cli

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/view"
)

// goal is what 'herald wait' waits for.
type goal struct {
	// text completes "the pod has become ...".
	text     string
	isDelete bool
	// isMet decides by the view. Nil if the whole pod is needed, or for isDelete.
	isMet func(*view.PodView) bool
	// template and value decide by the whole pod.
	template *jsonpath.JSONPath
	value    *string
	// question asks why the goal is not met. hasQuestion says that its final answer rules the goal out.
	question    explain.Question
	hasQuestion bool
	// phase is the terminal phase that is waited for; another one rules it out.
	phase v1.PodPhase
}

func parseGoal(text string) (goal, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch {
	case strings.EqualFold(text, "delete"):
		return goal{text: "deleted", isDelete: true, question: explain.WhyNotDeleted}, nil
	case strings.EqualFold(text, "create"):
		return goal{text: "created", isMet: func(*view.PodView) bool { return true }}, nil
	case kind == "condition" && rest != "":
		return newConditionGoal(rest), nil
	case kind == "phase" && rest != "":
		return newPhaseGoal(rest)
	case kind == "jsonpath" && rest != "":
		return newJSONPathGoal(rest)
	default:
		return goal{}, usageErrorf(
			"--for %s: must be condition=TYPE[=STATUS], phase=PHASE, jsonpath=TEMPLATE[=VALUE], create or delete", text)
	}
}

func newConditionGoal(text string) goal {
	name, status, hasStatus := strings.Cut(text, "=")
	if !hasStatus {
		status = string(v1.ConditionTrue)
	}
	isTrue := strings.EqualFold(status, string(v1.ConditionTrue))
	g := goal{text: name, isMet: func(pod *view.PodView) bool {
		for i := range pod.Local.Status.Conditions {
			if condition := &pod.Local.Status.Conditions[i]; strings.EqualFold(string(condition.Type), name) {
				return strings.EqualFold(string(condition.Status), status)
			}
		}
		return false
	}}
	if !isTrue {
		g.text += "=" + status
	}
	if strings.EqualFold(name, string(v1.PodReady)) || strings.EqualFold(name, string(v1.ContainersReady)) {
		g.question, g.hasQuestion = explain.WhyNotReady, isTrue
	}
	return g
}

func newPhaseGoal(text string) (goal, error) {
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
		if strings.EqualFold(text, string(phase)) {
			g := goal{text: string(phase), phase: phase, isMet: func(pod *view.PodView) bool { return pod.Local.Status.Phase == phase }}
			if phase == v1.PodRunning || phase == v1.PodSucceeded {
				g.question, g.hasQuestion = explain.WhyNotRunning, true
			}
			return g, nil
		}
	}
	return goal{}, usageErrorf("--for phase=%s: must be Pending, Running, Succeeded or Failed", text)
}

// newJSONPathGoal parses {TEMPLATE}, TEMPLATE, {TEMPLATE}=VALUE and TEMPLATE=VALUE. Without a value, any is waited for.
func newJSONPathGoal(text string) (goal, error) {
	var path, value string
	var hasValue bool
	if end := strings.LastIndex(text, "}"); strings.HasPrefix(text, "{") && end > 0 {
		path = text[:end+1]
		value, hasValue = strings.CutPrefix(text[end+1:], "=")
		if !hasValue && end+1 < len(text) {
			return goal{}, usageErrorf("--for jsonpath=%s: the template must be followed by =VALUE or nothing", text)
		}
	} else {
		path, value, hasValue = strings.Cut(text, "=")
		path = "{." + strings.TrimPrefix(path, ".") + "}"
	}
	g := goal{text: path, template: jsonpath.New("for").AllowMissingKeys(true)}
	if err := g.template.Parse(path); err != nil {
		return goal{}, usageErrorf("--for jsonpath=%s: %w", text, err)
	}
	if hasValue {
		g.text += "=" + value
		g.value = &value
	}
	return g, nil
}

// check reports whether a pod that exists meets the goal.
func (g *goal) check(ctx context.Context, agent *client.Client, pod *view.PodView) (bool, error) {
	switch {
	case g.isDelete:
		return false, nil
	case g.isMet != nil:
		return g.isMet(pod), nil
	}
	pods, err := agent.Pods(ctx)
	if err != nil {
		return false, nil //nolint:nilerr // the watch reports that the agent is gone
	}
	for i := range pods {
		if string(pods[i].UID) == pod.Metadata.UID {
			return g.checkTemplate(&pods[i])
		}
	}
	return false, nil
}

func (g *goal) checkTemplate(pod *v1.Pod) (bool, error) {
	object, err := toObject(pod)
	if err != nil {
		return false, err
	}
	var text strings.Builder
	if err := g.template.Execute(&text, object); err != nil {
		return false, nil //nolint:nilerr // an index that does not exist yet
	}
	if g.value != nil {
		return text.String() == *g.value, nil
	}
	return text.Len() > 0, nil
}

// impossible returns why a pod can never meet the goal, unless somebody does something.
func (g *goal) impossible(ctx context.Context, agent *client.Client, pod *view.PodView) (reason string, isImpossible bool) {
	phase := pod.Local.Status.Phase
	if g.phase != "" && derive.IsTerminal(phase) && phase != g.phase {
		return "it has " + string(phase), true
	}
	if !g.hasQuestion {
		return "", false
	}
	answer, err := agent.Explain(ctx, pod.Metadata.Namespace, pod.Metadata.Name, g.question)
	if err != nil || answer.Metadata.UID != "" && answer.Metadata.UID != pod.Metadata.UID {
		return "", false // asked again soon
	}
	if g.phase == v1.PodSucceeded && answer.Verdict.Code == explain.CodeSucceeded {
		return "", false // since the view was sent; the next one says so
	}
	return answer.Verdict.Headline, answer.Verdict.Final && !answer.Verdict.OK
}

// why returns what is wrong with a pod that does not meet the goal.
func (g *goal) why(ctx context.Context, agent *client.Client, pod *view.PodView) string {
	answer, err := agent.Explain(ctx, pod.Metadata.Namespace, pod.Metadata.Name, g.question)
	if err != nil {
		return pod.Local.Summary
	}
	return answer.Verdict.Headline
}
