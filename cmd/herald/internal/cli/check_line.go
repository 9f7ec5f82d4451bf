package cli

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fieldOf is the field that an error of validation is about.
func fieldOf(err error) string {
	var at *field.Error
	if errors.As(err, &at) {
		return at.Field
	}
	return ""
}

var step = regexp.MustCompile(`[^.\[\]]+`)

// lineOf is the line of a field of the pod with that number in a manifest that could be decoded, or of what it would be in.
func lineOf(data []byte, pod int, path string) int {
	pods := podsIn(data)
	if pod >= len(pods) {
		return 1
	}
	at, line := pods[pod], pods[pod].Line
	for _, name := range step.FindAllString(path, -1) {
		var key *yaml.Node
		if key, at = child(at, name); at == nil {
			break
		}
		line = key.Line
	}
	return line
}

// podsIn are the pods of a manifest, those in lists too, in their order.
func podsIn(data []byte) []*yaml.Node {
	var pods []*yaml.Node
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		if documents.Decode(&document) != nil {
			return pods
		}
		top := document.Content[0]
		if _, items := child(top, "items"); items != nil {
			pods = append(pods, items.Content...)
		} else if top.Kind == yaml.MappingNode {
			pods = append(pods, top)
		}
	}
}

// child is a field of a mapping with its key, or an entry of a list as both; nil if there is none.
func child(of *yaml.Node, name string) (key, value *yaml.Node) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	if index, err := strconv.Atoi(name); err == nil && of.Kind == yaml.SequenceNode && index < len(of.Content) {
		return of.Content[index], of.Content[index]
	}
	for i := 0; of.Kind == yaml.MappingNode && i < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i], of.Content[i+1]
		}
	}
	return nil, nil
}
