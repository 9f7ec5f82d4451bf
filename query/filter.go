package query

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

// MaxRequestCost bounds the cost of an expression for all pods of a list.
const MaxRequestCost = 1_000_000

// Selection is a filter as a client writes it. Empty fields do not limit.
type Selection struct {
	Namespace     string
	LabelSelector string
	FieldSelector string
	// Where is an expression; see package expression.
	Where string
}

// Filter selects pods. It is safe for concurrent use.
type Filter struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	where     *expression.Expression
}

// Parse parses a filter. Errors name the parameter.
func Parse(s Selection, environment *expression.Environment) (*Filter, error) {
	f := &Filter{namespace: s.Namespace}
	var err error
	if f.labels, err = labels.Parse(s.LabelSelector); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if f.fields, err = fields.ParseSelector(s.FieldSelector); err != nil {
		return nil, fmt.Errorf("fieldSelector: %w", err)
	}
	for _, requirement := range f.fields.Requirements() {
		if _, found := podField(&view.PodView{}, requirement.Field); !found {
			return nil, fmt.Errorf("fieldSelector: field label not supported: %s", requirement.Field)
		}
	}
	if s.Where != "" {
		if f.where, err = environment.Compile(s.Where); err != nil {
			return nil, fmt.Errorf("where: %w", err)
		}
	}
	return f, nil
}

// NeedsLoad reports whether Pods and Match need the loads of pods.
func (f *Filter) NeedsLoad() bool { return f.where != nil && f.where.ReadsLoad() }

// Scene is what an expression can ask for besides the pod.
type Scene struct {
	Now time.Time
	// Node returns the node. It is called only if the expression asks for it.
	Node func() *view.NodeView
}

// Pods returns the pods that the filter selects. An expression that fails for one of them, or costs too much for all, is an error.
func (f *Filter) Pods(pods []view.PodView, scene Scene) ([]view.PodView, error) {
	selected := make([]view.PodView, 0, len(pods))
	var total uint64
	for i := range pods {
		matches, cost, err := f.match(&pods[i], scene)
		if err != nil {
			return nil, err
		}
		if total += cost; total > MaxRequestCost {
			return nil, fmt.Errorf("where: %w: more than %d units for %d of %d pods; select fewer with a namespace or labelSelector",
				expression.ErrCost, MaxRequestCost, i+1, len(pods))
		}
		if matches {
			selected = append(selected, pods[i])
		}
	}
	return selected, nil
}

// Match reports whether the filter selects the pod.
func (f *Filter) Match(pod *view.PodView, scene Scene) (bool, error) {
	matches, _, err := f.match(pod, scene)
	return matches, err
}

func (f *Filter) match(pod *view.PodView, scene Scene) (matches bool, cost uint64, err error) {
	if f.namespace != "" && pod.Metadata.Namespace != f.namespace || !f.labels.Matches(labels.Set(pod.Metadata.Labels)) ||
		!f.fields.Empty() && !f.fields.Matches(podFields{pod}) {
		return false, 0, nil
	}
	if f.where == nil {
		return true, 0, nil
	}
	matches, cost, err = f.where.Match(expression.Input{Now: scene.Now, Pod: pod, Node: scene.Node})
	if err != nil {
		return false, cost, fmt.Errorf("where: pod %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
	}
	return matches, cost, nil
}

// IsCost reports whether an error says that an expression costs too much.
func IsCost(err error) bool { return errors.Is(err, expression.ErrCost) }

// podFields are the fields of a pod that a selector can name.
type podFields struct{ pod *view.PodView }

// Has implements fields.Fields.
func (f podFields) Has(name string) bool { _, found := podField(f.pod, name); return found }

// Get implements fields.Fields.
func (f podFields) Get(name string) string { value, _ := podField(f.pod, name); return value }

// podField returns the value of a field that the API server can select pods by, and false for others.
func podField(pod *view.PodView, name string) (string, bool) {
	status := &pod.Local.Status
	switch name {
	case "metadata.name":
		return pod.Metadata.Name, true
	case "metadata.namespace":
		return pod.Metadata.Namespace, true
	case "spec.nodeName":
		return pod.Spec.NodeName, true
	case "spec.restartPolicy":
		return pod.Spec.RestartPolicy, true
	case "spec.hostNetwork":
		return fmt.Sprint(pod.Spec.HostNetwork), true
	case "status.phase":
		return string(status.Phase), true
	case "status.podIP":
		return status.PodIP, true
	case "status.podIPs":
		if len(status.PodIPs) > 0 {
			return status.PodIPs[0].IP, true
		}
		return status.PodIP, true
	case "status.nominatedNodeName":
		return status.NominatedNodeName, true
	default:
		return "", false
	}
}
