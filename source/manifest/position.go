package manifest

import (
	"regexp"
	"strconv"

	yamllines "go.yaml.in/yaml/v3"
)

// position is the position of a value in the input.
type position struct {
	node   *yamllines.Node // nil if the value was not written, or the two YAML libraries disagree
	offset int             // line of the node's document, minus 1
	line   int             // of the key if there is one, else of the value; of the parent if node is nil
	path   string
}

// keyValue is a key of a mapping and its value.
type keyValue struct{ key, value *yamllines.Node }

// mergedMapping is a mapping that a merge key (<<) includes, and the index of that key.
type mergedMapping struct {
	index   int
	mapping *yamllines.Node
}

// field returns the position of a struct field, or of the nearest parent that was written.
func (p position) field(key string) position { return p.child("."+truncate(key), p.find(key, 0)) }

// key returns the position of a map value, or of the nearest parent that was written.
func (p position) key(key string) position { return p.child("["+truncate(key)+"]", p.find(key, 0)) }

// item returns the position of a list element, or of the nearest parent that was written.
func (p position) item(index int) position {
	var found keyValue
	if node := resolveAlias(p.node); node != nil && node.Kind == yamllines.SequenceNode && index < len(node.Content) {
		found = keyValue{node.Content[index], node.Content[index]}
	}
	return p.child("["+strconv.Itoa(index)+"]", found)
}

func (p position) child(step string, found keyValue) position {
	child := position{node: found.value, offset: p.offset, line: p.line, path: p.path + step}
	if p.path == "" && step[0] == '.' {
		child.path = step[1:]
	}
	if found.key != nil {
		child.line = p.offset + found.key.Line
	}
	return child
}

// find returns the entry of the mapping for the key, including merged mappings.
func (p position) find(key string, depth int) keyValue {
	node := resolveAlias(p.node)
	if node == nil || node.Kind != yamllines.MappingNode || depth > maxDepth {
		return keyValue{}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if resolveAlias(node.Content[i]).Value == key {
			return keyValue{node.Content[i], node.Content[i+1]}
		}
	}
	for _, merged := range mergedMappings(node) {
		if found := (position{node: merged.mapping}).find(key, depth+1); found.key != nil {
			return found
		}
	}
	return keyValue{}
}

var pathStep = regexp.MustCompile(`\.?([^.\[\]]+)|\[([^\]]*)\]`)

// lineOf returns the line of a field such as spec.containers[0].image or metadata.labels[app], or of the nearest parent that
// was written.
func (p position) lineOf(field string) int {
	for _, step := range pathStep.FindAllStringSubmatch(field, -1) {
		child := p.field(step[1])
		if step[1] == "" {
			index, err := strconv.Atoi(step[2])
			if child = p.key(step[2]); err == nil && index >= 0 && child.node == nil {
				child = p.item(index)
			}
		}
		if child.node == nil {
			break
		}
		p = child
	}
	return p.line
}

// mergedMappings returns the mappings that the merge keys of a mapping include, by descending precedence.
func mergedMappings(mapping *yamllines.Node) []mergedMapping {
	var all []mergedMapping
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if !isMergeKey(mapping.Content[i]) {
			continue
		}
		switch value := resolveAlias(mapping.Content[i+1]); value.Kind {
		case yamllines.MappingNode:
			all = append(all, mergedMapping{i, value})
		case yamllines.SequenceNode:
			for _, element := range value.Content {
				all = append(all, mergedMapping{i, resolveAlias(element)})
			}
		}
	}
	return all
}

func isMergeKey(key *yamllines.Node) bool {
	return key.Kind == yamllines.ScalarNode && key.ShortTag() == "!!merge"
}
