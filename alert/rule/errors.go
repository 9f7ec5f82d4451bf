package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Bounds of the errors of a file.
const (
	maxErrors  = 100 // errors that are collected; the rest is counted
	maxMessage = 500 // bytes of a message
)

// Error is an error in a rule file.
type Error struct {
	Path string
	// Line and Column start at 1. They are 0 if the error concerns the whole file.
	Line, Column int
	Field        string // such as groups[0].rules[1].expr
	Message      string // what is wrong, and what to do
}

// Error returns the message in the form of a compiler: /etc/x.yaml:12:7: groups[0].rules[1].expr: undefined field 'redy'.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.Line > 0 && e.Path != "":
		parts = append(parts, fmt.Sprintf("%s:%d:%d", e.Path, e.Line, e.Column))
	case e.Line > 0:
		parts = append(parts, fmt.Sprintf("line %d, column %d", e.Line, e.Column))
	case e.Path != "":
		parts = append(parts, e.Path)
	}
	if e.Field != "" {
		parts = append(parts, e.Field)
	}
	return strings.Join(append(parts, e.Message), ": ")
}

// Errors has all errors of a file, sorted by line.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors for errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// collector collects the errors of a file.
type collector struct {
	path    string
	errs    Errors
	dropped int
}

func (c *collector) add(line, column int, field, message string) {
	if len(c.errs) >= maxErrors {
		c.dropped++
		return
	}
	c.errs = append(c.errs, &Error{Path: c.path, Line: line, Column: column, Field: clean(field), Message: clean(message)})
}

// err returns the errors, or nil if there are none.
func (c *collector) err() error {
	if len(c.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(c.errs, func(a, b *Error) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	if c.dropped > 0 {
		c.errs = append(c.errs, &Error{Path: c.path, Message: fmt.Sprintf("and %d more errors", c.dropped)})
	}
	return c.errs
}

// clean bounds a text to one line.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}
