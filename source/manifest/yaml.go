package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	yamlvalues "go.yaml.in/yaml/v2"
	yamllines "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Limits against hostile input. No real manifest comes near them.
const (
	maxDocuments = 1000
	maxDepth     = 100
	maxValues    = 200_000 // each use of an alias counts
	maxExpanded  = 4 << 20 // bytes; MaxBytes of text cannot reach it without aliases
)

// document is the text of one YAML or JSON document.
type document struct {
	number int // from 1
	line   int // line of the input on which the text starts
	text   []byte
}

func (d document) newError(line int, field string, err error) *Error {
	return &Error{Document: d.number, Line: line, Field: field, Err: err}
}

// newSyntaxError returns an error of the text itself. The line is relative to the document.
func (d document) newSyntaxError(line int, err error) *Error {
	return d.newError(d.line+line-1, "", err)
}

// splitDocuments splits the input into documents and skips empty ones. YAML reserves the markers at the start of a line, so
// that no scalar can contain one and no parser is needed here.
func splitDocuments(data []byte) ([]document, *Error) {
	if err := checkText(data); err != nil {
		return nil, err
	}
	s := splitter{text: bytes.TrimPrefix(data, []byte("\ufeff")), startLine: 1, endLine: 1}
	for s.end < len(s.text) {
		if len(s.documents) == maxDocuments {
			return nil, &Error{Line: s.endLine, Err: fmt.Errorf("more than %d documents", maxDocuments)}
		}
		s.readLine()
	}
	s.finishDocument(s.end)
	return s.documents, nil
}

func checkText(data []byte) *Error {
	if len(data) > MaxBytes {
		return &Error{Err: fmt.Errorf("%d bytes exceed the maximum of %d", len(data), MaxBytes)}
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			line := 1 + bytes.Count(data[:at], []byte("\n"))
			return &Error{Line: line, Err: errors.New("not text: contains a NUL byte or is not UTF-8")}
		}
		at += size
	}
	return nil
}

// splitter reads a text line by line. The current document is between start and end.
type splitter struct {
	text               []byte
	start, end         int
	startLine, endLine int
	started            bool // has a start marker or content: the next start marker starts another document
	hasContent         bool
	documents          []document
}

func (s *splitter) readLine() {
	from := s.end
	if length := bytes.IndexByte(s.text[from:], '\n'); length >= 0 {
		s.end = from + length + 1
	} else {
		s.end = len(s.text)
	}
	line := s.text[from:s.end]
	switch {
	case isMarker(line, "---"):
		if s.started {
			s.finishDocument(from)
		}
		s.started = true
		s.hasContent = isContent(line[len("---"):])
	case isMarker(line, "..."):
		s.finishDocument(from)
		s.start, s.startLine = s.end, s.endLine+1
	case isContent(line) && (s.started || line[0] != '%'): // directives such as %YAML belong to the next document
		s.started, s.hasContent = true, true
	}
	s.endLine++
}

// finishDocument ends the current document before the byte at end.
func (s *splitter) finishDocument(end int) {
	if s.hasContent {
		s.documents = append(s.documents, document{number: len(s.documents) + 1, line: s.startLine, text: s.text[s.start:end]})
	}
	s.start, s.startLine = end, s.endLine
	s.started, s.hasContent = false, false
}

// isMarker reports whether the line is a document marker, possibly followed by whitespace and content.
func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isContent reports whether the line contains more than whitespace and a comment.
func isContent(line []byte) bool {
	line = bytes.Trim(line, " \t\r\n")
	return len(line) > 0 && line[0] != '#'
}

// parsedDocument is the value of a document and the positions of its parts.
type parsedDocument struct {
	document
	value any // as decoded by encoding/json, with json.Number
	root  position
}

// parse parses the document twice: first for lines and size, then with the kubelet's library for values. It returns nil and
// no error if the document is null.
func (d document) parse() (*parsedDocument, *Error) {
	root, line, err := d.parseNodes()
	if err != nil {
		return nil, d.newSyntaxError(line, err)
	}
	if root == nil {
		return nil, nil
	}
	if node, err := new(nodeChecker).check(root, 0); err != nil {
		return nil, d.newSyntaxError(node.Line, err)
	}
	text, err := yaml.YAMLToJSON(d.text)
	if err != nil {
		line, err := splitYAMLError(err)
		return nil, d.newSyntaxError(line, err)
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, d.newSyntaxError(1, err)
	}
	if value == nil {
		return nil, nil
	}
	offset := d.line - 1
	return &parsedDocument{d, value, position{node: root, offset: offset, line: offset + root.Line}}, nil
}

