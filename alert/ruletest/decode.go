package ruletest

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Error is a problem of a file.
type Error struct {
	Path  string
	Line  int // 0 if the problem is in no line
	Field string
	Err   error
}

func (e *Error) Error() string {
	text := e.Path
	if e.Line > 0 {
		text += ":" + strconv.Itoa(e.Line)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// maxErrors bounds the errors that one file reports.
const maxErrors = 20

// decoder decodes YAML into structs strictly: unknown and repeated fields are errors.
type decoder struct {
	path string
	errs []error
}

func (d *decoder) errorf(line int, field, format string, args ...any) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, &Error{Path: d.path, Line: line, Field: field, Err: fmt.Errorf(format, args...)})
	}
}

func (d *decoder) decodeFile(data []byte, file *File) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		d.errs = append(d.errs, &Error{Path: d.path, Err: errors.New(strings.TrimPrefix(err.Error(), "yaml: "))})
		return
	}
	if len(document.Content) != 1 {
		d.errorf(0, "", "is empty")
		return
	}
	d.decode(document.Content[0], reflect.ValueOf(file).Elem(), "")
}

var durationType = reflect.TypeFor[time.Duration]()

// decode sets the value. What cannot be decoded is reported.
func (d *decoder) decode(node *yaml.Node, value reflect.Value, field string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case value.Kind() == reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		d.decode(node, value.Elem(), field)
	case value.Type() == durationType:
		d.decodeDuration(node, value, field)
	case value.Kind() == reflect.Struct:
		d.decodeStruct(node, value, field)
	case value.Kind() == reflect.Slice:
		d.decodeSlice(node, value, field)
	case value.Kind() == reflect.Map:
		d.decodeMap(node, value, field)
	case node.Kind != yaml.ScalarNode || value.Kind() != reflect.String && node.Value == "":
		d.errorf(node.Line, field, "must be %s", describe(value.Type()))
	default:
		if err := node.Decode(value.Addr().Interface()); err != nil {
			d.errorf(node.Line, field, "%q must be %s", node.Value, describe(value.Type()))
		}
	}
}

func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "an integer"
	case reflect.Float64:
		return "a number"
	default:
		return "a text"
	}
}

func (d *decoder) decodeDuration(node *yaml.Node, value reflect.Value, field string) {
	duration, err := time.ParseDuration(node.Value)
	if node.Value == "0" {
		err = nil
	}
	if err != nil || node.Kind != yaml.ScalarNode || duration < 0 {
		d.errorf(node.Line, field, "%q must be a duration, like 90s or 10m9s", node.Value)
		return
	}
	value.SetInt(int64(duration))
}

// decodeSlice accepts one element instead of a list.
func (d *decoder) decodeSlice(node *yaml.Node, value reflect.Value, field string) {
	nodes := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		nodes = node.Content
	}
	list := reflect.MakeSlice(value.Type(), len(nodes), len(nodes))
	for i := range nodes {
		d.decode(nodes[i], list.Index(i), fmt.Sprintf("%s[%d]", field, i))
	}
	value.Set(list)
}

func (d *decoder) decodeMap(node *yaml.Node, value reflect.Value, field string) {
	if node.Kind != yaml.MappingNode {
		d.errorf(node.Line, field, "must be a mapping")
		return
	}
	value.Set(reflect.MakeMap(value.Type()))
	for i := 0; i+1 < len(node.Content); i += 2 {
		element := reflect.New(value.Type().Elem()).Elem()
		d.decode(node.Content[i+1], element, join(field, node.Content[i].Value))
		value.SetMapIndex(reflect.ValueOf(node.Content[i].Value), element)
	}
}

func (d *decoder) decodeStruct(node *yaml.Node, value reflect.Value, field string) {
	if node.Kind != yaml.MappingNode {
		d.errorf(node.Line, field, "must be a mapping")
		return
	}
	if line := value.FieldByName("Line"); line.IsValid() {
		line.SetInt(int64(node.Line))
	}
	known := map[string]reflect.Value{}
	addFields(known, value)
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		target, found := known[key.Value]
		switch {
		case !found:
			d.errorf(key.Line, join(field, key.Value), "unknown field%s", suggest(key.Value, known))
		case seen[key.Value]:
			d.errorf(key.Line, join(field, key.Value), "is there twice")
		default:
			d.decode(node.Content[i+1], target, join(field, key.Value))
		}
		seen[key.Value] = true
	}
}

func addFields(known map[string]reflect.Value, value reflect.Value) {
	for i := range value.NumField() {
		structField := value.Type().Field(i)
		switch name := structField.Tag.Get("yaml"); {
		case structField.Anonymous:
			addFields(known, value.Field(i))
		case name != "-":
			known[name] = value.Field(i)
		}
	}
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// suggest returns a known field that the author may have meant.
func suggest(name string, known map[string]reflect.Value) string {
	best := ""
	for _, candidate := range sortedKeys(known) {
		isClose := strings.HasPrefix(candidate, name) || strings.HasPrefix(name, candidate) || distance(name, candidate) <= 2
		if isClose && (best == "" || distance(name, candidate) < distance(name, best)) {
			best = candidate
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance returns how many letters must be added, removed or replaced to get b from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal, row[j] = row[j], min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
