package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/podid"
)

// MaxBytes is the maximum size of the input of Decode.
const MaxBytes = 1 << 20

// ErrEmpty is returned for an input without any document: it is empty, or contains only comments and separators. The caller
// decides what that means. A list with `items: []` is the explicit form of "no pods" and not an error.
var ErrEmpty = errors.New("contains no Pod or PodList")

// Origin is where the input comes from.
type Origin struct {
	Source   podid.Source // File or HTTP
	Location string       // path or URL, included in errors as it is
	NodeName string       // the node that runs the pods
}

// validate checks the caller's part of the input, so that its errors are not attributed to a document.
func (o Origin) validate() error {
	if o.Source != podid.File && o.Source != podid.HTTP {
		return fmt.Errorf("source %q: static pods come from %q or %q", o.Source, podid.File, podid.HTTP)
	}
	if msgs := apivalidation.NameIsDNSSubdomain(o.NodeName, false); len(msgs) > 0 {
		// CFG-9: the API server rejects such a node name as well, so that lower-casing it here would only hide the mistake.
		return fmt.Errorf("node name %q: %s; change the node name", truncate(o.NodeName), msgs[0])
	}
	return nil
}

// Decode returns the pods of the input, ready to run as static pods of origin.NodeName. It is all or nothing: one error
// rejects the whole input, so that the caller can keep the last valid version (BUG-18). The error is an Errors.
func Decode(data []byte, origin Origin) ([]*v1.Pod, error) {
	errs := &errorCollector{location: origin.Location}
	pods := decode(data, origin, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	return pods, nil
}

func decode(data []byte, origin Origin, errs *errorCollector) []*v1.Pod {
	if err := origin.validate(); err != nil {
		errs.add(&Error{Err: err})
		return nil
	}
	documents, err := splitDocuments(data)
	if err != nil {
		errs.add(err)
		return nil
	}
	var rawPods []rawPod
	empty := true
	for _, doc := range documents {
		parsed, err := doc.parse()
		if err != nil {
			errs.add(err)
		}
		empty = empty && parsed == nil && err == nil
		if parsed != nil {
			rawPods = append(rawPods, parsed.pods(errs)...)
		}
	}
	if empty {
		errs.add(&Error{Err: ErrEmpty})
	}
	return buildPods(rawPods, origin, errs)
}

// buildPods builds the static pods. No two of them may have the same full name or UID.
func buildPods(rawPods []rawPod, origin Origin, errs *errorCollector) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(rawPods))
	names := make(map[podid.FullName]int)
	uids := make(map[podid.UID]int)
	for _, raw := range rawPods {
		pod := raw.build(origin, errs)
		if pod == nil {
			continue
		}
		if line, found := names[podid.FullNameOf(pod)]; found {
			raw.addError(errs, raw.path("metadata", "name"), fmt.Errorf("the pod on line %d has the same name", line))
		} else if line, found := uids[podid.UID(pod.UID)]; found {
			raw.addError(errs, raw.path("metadata", "uid"), fmt.Errorf("the pod on line %d has the same UID", line))
		}
		names[podid.FullNameOf(pod)] = raw.position.line
		uids[podid.UID(pod.UID)] = raw.position.line
		pods = append(pods, pod)
	}
	return pods
}

// rawPod is a pod as written in a document, after the strict check.
type rawPod struct {
	document
	value    map[string]any
	position position
	base     *field.Path // of the pod in its document: nil, or items[2]
}

// pods returns the pods of a document, which is a Pod or a list. It returns nil if there is an error.
func (d *parsedDocument) pods(errs *errorCollector) []rawPod {
	value, isMapping := d.value.(map[string]any)
	if !isMapping {
		errs.add(d.newError(d.root.line, "", fmt.Errorf("must be a Pod, not %s", describe(d.value))))
		return nil
	}
	valid := true
	check := schemaChecker{report: func(at position, err error) {
		valid = false
		errs.add(d.newError(at.line, at.path, err))
	}}
	checkVersion(check, d.root, value)
	var pods []rawPod
	switch kind := value["kind"]; kind {
	case "Pod":
		check.check(d.root, value, podType)
		pods = []rawPod{{document: d.document, value: value, position: d.root}}
	case "PodList", "List":
		check.check(d.root, value, reflect.TypeFor[v1.PodList]())
		pods = d.items(check, value)
	default:
		check.report(d.root.field("kind"), wrongKind(kind, "Pod, PodList or List"))
	}
	if !valid {
		return nil
	}
	return pods
}

