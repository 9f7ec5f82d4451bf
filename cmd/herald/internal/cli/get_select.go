package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/heraldnode/herald/internal/table"
)

// selection is which pods were asked for.
type selection struct {
	namespace string
	all       bool
	names     []string
	labels    labels.Selector
	fields    fields.Selector
}

func isPods(kind string) bool {
	return slices.Contains([]string{"pods", "pod", "po"}, strings.ToLower(kind))
}

// podsNamed reads "pods NAME..." or "pod/NAME...".
func podsNamed(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, usage("say what to get: herald get pods\nSee 'herald get --help'")
	}
	if isPods(args[0]) {
		for _, name := range args[1:] {
			switch {
			case name == "":
				return nil, usage("a pod's name is empty\nSee 'herald get --help'")
			case strings.Contains(name, "/"):
				return nil, usage("%q after %q: write pods NAME... or pod/NAME..., not both", name, args[0])
			}
		}
		return args[1:], nil
	}
	var names []string
	for _, arg := range args {
		kind, name, named := strings.Cut(arg, "/")
		if !isPods(kind) || !named || name == "" {
			return nil, usage("%q: herald get knows pods only: herald get pods [NAME...]", arg)
		}
		names = append(names, name)
	}
	return names, nil
}

func (s *selection) selectBy(byLabel, byField string) (err error) {
	if len(s.names) > 0 && byLabel+byField != "" {
		return usage("name pods or select them, not both")
	}
	if s.labels, err = labels.Parse(byLabel); err != nil {
		return usage("-l %s: %w", byLabel, err)
	}
	if s.fields, err = fields.ParseSelector(byField); err != nil {
		return usage("--field-selector %s: %w", byField, err)
	}
	known := fieldsOf(&v1.Pod{})
	for _, requirement := range s.fields.Requirements() {
		if !known.Has(requirement.Field) {
			return usage("--field-selector: %q is no field that pods are selected by", requirement.Field)
		}
	}
	return nil
}

// fieldsOf are the fields by which the API server selects pods.
func fieldsOf(pod *v1.Pod) fields.Set {
	return fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"spec.schedulerName": pod.Spec.SchedulerName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"spec.hostNetwork": fmt.Sprint(pod.Spec.HostNetwork),
		"status.phase":     string(pod.Status.Phase), "status.podIP": pod.Status.PodIP,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// wants reports whether the pod was asked for.
func (s *selection) wants(pod *v1.Pod) bool {
	return (s.all || pod.Namespace == s.namespace) && (len(s.names) == 0 || slices.Contains(s.names, pod.Name)) &&
		s.labels.Matches(labels.Set(pod.Labels)) && s.fields.Matches(fieldsOf(pod))
}

// choose picks the pods that were asked for, in the order in which they were named.
func (s *selection) choose(pods []v1.Pod) []*v1.Pod {
	var chosen []*v1.Pod
	for i := range pods {
		if s.wants(&pods[i]) {
			chosen = append(chosen, &pods[i])
		}
	}
	slices.SortStableFunc(chosen, func(a, b *v1.Pod) int {
		return slices.Index(s.names, a.Name) - slices.Index(s.names, b.Name)
	})
	return chosen
}

// missing says which pods were named and are not there, and what was perhaps meant; nil if there are none.
func (s *selection) missing(pods []v1.Pod) error {
	var missing []error
	for _, name := range s.names {
		if slices.ContainsFunc(pods, func(p v1.Pod) bool { return p.Name == name && (s.all || p.Namespace == s.namespace) }) {
			continue
		}
		missing = append(missing, fmt.Errorf("pods %q not found%s", name, s.hint(pods, name)))
	}
	return errors.Join(missing...)
}

func (s *selection) hint(pods []v1.Pod, name string) string {
	for i := range pods {
		switch p := &pods[i]; {
		case p.Name == name:
			return fmt.Sprintf(" in the namespace %s; there is one in %s", s.namespace, table.Printable(p.Namespace))
		case p.Name == name+"-"+p.Spec.NodeName && (s.all || p.Namespace == s.namespace):
			return fmt.Sprintf("; a static pod's name ends with the node's: %s", p.Name)
		}
	}
	return ""
}