// parseNodes returns the node tree of the document with unresolved aliases, or the line of a syntax error.
func (d document) parseNodes() (*yamllines.Node, int, error) {
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
		return nil, second.Line, errors.New("another document starts here; write --- on a line of its own before it")
	}
	// The kubelet's library reports the line of the error. This one reports the line on which the enclosing block starts.
	if better := yamlvalues.Unmarshal(d.text, new(discardedValue)); better != nil {
		err = better
	}
	line, err := splitYAMLError(err)
	return nil, line, err
}

// discardedValue is decoded without reading its value, so that only syntax errors remain.
type discardedValue struct{}

func (*discardedValue) UnmarshalYAML(func(any) error) error { return nil }

var (
	yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
	// Both libraries count lines from 0 in errors about the next token.
	zeroBasedError = regexp.MustCompile(`^did not find expected (key|node content|'-' indicator|',' or '[]}]'|<document start>)$`)
)

// splitYAMLError splits the error of a YAML library into line and cause. The libraries omit the line if it is the first.
func splitYAMLError(err error) (line int, cause error) {
	parts := yamlError.FindStringSubmatch(err.Error())
	if parts == nil {
		return 1, err
	}
	line, _ = strconv.Atoi(parts[1])
	if zeroBasedError.MatchString(parts[2]) {
		line++
	}
	return max(line, 1), fmt.Errorf("not valid YAML: %s", parts[2])
}

// nodeChecker checks the size of a document before its aliases are expanded, and that it contains only what JSON supports.
type nodeChecker struct {
	values, bytes int
	expanding     map[*yamllines.Node]bool // anchors whose aliases are being expanded
}

// check returns the node that causes the error.
func (c *nodeChecker) check(node *yamllines.Node, depth int) (*yamllines.Node, error) {
	c.values++
	c.bytes += len(node.Value) + 1
	switch {
	case depth > maxDepth:
		return node, fmt.Errorf("nested more than %d levels deep", maxDepth)
	case c.values > maxValues || c.bytes > maxExpanded:
		return node, errors.New("too many values; each use of an alias counts")
	}
	if node.Kind == yamllines.AliasNode {
		return c.checkAlias(node, depth)
	}
	if err := checkScalar(node); err != nil {
		return node, err
	}
	for i, child := range node.Content {
		if isKey := node.Kind == yamllines.MappingNode && i%2 == 0; isKey {
			if err := checkKey(child, node.Content[i+1]); err != nil {
				return child, err
			}
		}
		if at, err := c.check(child, depth+1); err != nil {
			return at, err
		}
	}
	return nil, nil
}

func (c *nodeChecker) checkAlias(alias *yamllines.Node, depth int) (*yamllines.Node, error) {
	if c.expanding[alias.Alias] {
		return alias, fmt.Errorf("the alias *%s contains itself", truncate(alias.Value))
	}
	if c.expanding == nil {
		c.expanding = make(map[*yamllines.Node]bool)
	}
	c.expanding[alias.Alias] = true
	defer delete(c.expanding, alias.Alias)
	if _, err := c.check(alias.Alias, depth+1); err != nil {
		return alias, err // the anchor itself was valid
	}
	return nil, nil
}

var (
	coreTags   = regexp.MustCompile(`^!!(str|int|float|bool|null|map|seq|merge)$`)
	notANumber = regexp.MustCompile(`(?i)^([-+]?\.inf|\.nan)$`)
)

// checkScalar rejects values that JSON does not support: other types, and floats that are not numbers.
func checkScalar(node *yamllines.Node) error {
	if node.Style&yamllines.TaggedStyle != 0 && !coreTags.MatchString(node.ShortTag()) {
		return fmt.Errorf("the tag %s is not supported", truncate(node.Tag))
	}
	if node.Kind == yamllines.ScalarNode && node.ShortTag() == "!!float" && notANumber.MatchString(node.Value) {
		return fmt.Errorf("the number %s is not supported", node.Value)
	}
	return nil
}

func checkKey(key, value *yamllines.Node) error {
	if isMergeKey(key) && !canMerge(resolveAlias(value), true) {
		return errors.New("<< requires a mapping or a list of mappings")
	}
	if key = resolveAlias(key); key.Kind != yamllines.ScalarNode || key.ShortTag() == "!!null" {
		return errors.New("a key must be a string")
	}
	return nil
}

func canMerge(value *yamllines.Node, allowList bool) bool {
	if value.Kind != yamllines.SequenceNode || !allowList {
		return value.Kind == yamllines.MappingNode
	}
	for _, element := range value.Content {
		if !canMerge(resolveAlias(element), false) {
			return false
		}
	}
	return true
}

// resolveAlias returns the node that an alias refers to, or the node itself.
func resolveAlias(node *yamllines.Node) *yamllines.Node {
	for node != nil && node.Kind == yamllines.AliasNode {
		node = node.Alias
	}
	return node
}