// items returns the pods of a list. A list without the field items is more likely incomplete than a request to stop every
// pod.
func (d *parsedDocument) items(check schemaChecker, value map[string]any) []rawPod {
	items, isList := value["items"].([]any)
	if !isList {
		if value["items"] == nil {
			check.report(d.root.field("items"), errors.New("required; write items: [] for no pods"))
		}
		return nil
	}
	var pods []rawPod
	for i, item := range items {
		at := d.root.field("items").item(i)
		pod, isMapping := item.(map[string]any)
		if !isMapping {
			if item == nil {
				check.report(at, errors.New("must be a Pod"))
			}
			continue
		}
		// Items of a PodList need no apiVersion and kind. Items of a List need both.
		if value["kind"] == "List" || pod["kind"] != nil || pod["apiVersion"] != nil {
			checkVersion(check, at, pod)
			if pod["kind"] != "Pod" {
				check.report(at.field("kind"), wrongKind(pod["kind"], "Pod"))
			}
		}
		pods = append(pods, rawPod{d.document, pod, at, field.NewPath("items").Index(i)})
	}
	return pods
}

func checkVersion(check schemaChecker, at position, value map[string]any) {
	version, isString := value["apiVersion"].(string)
	switch {
	case value["apiVersion"] == nil:
		check.report(at.field("apiVersion"), errors.New("required; write apiVersion: v1"))
	case isString && version != "v1":
		check.report(at.field("apiVersion"), fmt.Errorf("must be v1, not %s", describe(version)))
	}
}

func wrongKind(kind any, want string) error {
	if kind == nil {
		return fmt.Errorf("required; must be %s", want)
	}
	return fmt.Errorf("must be %s, not %s", want, describe(kind))
}

// build returns the static pod. If it is invalid, build adds the errors and returns nil.
func (r rawPod) build(origin Origin, errs *errorCollector) *v1.Pod {
	value := r.hashedValue()
	data, err := json.Marshal(value)
	pod := new(v1.Pod)
	if err == nil {
		err = utiljson.Unmarshal(data, pod)
	}
	if err != nil {
		r.addError(errs, r.base, err)
		return nil
	}
	fieldErrs := validateRawMetadata(pod, r.path("metadata"))
	setDefaults(pod)
	makeStatic(pod, computeUID(value, origin), origin)
	fieldErrs = append(fieldErrs, validate(pod, r.base)...)
	fieldErrs = append(fieldErrs, forbidReferences(pod, r.path("spec"))...)
	if len(fieldErrs) > 0 {
		r.addFieldErrors(errs, fieldErrs)
		return nil
	}
	return pod
}

// hashedValue returns the part of the manifest that the UID is computed from: without the type, the status (CFG-8) and the
// fields that only the API server sets, which are all discarded. It must never change, see computeUID.
func (r rawPod) hashedValue() map[string]any {
	value := maps.Clone(r.value)
	for _, key := range []string{"apiVersion", "kind", "status"} {
		delete(value, key)
	}
	if metadata, ok := value["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, key := range []string{"creationTimestamp", "resourceVersion", "generation", "selfLink", "managedFields"} {
			delete(metadata, key)
		}
		value["metadata"] = metadata
	}
	return value
}

// addFieldErrors adds as many errors as the collector keeps. Finding the line of an error is expensive.
func (r rawPod) addFieldErrors(errs *errorCollector, fieldErrs field.ErrorList) {
	kept := fieldErrs[:min(len(fieldErrs), maxCollected)]
	errs.dropped += len(fieldErrs) - len(kept)
	for _, err := range kept {
		errs.add(r.newError(r.lineOf(err.Field), truncateTo(err.Field, maxMessage), err))
	}
}

func (r rawPod) addError(errs *errorCollector, at *field.Path, err error) {
	name := ""
	if at != nil {
		name = at.String()
	}
	errs.add(r.newError(r.lineOf(name), name, err))
}

func (r rawPod) path(names ...string) *field.Path {
	path := r.base
	for _, name := range names {
		path = path.Child(name)
	}
	return path
}

func (r rawPod) lineOf(field string) int {
	if r.base == nil {
		return r.position.lineOf(field)
	}
	return r.position.lineOf(field[min(len(field), len(r.base.String())):])
}
