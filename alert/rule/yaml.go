package rule

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heraldnode/herald/expression"
)

// maxBytes is the maximum size of a rule file.
const maxBytes = 1 << 20

// value is a value of the file, with the name of its field.
type value struct {
	node  *yaml.Node
	field string
}

// decoder reads values strictly and collects errors.
type decoder struct {
	collector
	lines []string // of the file
}

// newDecoder parses the YAML of a file. The value has no node if that is not possible.
func newDecoder(data []byte, path string) (*decoder, value) {
	d := &decoder{collector: collector{path: path}}
	if len(data) > maxBytes {
		d.add(0, 0, "", fmt.Sprintf("has %d bytes; at most %d are allowed", len(data), maxBytes))
		return d, value{}
	}
	d.lines = strings.Split(string(data), "\n")
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var document, next yaml.Node
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		d.add(0, 0, "", "is empty; write groups: [] for no rules")
		return d, value{}
	case err != nil:
		d.addSyntax(err)
		return d, value{}
	}
	switch err := documents.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.addSyntax(err)
	default:
		d.add(next.Line, next.Column, "", "a rule file has one document; move the others to files of their own")
	}
	return d, value{node: resolve(document.Content[0])}
}

var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// addSyntax adds an error of the YAML parser, which has no column.
func (d *decoder) addSyntax(err error) {
	if match := syntaxLine.FindStringSubmatch(err.Error()); match != nil {
		line, _ := strconv.Atoi(match[1])
		d.add(max(1, line), 1, "", "invalid YAML: "+match[2])
		return
	}
	d.add(1, 1, "", "invalid YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
}

// resolve returns the node that an alias refers to.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

// addf adds an error at a value.
func (d *decoder) addf(v value, format string, args ...any) {
	d.add(v.node.Line, v.node.Column, v.field, fmt.Sprintf(format, args...))
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

// mapping returns the fields of a mapping. Those that are null are absent. Unknown and repeated fields are errors.
func (d *decoder) mapping(v value, known ...string) map[string]value {
	fields := map[string]value{}
	for _, entry := range d.entries(v) {
		name, at := entry.key, entry.value
		switch {
		case !slices.Contains(known, name):
			d.add(entry.node.Line, entry.node.Column, at.field, "unknown field"+suggest(name, known))
		case !isNull(at.node):
			fields[name] = at
		}
	}
	return fields
}

// entry is an entry of a mapping.
type entry struct {
	node  *yaml.Node // of the key
	key   string
	value value
}

// entries returns the entries of a mapping in their order, each key once.
func (d *decoder) entries(v value) []entry {
	if v.node.Kind != yaml.MappingNode {
		d.addf(v, "must be a mapping, not %s", describe(v.node))
		return nil
	}
	var all []entry
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := resolve(v.node.Content[i])
		if key.Kind != yaml.ScalarNode {
			d.add(key.Line, key.Column, v.field, "a key must be a text, not "+describe(key))
			continue
		}
		at := value{resolve(v.node.Content[i+1]), strings.TrimPrefix(v.field+"."+key.Value, ".")}
		if first := slices.IndexFunc(all, func(e entry) bool { return e.key == key.Value }); first >= 0 {
			d.add(key.Line, key.Column, at.field, fmt.Sprintf("is there twice; the first is on line %d", all[first].node.Line))
			continue
		}
		all = append(all, entry{key, key.Value, at})
	}
	return all
}

// sequence returns the items of a list.
func (d *decoder) sequence(v value) []value {
	if v.node.Kind != yaml.SequenceNode {
		d.addf(v, "must be a list, not %s", describe(v.node))
		return nil
	}
	items := make([]value, len(v.node.Content))
	for i, node := range v.node.Content {
		items[i] = value{resolve(node), fmt.Sprintf("%s[%d]", v.field, i)}
	}
	return items
}

// text returns a scalar as it is written, and false if there is an error.
func (d *decoder) text(v value) (string, bool) {
	if v.node.Kind != yaml.ScalarNode || isNull(v.node) {
		d.addf(v, "must be a text, not %s", describe(v.node))
		return "", false
	}
	return v.node.Value, true
}

func describe(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(node):
		return "null"
	default:
		return strconv.Quote(node.Value)
	}
}

// suggest returns the known name that was probably meant, or all names.
func suggest(name string, known []string) string {
	if found := expression.Closest(name, known); found != "" {
		return fmt.Sprintf("; did you mean %s?", found)
	}
	return "; the fields are " + strings.Join(known, ", ")
}
