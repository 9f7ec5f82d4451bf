package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamllines "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// schemaChecker compares a document with its Go type and reports every difference with its position: unknown fields,
// duplicate keys and values of the wrong type (CFG-1, BUG-32). A JSON decoder knows no lines and stops at the first wrong
// type.
type schemaChecker struct {
	report func(at position, err error)
}

var (
	podType         = reflect.TypeFor[v1.Pod]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// check compares a value with a type. Null is always allowed and means that the field is not set.
func (c schemaChecker) check(at position, value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil {
		return
	}
	if check, isScalar := scalarCheck(t); isScalar {
		if err := check(value); err != nil {
			c.report(at, err)
		}
		return
	}
	switch value := value.(type) {
	case map[string]any:
		c.checkMapping(at, value, t)
	case []any:
		if t.Kind() != reflect.Slice {
			c.report(at, wrongType(t, value))
			return
		}
		for i, element := range value {
			c.check(at.item(i), element, t.Elem())
		}
	default:
		c.report(at, wrongType(t, value))
	}
}

func (c schemaChecker) checkMapping(at position, value map[string]any, t reflect.Type) {
	if t.Kind() != reflect.Map && t.Kind() != reflect.Struct {
		c.report(at, wrongType(t, value))
		return
	}
	m := mapping{position: at, value: value, isMap: t.Kind() == reflect.Map}
	written := c.checkKeys(m)
	fields := jsonFields(t)
	for _, key := range slices.Sorted(maps.Keys(value)) {
		child := m.child(key, written[key])
		switch fieldType, known := fields[key]; {
		case m.isMap:
			c.check(child, value[key], t.Elem())
		case t == podType && key == "status": // discarded unread: it may be of another version (CFG-8)
		case known:
			c.check(child, value[key], fieldType)
		default:
			c.report(child, unknownField(key, fields))
		}
	}
}

// mapping is a mapping as written, and its decoded value.
type mapping struct {
	position
	value map[string]any
	isMap bool // a Go map, not a struct
}

func (m mapping) child(key string, written keyValue) position {
	if m.isMap {
		return m.position.child("["+truncate(key)+"]", written)
	}
	return m.position.child("."+truncate(key), written)
}

// checkKeys returns the keys of the mapping as written, including merged ones. It reports duplicate keys and keys that YAML
// does not read as the text that is written.
func (c schemaChecker) checkKeys(m mapping) map[string]keyValue {
	written := make(map[string]keyValue, len(m.value))
	node := resolveAlias(m.node)
	if node == nil || node.Kind != yamllines.MappingNode {
		return written
	}
	indexes := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		if isMergeKey(node.Content[i]) {
			continue
		}
		key, entry := resolveAlias(node.Content[i]).Value, keyValue{node.Content[i], node.Content[i+1]}
		if first, duplicate := written[key]; duplicate {
			c.report(m.child(key, entry), fmt.Errorf("duplicate key, first set on line %d", m.offset+first.key.Line))
		} else if _, same := m.value[key]; !same {
			c.report(m.child(key, entry), errors.New("YAML reads this key as a number or a boolean; put it in quotes"))
		}
		written[key] = entry
		indexes[key] = i
	}
	for _, merged := range mergedMappings(node) {
		m.node = merged.mapping
		included := c.checkKeys(m)
		for _, key := range slices.Sorted(maps.Keys(included)) {
			if index, own := indexes[key]; own && index < merged.index {
				c.report(m.child(key, written[key]), errMergeBelow)
			}
			if _, set := written[key]; !set {
				written[key] = included[key]
			}
		}
	}
	return written
}

// errMergeBelow rejects an ambiguity: YAML 1.1 libraries disagree on which of the two values takes precedence, and the order
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

// jsonFields returns the fields of a struct by JSON name, including those of embedded structs.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type)
	if t.Kind() != reflect.Struct {
		return fields
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (f.Anonymous || options == "inline"):
			maps.Copy(fields, jsonFields(f.Type))
		case name != "":
			fields[name] = f.Type
		}
	}
	return fields
}

// scalarCheck returns the check of a type without fields or elements of its own. It returns false for structs, maps and
// lists.
func scalarCheck(t reflect.Type) (func(any) error, bool) {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return checkQuantity, true
	case reflect.TypeFor[intstr.IntOrString]():
		return checkIntOrString, true
	case reflect.TypeFor[metav1.FieldsV1](): // free-form, and discarded
		return func(any) error { return nil }, true
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return func(value any) error { return checkUnmarshal(t, value) }, true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool:
		return func(value any) error {
			if reflect.TypeOf(value).Kind() != t.Kind() || isNumber(value) {
				return wrongType(t, value)
			}
			return nil
		}, true
	case reflect.Int32, reflect.Int64:
		return func(value any) error { return checkInteger(t, value) }, true
	}
	return nil, false
}

func checkInteger(t reflect.Type, value any) error {
	number, ok := value.(json.Number)
	if !ok {
		return wrongType(t, value)
	}
	if _, err := strconv.ParseInt(number.String(), 10, t.Bits()); err != nil {
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is out of range", truncate(number.String()))
		}
		return fmt.Errorf("must be a whole number, not %s", truncate(number.String()))
	}
	return nil
}

// cheapQuantity excludes quantities that take minutes to parse, such as 1e-100000000.
var cheapQuantity = regexp.MustCompile(`^[^eE]{0,40}([eE][-+]?[0-9]{0,2}|Ei?)?$`)

func checkQuantity(value any) error {
	var text string
	switch value := value.(type) {
	case string:
		text = value
	case json.Number:
		text = value.String()
	default:
		return fmt.Errorf("must be a quantity, not %s", describe(value))
	}
	if !cheapQuantity.MatchString(text) {
		return fmt.Errorf("%s is not a quantity; write 500m, 2 or 64Mi, for example", truncate(text))
	}
	if _, err := resource.ParseQuantity(text); err != nil {
		return fmt.Errorf("%q is not a quantity; write 500m, 2 or 64Mi, for example", truncate(text))
	}
	return nil
}

func checkIntOrString(value any) error {
	if _, isString := value.(string); isString {
		return nil
	}
	if !isNumber(value) {
		return fmt.Errorf("must be a number or a string, not %s", describe(value))
	}
	return checkInteger(reflect.TypeFor[int32](), value)
}

// checkUnmarshal checks a type that implements json.Unmarshaler.
func checkUnmarshal(t reflect.Type, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		return fmt.Errorf("%s is not a valid %s", describe(value), t.Name())
	}
	return nil
}

func isNumber(value any) bool {
	_, is := value.(json.Number)
	return is
}

// wrongType returns an error with the wanted and the actual type. The most common cause is YAML reading a string as a number
// or boolean.
func wrongType(t reflect.Type, value any) error {
	want := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Int32: "a whole number",
		reflect.Int64: "a whole number", reflect.Slice: "a list", reflect.Map: "a mapping", reflect.Struct: "a mapping",
	}[t.Kind()]
	_, isBool := value.(bool)
	if t.Kind() == reflect.String && (isBool || isNumber(value)) {
		return fmt.Errorf("must be a string, but YAML reads it as %s; put it in quotes", describe(value))
	}
	return fmt.Errorf("must be %s, not %s", want, describe(value))
}

func describe(value any) string {
	switch value := value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return "the boolean " + strconv.FormatBool(value)
	case json.Number:
		return "the number " + truncate(value.String())
	default:
		return fmt.Sprintf("the string %q", truncate(fmt.Sprint(value)))
	}
}
