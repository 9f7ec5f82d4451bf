package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Convert makes a configuration of ours of the kubelet's, with the fields that are known here, and has a line for each that it
// leaves out: where it is, and why it is of no use. What the kubelet takes for its default (empty, 0, 0s) is left out silently.
func Convert(file, text string) (converted string, leftOut []string, err error) {
	c, said := Default(), map[string]string{}
	d := newDecoder(file, said)
	d.kind = theKubelets
	d.unknown = func(key, value *yaml.Node, path string) {
		if !saysNothing(value) {
			leftOut = append(leftOut, fmt.Sprintf("%s:%d: %s: left out: %s", file, key.Line, path, whyNot(path)))
		}
	}
	if err := errors.Join(d.decode(text, &c), c.anchor()); err != nil {
		return "", nil, err
	}
	c.dropZeros(said)
	for again := true; again; { // without one field another may be wrong
		again = false
		for _, found := range c.problems(said) {
			if c.drop(found.path, said) {
				leftOut = append(leftOut, found.at+": left out: "+found.why)
				again = true
			}
		}
	}
	converted, err = c.encode(func(at leaf) bool { return said[at.path] != "" })
	return converted, leftOut, err
}

// saysNothing reports whether the kubelet does as if the field were not there.
func saysNothing(value *yaml.Node) bool {
	switch value.Kind {
	case yaml.ScalarNode:
		return value.Tag == "!!null" || slices.Contains([]string{"", "0s"}, value.Value)
	case yaml.MappingNode, yaml.SequenceNode:
		for i, item := range value.Content {
			isKey := value.Kind == yaml.MappingNode && i%2 == 0
			if !isKey && !saysNothing(item) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// meantZeros are the fields whose zero the kubelet does not take for their default, beside those that are true or false.
var meantZeros = []string{"eventRecordQPS", "resolvConf"}

// dropZeros forgets what the kubelet takes for its default.
func (c *Config) dropZeros(said map[string]string) {
	for at := range leaves(reflect.ValueOf(c).Elem(), "") {
		empty := at.value.IsZero() || at.Type.Kind() == reflect.Slice && at.value.Len() == 0
		if empty && at.Type.Kind() != reflect.Bool && !slices.Contains(meantZeros, at.path) {
			c.drop(at.path, said)
		}
	}
}

// drop has a field that was said be as if it were not: of a map the one entry, of a list all of it. It reports whether there
// was one.
func (c *Config) drop(path string, said map[string]string) bool {
	defaults := Default()
	for at := range leaves(reflect.ValueOf(c).Elem(), "") {
		rest, within := strings.CutPrefix(path, at.path)
		if !within || said[at.path] == "" || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if at.Type.Kind() == reflect.Map && rest != "" && at.value.Len() > 1 {
			at.value.SetMapIndex(reflect.ValueOf(rest[1:]), reflect.Value{})
			return true
		}
		at.value.Set(valueAt(reflect.ValueOf(defaults), at.path))
		delete(said, at.path)
		return true
	}
	return false
}
