package rule

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// locate returns the position in the file of a position in a text of several lines, for example of an expression. Both start at 1. If
// the text in the file differs from its value in a way that is not known here, it returns the start of the text.
func (d *decoder) locate(node *yaml.Node, line, column int) (fileLine, fileColumn int) {
	s := newScan(d.lines, node)
	want := offset(node.Value, line, column)
	for i, r := range []rune(node.Value) {
		s.skipFolded(r)
		if i == want {
			break
		}
		if !s.consume(r) {
			return node.Line, node.Column
		}
	}
	if s.line >= len(d.lines) {
		return node.Line, node.Column
	}
	return s.line + 1, s.column + 1
}

// offset returns the number of characters before a position of a text.
func offset(text string, line, column int) int {
	before := 0
	for ; line > 1; line-- {
		end := strings.IndexByte(text, '\n')
		if end < 0 {
			break
		}
		before += len([]rune(text[:end])) + 1
		text = text[end+1:]
	}
	return before + column - 1
}

// scan reads the characters of a scalar in the file. Its position starts at 0.
type scan struct {
	lines        []string
	runes        []rune // of the line
	line, column int
	style        yaml.Style
	indent       int // of a block, in characters
}

func newScan(lines []string, node *yaml.Node) *scan {
	s := &scan{lines: lines, style: node.Style}
	s.moveTo(node.Line-1, node.Column-1)
	switch {
	case s.isBlock():
		s.indent = blockIndent(lines, node.Line)
		s.moveTo(node.Line, s.indent)
	case s.is(yaml.SingleQuotedStyle), s.is(yaml.DoubleQuotedStyle):
		s.column++
	}
	return s
}

func (s *scan) is(style yaml.Style) bool { return s.style&style != 0 }
func (s *scan) isBlock() bool            { return s.is(yaml.LiteralStyle) || s.is(yaml.FoldedStyle) }

// blockIndent returns the indent of the first line that is not empty, from the given one on.
func blockIndent(lines []string, from int) int {
	for ; from < len(lines); from++ {
		if text := strings.TrimLeft(lines[from], " "); strings.TrimSpace(text) != "" {
			return len(lines[from]) - len(text)
		}
	}
	return 0
}

func (s *scan) moveTo(line, column int) {
	s.line, s.column, s.runes = line, column, nil
	if line < len(s.lines) {
		s.runes = []rune(strings.TrimSuffix(s.lines[line], "\r"))
	}
}

func (s *scan) isAtEnd() bool { return s.column >= len(s.runes) }

// nextLine moves to where the text continues on the next line. Blocks keep spaces beyond their indent.
func (s *scan) nextLine() {
	s.moveTo(s.line+1, 0)
	if s.isBlock() {
		s.column = min(s.indent, len(s.runes))
		return
	}
	for s.column < len(s.runes) && (s.runes[s.column] == ' ' || s.runes[s.column] == '\t') {
		s.column++
	}
}

// skipFolded skips the rest of a line that has only spaces if the value goes on with a line break or a space for it.
func (s *scan) skipFolded(next rune) {
	if s.isBlock() || next != ' ' && next != '\n' || s.line >= len(s.lines) {
		return
	}
	if rest := string(s.runes[min(s.column, len(s.runes)):]); strings.TrimSpace(rest) == "" {
		s.column = len(s.runes)
	}
}

// consume reads the character of the value from the file, and returns false if it is not there.
func (s *scan) consume(want rune) bool {
	switch {
	case s.line >= len(s.lines):
		return false
	case s.isAtEnd() && (want == '\n' || want == ' '):
		s.nextLine()
		for want == ' ' && s.isAtEnd() && s.line+1 < len(s.lines) {
			s.nextLine()
		}
		return true
	case s.isAtEnd():
		return false
	case s.is(yaml.SingleQuotedStyle) && want == '\'' && s.column+1 < len(s.runes):
		s.column += 2 // it is doubled
		return true
	case s.is(yaml.DoubleQuotedStyle) && s.runes[s.column] == '\\' && s.column+1 < len(s.runes):
		s.column += 2
		return !strings.ContainsRune("xuU", s.runes[s.column-1])
	case s.runes[s.column] == want:
		s.column++
		return true
	default:
		return false
	}
}
