package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder lays one file over a configuration.
type decoder struct {
	file     string
	kind     identity          // that the file must have
	said     map[string]string // where each field was said, by its path
	problems []error
	// unknown hears of a field that there is not.
	unknown func(key, value *yaml.Node, path string)
}

// newDecoder takes unknown fields for mistakes.
func newDecoder(file string, said map[string]string) *decoder {
	d := &decoder{file: file, kind: ours, said: said}
	d.unknown = d.complainUnknown
	return d
}

func (d *decoder) complain(node *yaml.Node, path, format string, args ...any) {
	at := fmt.Sprintf("%s:%d: ", d.file, node.Line)
	if path != "" {
		at += path + ": "
	}
	d.problems = append(d.problems, errors.New(at+fmt.Sprintf(format, args...)))
}

// decode takes over what the text says, as far as it is right, and returns all that is not.
func (d *decoder) decode(text string, into *Config) error {
	top, err := d.document(text)
	if err != nil {
		return err
	}
	d.value(top, reflect.ValueOf(into).Elem(), reflect.StructField{}, "")
	return errors.Join(d.problems...)
}

// value takes over the value of a field. What is left empty says nothing.
func (d *decoder) value(node *yaml.Node, into reflect.Value, field reflect.StructField, path string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Tag == "!!null" {
		return
	}
	switch {
	case isStruct(into.Type()):
		d.fields(node, into, path)
	case into.Kind() == reflect.Slice:
		d.list(node, into, path)
	case into.Kind() == reflect.Map:
		d.entries(node, into, path)
	default:
		d.scalar(node, into, field, path)
	}
	d.said[path] = fmt.Sprintf("%s:%d", d.file, node.Line)
}

func (d *decoder) fields(node *yaml.Node, into reflect.Value, path string) {
	if !d.is(node, yaml.MappingNode, path, "fields") {
		return
	}
	for key, value := range d.pairs(node, path) {
		at := join(path, key.Value)
		field, known := fieldNamed(into.Type(), key.Value)
		if !known {
			d.unknown(key, value, at)
			continue
		}
		d.value(value, into.FieldByIndex(field.Index), field, at)
	}
}

func (d *decoder) complainUnknown(key, _ *yaml.Node, path string) {
	if meant := nearest(key.Value); meant != "" {
		d.complain(key, path, "unknown field; did you mean %s?", meant)
		return
	}
	d.complain(key, path, "unknown field; 'herald help config' lists those that there are")
}

// pairs yields the keys of a mapping and what they are set to, each key once.
func (d *decoder) pairs(node *yaml.Node, path string) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		lines := map[string]int{}
		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i]
			if before := lines[key.Value]; before > 0 {
				d.complain(key, join(path, key.Value), "is set in line %d already", before)
				continue
			}
			lines[key.Value] = key.Line
			if !yield(key, node.Content[i+1]) {
				return
			}
		}
	}
}

// list replaces what a file before it said.
func (d *decoder) list(node *yaml.Node, into reflect.Value, path string) {
	if !d.is(node, yaml.SequenceNode, path, "a list: each entry on a line that begins with -") {
		return
	}
	items := reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.Tag == "!!null" {
			d.complain(item, at, "is empty: fill it in, or leave it out")
			continue
		}
		d.value(item, items.Index(i), reflect.StructField{}, at)
	}
	into.Set(items)
}

// entries are added to what a file before it said.
func (d *decoder) entries(node *yaml.Node, into reflect.Value, path string) {
	if !d.is(node, yaml.MappingNode, path, "names and values, like a: b") {
		return
	}
	if into.IsNil() {
		into.Set(reflect.MakeMap(into.Type()))
	}
	for key, value := range d.pairs(node, path) {
		entry := reflect.New(into.Type().Elem()).Elem()
		d.value(value, entry, reflect.StructField{}, join(path, key.Value))
		into.SetMapIndex(reflect.ValueOf(key.Value), entry)
	}
}

func (d *decoder) is(node *yaml.Node, kind yaml.Kind, path, want string) bool {
	if node.Kind != kind {
		d.complain(node, path, "want %s", want)
	}
	return node.Kind == kind
}

func (d *decoder) scalar(node *yaml.Node, into reflect.Value, field reflect.StructField, path string) {
	if node.Kind != yaml.ScalarNode {
		d.complain(node, path, "want one value")
		return
	}
	if err := parse(node, into); err != nil {
		d.complain(node, path, "is %s: %v", node.Value, err)
		return
	}
	if field.Tag.Get("is") == "path" && into.String() != "" && !filepath.IsAbs(into.String()) {
		into.SetString(filepath.Join(filepath.Dir(d.file), into.String()))
	}
}

// parse reads one value. YAML's guesses are not followed: a text that looks like a number needs its quotes, as it does for the
// kubelet.
func parse(node *yaml.Node, into reflect.Value) (err error) {
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		var d time.Duration
		if d, err = time.ParseDuration(node.Value); err != nil || node.Tag != "!!str" {
			return errors.New("want a duration, like 20s or 1m30s")
		}
		into.SetInt(int64(d))
	case into.Kind() == reflect.Struct:
		if into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(node.Value)) != nil {
			return errors.New("want an IP address, like 10.0.0.1")
		}
	case into.Kind() == reflect.Bool:
		if node.Tag != "!!bool" {
			return errors.New("want true or false")
		}
		into.SetBool(strings.EqualFold(node.Value, "true"))
	case into.Kind() == reflect.Int:
		n, err := strconv.ParseInt(node.Value, 10, 32) // as the kubelet's and the API's numbers
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("want a number up to %d", math.MaxInt32)
		}
		if err != nil || node.Tag != "!!int" {
			return errors.New("want a whole number")
		}
		into.SetInt(n)
	default:
		if node.Tag != "!!str" {
			return fmt.Errorf("want text: write %q, with the quotes", node.Value)
		}
		into.SetString(node.Value)
	}
	return nil
}

func fieldNamed(in reflect.Type, name string) (reflect.StructField, bool) {
	for i := range in.NumField() {
		if in.Field(i).Tag.Get("yaml") == name {
			return in.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
