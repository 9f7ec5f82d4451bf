package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	yamlvalues "go.yaml.in/yaml/v2"
	yamllines "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// content is what a document says, and where it says it.
type content struct {
	document
	value any // as encoding/json makes it, with json.Number
	root  place
}

// parse reads the document twice: once for the lines and to see that it is of reasonable size, then with the kubelet's
// library for the values. It returns nil and no problem when the document is null.
func (d document) parse() (*content, *Error) {
	root, line, err := d.nodes()
	if err != nil {
		return nil, d.broken(line, err)
	}
	if root == nil {
		return nil, nil
	}
	if node, err := new(gauge).measure(root, 0); err != nil {
		return nil, d.broken(node.Line, err)
	}
	text, err := yaml.YAMLToJSON(d.text)
	if err != nil {
		line, err := locate(err)
		return nil, d.broken(line, err)
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, d.broken(1, err)
	}
	if value == nil {
		return nil, nil
	}
	offset := d.line - 1
	return &content{d, value, place{node: root, offset: offset, line: offset + root.Line}}, nil
}

// nodes is the tree of the document, without aliases being followed, or the line of a syntax error.
func (d document) nodes() (*yamllines.Node, int, error) {
	decoder := yamllines.NewDecoder(bytes.NewReader(d.text))
	var tree, second yamllines.Node
	err := decoder.Decode(&tree)
	if errors.Is(err, io.EOF) {
		return nil, 0, nil
	}
	if err == nil {
		err = decoder.Decode(&second)
	}
	switch {
	case errors.Is(err, io.EOF):
		return tree.Content[0], 0, nil
	case err == nil:
		return nil, second.Line, errors.New("another document begins here: put --- on a line of its own before it")
	}
	// The kubelet's library names the line of the problem, this one the line on which the block around it begins.
	if better := yamlvalues.Unmarshal(d.text, new(ignored)); better != nil {
		err = better
	}
	line, err := locate(err)
	return nil, line, err
}

// ignored is decoded without being looked at, which leaves the syntax errors.
type ignored struct{}

func (*ignored) UnmarshalYAML(func(any) error) error { return nil }

var (
	yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
	// Of errors about what comes next, both libraries count the line from 0.
	countsFrom0 = regexp.MustCompile(`^did not find expected (key|node content|'-' indicator|',' or '[]}]'|<document start>)$`)
)

// locate takes a YAML library's error apart. The libraries name no line when it is the first one.
func locate(err error) (line int, cause error) {
	parts := yamlError.FindStringSubmatch(err.Error())
	if parts == nil {
		return 1, err
	}
	line, _ = strconv.Atoi(parts[1])
	if countsFrom0.MatchString(parts[2]) {
		line++
	}
	return max(line, 1), fmt.Errorf("not valid YAML: %s", parts[2])
}
