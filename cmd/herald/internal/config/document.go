package config

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// identity is what a file says it is.
type identity struct{ apiVersion, kind string }

var (
	ours        = identity{APIVersion, Kind}
	theKubelets = identity{"kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"}
)

// beginning is the remedy for a file that is something else.
func (i identity) beginning() string {
	return "begin it with apiVersion: " + i.apiVersion + " and kind: " + i.kind
}

// document is the one that the text has, without the fields that identify it; nil if it is something else.
func (d *decoder) document(text string) (*yaml.Node, error) {
	documents := yaml.NewDecoder(strings.NewReader(text))
	var first, second yaml.Node
	if err := documents.Decode(&first); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: is empty: %s", d.file, d.kind.beginning())
	} else if err != nil {
		return nil, d.syntax(text, err)
	}
	if err := documents.Decode(&second); err == nil {
		d.complain(&second, "", "a second document begins here: write one, or put the rest into a file of its own in --config-dir")
	} else if !errors.Is(err, io.EOF) {
		return nil, d.syntax(text, err)
	}
	top := first.Content[0]
	if !d.identify(top) {
		return nil, errors.Join(d.problems...)
	}
	return top, nil
}

var lineOfError = regexp.MustCompile(`^yaml: line ([0-9]+): (.*)`)

// syntax words an error of the parser like our own.
func (d *decoder) syntax(text string, err error) error {
	found := lineOfError.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Errorf("%s: no YAML: %s", d.file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	line, why := found[1], found[2]
	if number, err := strconv.Atoi(line); err == nil && aboutTabs.MatchString(why) {
		if tab := tabFrom(text, number); tab > 0 {
			line, why = strconv.Itoa(tab), "it is indented with a tabulator: use spaces"
		}
	}
	return fmt.Errorf("%s:%s: no YAML: %s", d.file, line, why)
}

// aboutTabs is what the parser says of a tabulator, which nobody sees, and often of the line before it.
var aboutTabs = regexp.MustCompile(`tab character|cannot start any token`)

// tabFrom is the first line from that one on that is indented with a tabulator; 0: there is none.
func tabFrom(text string, from int) int {
	for i, line := range strings.Split(text, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if i+1 >= from && strings.Contains(indent, "\t") {
			return i + 1
		}
	}
	return 0
}

// identify reports whether this is what it should be; of anything else each field would be a mistake. It takes the two
// identifying fields out.
func (d *decoder) identify(top *yaml.Node) bool {
	if top.Kind != yaml.MappingNode {
		d.complain(top, "", "want fields: %s", d.kind.beginning())
		return false
	}
	found := map[string]string{"apiVersion": "", "kind": ""}
	var rest []*yaml.Node
	for key, value := range d.pairs(top, "") {
		if _, identifies := found[key.Value]; identifies {
			found[key.Value] = value.Value
			continue
		}
		rest = append(rest, key, value)
	}
	top.Content = rest
	is := identity{found["apiVersion"], found["kind"]}
	switch {
	case is == d.kind:
		return true
	case is.kind == theKubelets.kind && d.kind == ours:
		d.complain(top, "kind", "this is the kubelet's: 'herald config convert %s' makes one of Herald's of it", d.file)
	default:
		d.complain(top, "", "is of apiVersion %q, kind %q: %s", is.apiVersion, is.kind, d.kind.beginning())
	}
	return false
}
