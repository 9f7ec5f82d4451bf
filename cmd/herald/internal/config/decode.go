package config

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// typeMeta is the apiVersion and kind of a file.
type typeMeta struct{ apiVersion, kind string }

var (
	heraldType  = typeMeta{APIVersion, Kind}
	kubeletType = typeMeta{"kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"}
)

func (m typeMeta) String() string { return "apiVersion: " + m.apiVersion + " and kind: " + m.kind }

// decoder applies one file to a configuration.
type decoder struct {
	file     string
	want     typeMeta
	origins  map[string]string // where each field was set (file:line or --flag), by path
	problems []error
	// unknownField handles fields that Config does not have.
	unknownField func(key, value *yaml.Node, path string)
}

// newDecoder returns a decoder that rejects unknown fields.
func newDecoder(file string, origins map[string]string) *decoder {
	d := &decoder{file: file, want: heraldType, origins: origins}
	d.unknownField = d.rejectField
	return d
}

func (d *decoder) errorf(node *yaml.Node, path, format string, args ...any) {
	prefix := fmt.Sprintf("%s:%d: ", d.file, node.Line)
	if path != "" {
		prefix += path + ": "
	}
	d.problems = append(d.problems, errors.New(prefix+fmt.Sprintf(format, args...)))
}

// decode applies the text to c. The error has a line for each problem.
func (d *decoder) decode(text string, c *Config) error {
	top, err := d.parse(text)
	if err != nil {
		return err
	}
	d.decodeValue(top, reflect.ValueOf(c).Elem(), reflect.StructField{}, "")
	return errors.Join(d.problems...)
}

// parse returns the mapping of the only document of the text, without apiVersion and kind.
func (d *decoder) parse(text string) (*yaml.Node, error) {
	documents := yaml.NewDecoder(strings.NewReader(text))
	var first, second yaml.Node
	if err := documents.Decode(&first); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: file is empty: must have %v", d.file, d.want)
	} else if err != nil {
		return nil, d.syntaxError(text, err)
	}
	if err := documents.Decode(&second); err == nil {
		d.errorf(&second, "", "unexpected second document: move it to a separate file in --config-dir")
	} else if !errors.Is(err, io.EOF) {
		return nil, d.syntaxError(text, err)
	}
	top := first.Content[0]
	if !d.checkType(top) {
		return nil, errors.Join(d.problems...)
	}
	return top, nil
}

var (
	yamlErrorLine = regexp.MustCompile(`^yaml: line ([0-9]+): (.*)`)
	// yamlTabError matches the parser's errors about a tab, which often name the line before it.
	yamlTabError = regexp.MustCompile(`tab character|cannot start any token`)
)

// syntaxError converts an error of the YAML parser.
func (d *decoder) syntaxError(text string, err error) error {
	found := yamlErrorLine.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Errorf("%s: not valid YAML: %s", d.file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	line, message := found[1], found[2]
	if number, err := strconv.Atoi(line); err == nil && yamlTabError.MatchString(message) {
		if tabLine := findTab(text, number); tabLine > 0 {
			line, message = strconv.Itoa(tabLine), "indented with a tab: use spaces"
		}
	}
	return fmt.Errorf("%s:%s: not valid YAML: %s", d.file, line, message)
}

// findTab returns the first line, at or after from, that is indented with a tab, or 0.
func findTab(text string, from int) int {
	for i, line := range strings.Split(text, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if i+1 >= from && strings.Contains(indent, "\t") {
			return i + 1
		}
	}
	return 0
}

// checkType reports whether the document has the expected apiVersion and kind, and removes both fields. In any other document
// every field would be an error.
func (d *decoder) checkType(top *yaml.Node) bool {
	if top.Kind != yaml.MappingNode {
		d.errorf(top, "", "must be a mapping with %v", d.want)
		return false
	}
	found := map[string]string{"apiVersion": "", "kind": ""}
	var rest []*yaml.Node
	for key, value := range d.pairs(top, "") {
		if _, isTypeField := found[key.Value]; isTypeField {
			found[key.Value] = value.Value
			continue
		}
		rest = append(rest, key, value)
	}
	top.Content = rest
	got := typeMeta{found["apiVersion"], found["kind"]}
	switch {
	case got == d.want:
		return true
	case got.kind == kubeletType.kind && d.want == heraldType:
		d.errorf(top, "kind", "this is a kubelet configuration: convert it with 'herald config convert %s'", d.file)
	default:
		d.errorf(top, "", "unexpected apiVersion %q, kind %q: must have %v", got.apiVersion, got.kind, d.want)
	}
	return false
}

// decodeValue decodes the value of a field. An empty value leaves the field unchanged.
func (d *decoder) decodeValue(node *yaml.Node, into reflect.Value, field reflect.StructField, path string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Tag == "!!null" {
		return
	}
	switch {
	case isStruct(into.Type()):
		d.decodeStruct(node, into, path)
	case into.Kind() == reflect.Slice && into.Type() != reflect.TypeFor[NodeIPs]():
		d.decodeList(node, into, field, path)
	case into.Kind() == reflect.Map:
		d.decodeMap(node, into, path)
	default:
		d.decodeScalar(node, into, field, path)
	}
	d.origins[path] = fmt.Sprintf("%s:%d", d.file, node.Line)
}

func (d *decoder) decodeStruct(node *yaml.Node, into reflect.Value, path string) {
	if !d.checkKind(node, yaml.MappingNode, path, "must be a mapping") {
		return
	}
	for key, value := range d.pairs(node, path) {
		fieldPath := joinPath(path, key.Value)
		field, ok := findField(into.Type(), key.Value)
		if !ok {
			d.unknownField(key, value, fieldPath)
			continue
		}
		d.decodeValue(value, into.FieldByIndex(field.Index), field, fieldPath)
	}
}

func (d *decoder) rejectField(key, _ *yaml.Node, path string) {
	if reason, found := unsupportedReason(path); found {
		d.errorf(key, path, "field of the kubelet that is not supported: %s; remove it", reason)
		return
	}
	if suggestion := suggestField(key.Value); suggestion != "" {
		d.errorf(key, path, "unknown field; did you mean %q?", suggestion)
		return
	}
	d.errorf(key, path, "unknown field; see 'herald help config' for all fields")
}

// pairs yields the keys and values of a mapping, and rejects duplicate keys.
func (d *decoder) pairs(node *yaml.Node, path string) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		lines := map[string]int{}
		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i]
			if line := lines[key.Value]; line > 0 {
				d.errorf(key, joinPath(path, key.Value), "already set in line %d", line)
				continue
			}
			lines[key.Value] = key.Line
			if !yield(key, node.Content[i+1]) {
				return
			}
		}
	}
}

