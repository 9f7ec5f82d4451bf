package manifest

import (
	"regexp"
	"strconv"

	yamllines "go.yaml.in/yaml/v3"
)

// place is where in an input a value stands.
type place struct {
	node   *yamllines.Node // nil when the library that reads values saw something that the one for lines did not
	offset int             // what to add to the node's line
	line   int             // of the key, if the value has one: of the place itself or of what encloses it
	path   string
}

// entry is one key of a mapping with its value.
type entry struct{ key, value *yamllines.Node }

// merged is a mapping that a merge key (<<) brings in, and where the merge key stands.
type merged struct {
	index   int
	mapping *yamllines.Node
}

// field is the place of a struct's field, or else the nearest one that exists.
func (p place) field(key string) place { return p.enter("."+clip(key), p.find(key, 0)) }

// key is the place of a map's value, or else the nearest one that exists.
func (p place) key(key string) place { return p.enter("["+clip(key)+"]", p.find(key, 0)) }

// item is the place of a list's element, or else the nearest one that exists.
func (p place) item(index int) place {
	var found entry
	if node := target(p.node); node != nil && node.Kind == yamllines.SequenceNode && index < len(node.Content) {
		found = entry{node.Content[index], node.Content[index]}
	}
	return p.enter("["+strconv.Itoa(index)+"]", found)
}

func (p place) enter(step string, found entry) place {
	inside := place{node: found.value, offset: p.offset, line: p.line, path: p.path + step}
	if p.path == "" && step[0] == '.' {
		inside.path = step[1:]
	}
	if found.key != nil {
		inside.line = p.offset + found.key.Line
	}
	return inside
}

// find is the mapping's entry for the key, looked for in what is merged into it as well.
func (p place) find(key string, depth int) entry {
	node := target(p.node)
	if node == nil || node.Kind != yamllines.MappingNode || depth > maxDepth {
		return entry{}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if target(node.Content[i]).Value == key {
			return entry{node.Content[i], node.Content[i+1]}
		}
	}
	for _, m := range merges(node) {
		if found := (place{node: m.mapping}).find(key, depth+1); found.key != nil {
			return found
		}
	}
	return entry{}
}

// merges are the mappings that a mapping's merge keys name, the one that takes precedence first.
func merges(mapping *yamllines.Node) []merged {
	var all []merged
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if !isMerge(mapping.Content[i]) {
			continue
		}
		switch value := target(mapping.Content[i+1]); value.Kind {
		case yamllines.MappingNode:
			all = append(all, merged{i, value})
		case yamllines.SequenceNode:
			for _, one := range value.Content {
				all = append(all, merged{i, target(one)})
			}
		}
	}
	return all
}

func isMerge(key *yamllines.Node) bool {
	return key.Kind == yamllines.ScalarNode && key.ShortTag() == "!!merge"
}

var pathStep = regexp.MustCompile(`\.?([^.\[\]]+)|\[([^\]]*)\]`)

// lineOf is the line of a field such as spec.containers[0].image or metadata.labels[app], or else of the nearest thing
// around it that was written.
func (p place) lineOf(field string) int {
	for _, step := range pathStep.FindAllStringSubmatch(field, -1) {
		next := p.field(step[1])
		if step[1] == "" {
			index, err := strconv.Atoi(step[2])
			if next = p.key(step[2]); err == nil && index >= 0 && next.node == nil {
				next = p.item(index)
			}
		}
		if next.node == nil {
			break
		}
		p = next
	}
	return p.line
}
