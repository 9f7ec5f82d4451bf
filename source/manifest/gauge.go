package manifest

import (
	"errors"
	"fmt"
	"regexp"

	yamllines "go.yaml.in/yaml/v3"
)

const (
	maxDepth    = 100     // a pod needs less than 20
	maxValues   = 200_000 // with every alias counted as often as it is used
	maxExpanded = 4 << 20 // bytes; more than MaxBytes of text can have without aliases
)

// gauge finds out how large a document is before anything expands its aliases, and that it has nothing that JSON cannot
// say. The node that it returns with an error is where the trouble lies.
type gauge struct {
	values, bytes int
	open          map[*yamllines.Node]bool // anchors whose aliases are being followed
}

func (g *gauge) measure(node *yamllines.Node, depth int) (*yamllines.Node, error) {
	g.values++
	g.bytes += len(node.Value) + 1
	switch {
	case depth > maxDepth:
		return node, fmt.Errorf("nested more than %d levels deep", maxDepth)
	case g.values > maxValues || g.bytes > maxExpanded:
		return node, errors.New("too many values; aliases count as often as they are used")
	}
	if node.Kind == yamllines.AliasNode {
		return g.follow(node, depth)
	}
	if err := checkNode(node); err != nil {
		return node, err
	}
	for i, child := range node.Content {
		if isKey := node.Kind == yamllines.MappingNode && i%2 == 0; isKey {
			if err := checkKey(child, node.Content[i+1]); err != nil {
				return child, err
			}
		}
		if at, err := g.measure(child, depth+1); err != nil {
			return at, err
		}
	}
	return nil, nil
}

func (g *gauge) follow(alias *yamllines.Node, depth int) (*yamllines.Node, error) {
	if g.open[alias.Alias] {
		return alias, fmt.Errorf("the alias *%s is part of what it stands for", clip(alias.Value))
	}
	if g.open == nil {
		g.open = make(map[*yamllines.Node]bool)
	}
	g.open[alias.Alias] = true
	defer delete(g.open, alias.Alias)
	if _, err := g.measure(alias.Alias, depth+1); err != nil {
		return alias, err // the anchor alone was no trouble
	}
	return nil, nil
}

var (
	coreTags   = regexp.MustCompile(`^!!(str|int|float|bool|null|map|seq|merge)$`)
	notANumber = regexp.MustCompile(`(?i)^([-+]?\.inf|\.nan)$`)
)

// checkNode refuses what has no equal in JSON: other types, and floats that are not numbers.
func checkNode(node *yamllines.Node) error {
	if node.Style&yamllines.TaggedStyle != 0 && !coreTags.MatchString(node.ShortTag()) {
		return fmt.Errorf("the tag %s cannot be used in a manifest", clip(node.Tag))
	}
	if node.Kind == yamllines.ScalarNode && node.ShortTag() == "!!float" && notANumber.MatchString(node.Value) {
		return fmt.Errorf("%s is not a number that a manifest can hold", node.Value)
	}
	return nil
}

func checkKey(key, value *yamllines.Node) error {
	if isMerge(key) && !canMerge(target(value), true) {
		return errors.New("<< takes a mapping or a list of mappings")
	}
	if key = target(key); key.Kind != yamllines.ScalarNode || key.ShortTag() == "!!null" {
		return errors.New("a key must be a string")
	}
	return nil
}

func canMerge(value *yamllines.Node, orList bool) bool {
	if value.Kind != yamllines.SequenceNode || !orList {
		return value.Kind == yamllines.MappingNode
	}
	for _, element := range value.Content {
		if !canMerge(target(element), false) {
			return false
		}
	}
	return true
}

// target is the node that an alias stands for, or the node itself.
func target(node *yamllines.Node) *yamllines.Node {
	for node != nil && node.Kind == yamllines.AliasNode {
		node = node.Alias
	}
	return node
}
