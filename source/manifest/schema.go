package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	yamllines "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
)

// schema compares what is written with the Go type that it is meant for, and reports every difference where it is:
// unknown fields, duplicate keys, values of the wrong type (CFG-1, BUG-32). A JSON decoder knows neither lines nor more
// than the first wrong type.
type schema struct {
	report func(p place, err error)
}

var podType = reflect.TypeFor[v1.Pod]()

// check compares a value with a type. Null is allowed everywhere and means what leaving the field out means.
func (s schema) check(p place, value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil {
		return
	}
	if parse, isLeaf := leafOf(t); isLeaf {
		if err := parse(value); err != nil {
			s.report(p, err)
		}
		return
	}
	switch got := value.(type) {
	case map[string]any:
		s.checkMapping(p, got, t)
	case []any:
		if t.Kind() != reflect.Slice {
			s.report(p, wrongType(t, value))
			return
		}
		for i, element := range got {
			s.check(p.item(i), element, t.Elem())
		}
	default:
		s.report(p, wrongType(t, value))
	}
}

func (s schema) checkMapping(p place, value map[string]any, t reflect.Type) {
	if t.Kind() != reflect.Map && t.Kind() != reflect.Struct {
		s.report(p, wrongType(t, value))
		return
	}
	m := mapping{place: p, value: value, isMap: t.Kind() == reflect.Map}
	written := s.entries(m)
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(value)) {
		at := m.enter(key, written[key])
		switch field, known := fields[key]; {
		case m.isMap:
			s.check(at, value[key], t.Elem())
		case t == podType && key == "status": // discarded unread: it may come from another version (CFG-8)
		case known:
			s.check(at, value[key], field)
		default:
			s.report(at, unknownField(key, fields))
		}
	}
}

// mapping is one with its keys as they were written and as they were read.
type mapping struct {
	place
	value map[string]any
	isMap bool // not a struct
}

func (m mapping) enter(key string, written entry) place {
	if m.isMap {
		return m.place.enter("["+clip(key)+"]", written)
	}
	return m.place.enter("."+clip(key), written)
}

// entries are the mapping's keys as written, its own and those that a merge key brings. It reports keys that stand there
// twice and keys that YAML reads as something else than their text.
func (s schema) entries(m mapping) map[string]entry {
	written := make(map[string]entry, len(m.value))
	node := target(m.node)
	if node == nil || node.Kind != yamllines.MappingNode {
		return written
	}
	position := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		if isMerge(node.Content[i]) {
			continue
		}
		key, e := target(node.Content[i]).Value, entry{node.Content[i], node.Content[i+1]}
		if first, twice := written[key]; twice {
			s.report(m.enter(key, e), fmt.Errorf("duplicate key, first set on line %d", m.offset+first.key.Line))
		} else if _, same := m.value[key]; !same {
			s.report(m.enter(key, e), errors.New("YAML reads this key as a number or a boolean; put it in quotes"))
		}
		written[key] = e
		position[key] = i
	}
	for _, merge := range merges(node) {
		m.node = merge.mapping
		brought := s.entries(m)
		for _, key := range slices.Sorted(maps.Keys(brought)) {
			if own, isOwn := position[key]; isOwn && own < merge.index {
				s.report(m.enter(key, written[key]), errMergeBelow)
			}
			if _, set := written[key]; !set {
				written[key] = brought[key]
			}
		}
	}
	return written
}

// errMergeBelow is an error because YAML 1.1 libraries disagree on which of the two values is meant, and because the order
// of keys must not matter.
var errMergeBelow = errors.New("also set by the << below it; put << first")

func unknownField(key string, fields map[string]reflect.Type) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if strings.EqualFold(name, key) {
			return fmt.Errorf("unknown field; did you mean %s?", name)
		}
	}
	return errors.New("unknown field")
}

// fieldsOf are the JSON names of a struct's fields, those of embedded structs included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type)
	if t.Kind() != reflect.Struct {
		return fields
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (f.Anonymous || options == "inline"):
			maps.Copy(fields, fieldsOf(f.Type))
		case name != "":
			fields[name] = f.Type
		}
	}
	return fields
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()
