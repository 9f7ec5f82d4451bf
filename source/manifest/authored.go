package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// authoredPod is a pod as its author wrote it, after the strict check.
type authoredPod struct {
	document
	value map[string]any
	place place
	base  *field.Path // of the pod in its document: nil, or items[2]
}

// pods are those of a document, which is a Pod or a list of them. It returns nil when any has a problem.
func (c *content) pods(found *problems) []authoredPod {
	value, isMapping := c.value.(map[string]any)
	if !isMapping {
		found.add(c.problem(c.root.line, "", fmt.Errorf("must be a Pod, not %s", describe(c.value))))
		return nil
	}
	clean := true
	strict := schema{report: func(p place, err error) {
		clean = false
		found.add(c.problem(p.line, p.path, err))
	}}
	checkVersion(strict, c.root, value)
	var pods []authoredPod
	switch kind := value["kind"]; kind {
	case "Pod":
		strict.check(c.root, value, podType)
		pods = []authoredPod{{document: c.document, value: value, place: c.root}}
	case "PodList", "List":
		strict.check(c.root, value, reflect.TypeFor[v1.PodList]())
		pods = c.items(strict, value)
	default:
		strict.report(c.root.field("kind"), wrongKind(kind, "Pod, PodList or List"))
	}
	if !clean {
		return nil
	}
	return pods
}

// items are the pods of a list. A list without items is more likely to be half written than meant to stop every pod.
func (c *content) items(strict schema, value map[string]any) []authoredPod {
	items, isList := value["items"].([]any)
	if !isList {
		if value["items"] == nil {
			strict.report(c.root.field("items"), errors.New("required; write items: [] for no pods"))
		}
		return nil
	}
	var pods []authoredPod
	for i, item := range items {
		at := c.root.field("items").item(i)
		pod, isMapping := item.(map[string]any)
		if !isMapping {
			if item == nil {
				strict.report(at, errors.New("must be a Pod"))
			}
			continue
		}
		// The items of a PodList are pods, whether they say so or not; those of a List must say so.
		if value["kind"] == "List" || pod["kind"] != nil || pod["apiVersion"] != nil {
			checkVersion(strict, at, pod)
			if pod["kind"] != "Pod" {
				strict.report(at.field("kind"), wrongKind(pod["kind"], "Pod"))
			}
		}
		pods = append(pods, authoredPod{c.document, pod, at, field.NewPath("items").Index(i)})
	}
	return pods
}

func checkVersion(strict schema, p place, value map[string]any) {
	version, isText := value["apiVersion"].(string)
	switch {
	case value["apiVersion"] == nil:
		strict.report(p.field("apiVersion"), errors.New("required; write apiVersion: v1"))
	case isText && version != "v1":
		strict.report(p.field("apiVersion"), fmt.Errorf("must be v1, not %s", describe(version)))
	}
}

func wrongKind(kind any, want string) error {
	if kind == nil {
		return fmt.Errorf("required; must be %s", want)
	}
	return fmt.Errorf("must be %s, not %s", want, describe(kind))
}

// build makes the static pod, or reports why it cannot be one and returns nil.
func (a authoredPod) build(origin Origin, found *problems) *v1.Pod {
	written := a.identity()
	text, err := json.Marshal(written)
	pod := new(v1.Pod)
	if err == nil {
		err = utiljson.Unmarshal(text, pod)
	}
	if err != nil {
		a.report(found, a.base, err)
		return nil
	}
	wrong := checkAuthored(pod, a.path("metadata"))
	setDefaults(pod)
	makeStatic(pod, uidFor(written, origin), origin)
	wrong = append(wrong, validate(pod, a.base)...)
	wrong = append(wrong, findReferences(pod, a.path("spec"))...)
	if len(wrong) > 0 {
		a.reportAll(found, wrong)
		return nil
	}
	return pod
}

// reportAll looks up lines, which takes time, only for as many errors as are kept.
func (a authoredPod) reportAll(found *problems, wrong field.ErrorList) {
	kept := wrong[:min(len(wrong), maxCollected)]
	found.dropped += len(wrong) - len(kept)
	for _, err := range kept {
		found.add(a.problem(a.lineOf(err.Field), clipTo(err.Field, maxMessage), err))
	}
}

// identity is the part of the manifest that makes the pod what it is: without its type, its status (CFG-8) and what the
// API server alone writes, which are all discarded. It may never change; see uidFor.
func (a authoredPod) identity() map[string]any {
	written := maps.Clone(a.value)
	for _, key := range []string{"apiVersion", "kind", "status"} {
		delete(written, key)
	}
	if metadata, ok := written["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, key := range []string{"creationTimestamp", "resourceVersion", "generation", "selfLink", "managedFields"} {
			delete(metadata, key)
		}
		written["metadata"] = metadata
	}
	return written
}

func (a authoredPod) path(names ...string) *field.Path {
	path := a.base
	for _, name := range names {
		path = path.Child(name)
	}
	return path
}

func (a authoredPod) lineOf(field string) int {
	if a.base == nil {
		return a.place.lineOf(field)
	}
	return a.place.lineOf(field[min(len(field), len(a.base.String())):])
}

func (a authoredPod) report(found *problems, at *field.Path, err error) {
	name := ""
	if at != nil {
		name = at.String()
	}
	found.add(a.problem(a.lineOf(name), name, err))
}
