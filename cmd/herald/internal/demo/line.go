package demo

import (
	"strings"
	"unicode/utf8"
)

// style is how a text looks in a terminal.
type style int

const (
	plain style = iota
	dim
	strong
	good
	bad
	starting
	ended
)

// codes are the parameters of the escape sequences that select a style.
var codes = [...]string{plain: "0", dim: "90", strong: "1", good: "32", bad: "31", starting: "33", ended: "36"}

// span is a part of a line with one style.
type span struct {
	text  string
	style style
}

// line is a line of the screen.
type line []span

// cut returns the first columns of the line. Zero columns mean that the width is not known.
func (l line) cut(columns int) line {
	if columns == 0 {
		return l
	}
	var shorter line
	for _, part := range l {
		runes := []rune(part.text)
		shorter = append(shorter, span{string(runes[:min(len(runes), columns)]), part.style})
		if columns -= len(runes); columns <= 0 {
			break
		}
	}
	return shorter
}

// render returns the line for a terminal.
func (l line) render(isColoured bool) string {
	var text strings.Builder
	for _, part := range l {
		if part.style == plain || !isColoured || part.text == "" {
			text.WriteString(part.text)
			continue
		}
		text.WriteString("\x1b[" + codes[part.style] + "m" + part.text + "\x1b[0m")
	}
	return text.String()
}

// wrap breaks a text between words so that each line has at most that many columns; a word that is longer is broken, too. The lines
// after the first begin with the indent.
func wrap(text string, columns int, indent string) []string {
	if columns <= len(indent) {
		return []string{text}
	}
	var lines []string
	for utf8.RuneCountInString(text) > columns {
		runes := []rune(text)
		end := columns
		first := len(indent)
		if len(lines) == 0 {
			first = 1
		}
		for i := columns; i > first; i-- {
			if runes[i] == ' ' {
				end = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(runes[:end]), " "))
		text = indent + strings.TrimLeft(string(runes[end:]), " ")
	}
	return append(lines, text)
}