// decodeList replaces the list.
func (d *decoder) decodeList(node *yaml.Node, into reflect.Value, field reflect.StructField, path string) {
	if !d.checkKind(node, yaml.SequenceNode, path, "must be a list") {
		return
	}
	items := reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		if item.Tag == "!!null" {
			d.errorf(item, itemPath, "must not be empty")
			continue
		}
		d.decodeValue(item, items.Index(i), field, itemPath)
	}
	into.Set(items)
}

// decodeMap adds entries to the map.
func (d *decoder) decodeMap(node *yaml.Node, into reflect.Value, path string) {
	if !d.checkKind(node, yaml.MappingNode, path, "must be a mapping of names to values") {
		return
	}
	if into.IsNil() {
		into.Set(reflect.MakeMap(into.Type()))
	}
	for key, value := range d.pairs(node, path) {
		entry := reflect.New(into.Type().Elem()).Elem()
		d.decodeValue(value, entry, reflect.StructField{}, joinPath(path, key.Value))
		into.SetMapIndex(reflect.ValueOf(key.Value), entry)
	}
}

func (d *decoder) checkKind(node *yaml.Node, kind yaml.Kind, path, message string) bool {
	if node.Kind != kind {
		d.errorf(node, path, "%s", message)
	}
	return node.Kind == kind
}

func (d *decoder) decodeScalar(node *yaml.Node, into reflect.Value, field reflect.StructField, path string) {
	if node.Kind != yaml.ScalarNode {
		d.errorf(node, path, "must be a single value")
		return
	}
	if err := parseScalar(node, into); err != nil {
		d.errorf(node, path, "invalid value %s: %v", quoteAsWritten(node), err)
		return
	}
	if field.Tag.Get("format") == "path" && into.String() != "" && !filepath.IsAbs(into.String()) {
		into.SetString(filepath.Join(filepath.Dir(d.file), into.String()))
	}
}

// quoteAsWritten returns the value with quotes if the file has quotes: maxPods: "3" is not an integer.
func quoteAsWritten(node *yaml.Node) string {
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		return strconv.Quote(node.Value)
	}
	return node.Value
}

// parseScalar parses one value. As for the kubelet, there is no implicit conversion: a string that looks like a number must be
// quoted.
func parseScalar(node *yaml.Node, into reflect.Value) (err error) {
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		var duration time.Duration
		if duration, err = time.ParseDuration(node.Value); err != nil || node.Tag != "!!str" {
			return errors.New("must be a duration, like 20s or 1m30s")
		}
		into.SetInt(int64(duration))
	case into.Kind() == reflect.Struct || into.Type() == reflect.TypeFor[NodeIPs]():
		if into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(node.Value)) != nil {
			return errors.New("must be an IP address, like 10.0.0.1")
		}
	case into.Kind() == reflect.Bool:
		if node.Tag != "!!bool" {
			return errors.New("must be true or false")
		}
		into.SetBool(strings.EqualFold(node.Value, "true"))
	case into.Kind() == reflect.Int:
		number, err := strconv.ParseInt(node.Value, 10, 32) // int32 in KubeletConfiguration and in the API
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("must be between %d and %d", math.MinInt32, math.MaxInt32)
		}
		if err != nil || node.Tag != "!!int" {
			return errors.New("must be an integer")
		}
		into.SetInt(number)
	default:
		if node.Tag != "!!str" {
			return fmt.Errorf("must be a string: write %q, with quotes", node.Value)
		}
		into.SetString(node.Value)
	}
	return nil
}

func findField(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
