package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxShown     = 20   // problems that Errors holds; the rest is counted
	maxCollected = 1000 // problems that are sorted to find those
	maxMessage   = 500  // characters of one problem's text
	maxKey       = 80   // characters of an author's key or name inside a message
)

// Error is one problem of an input.
type Error struct {
	Location string // Origin.Location
	Document int    // which document of the input, from 1; 0 when it concerns the input as a whole
	Line     int    // where in the input, from 1; 0 when it concerns the input as a whole
	Field    string // such as spec.containers[0].image; "" when it concerns the document as a whole
	Err      error  // what is wrong
}

// Error reads like a compiler's message: /etc/x.yaml:12: spec.containers[0].imagee: unknown field.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.Line > 0 && e.Location != "":
		parts = append(parts, fmt.Sprintf("%s:%d", e.Location, e.Line))
	case e.Line > 0:
		parts = append(parts, fmt.Sprintf("line %d", e.Line))
	case e.Location != "":
		parts = append(parts, e.Location)
	}
	if e.Field != "" {
		parts = append(parts, e.Field)
	}
	return strings.Join(append(parts, e.text()), ": ")
}

func (e *Error) text() string {
	text := e.Err.Error()
	if fe := (*field.Error)(nil); errors.As(e.Err, &fe) {
		text = fe.ErrorBody()
	}
	return clipTo(text, maxMessage)
}

// Unwrap is the cause: ErrEmpty, a *field.Error, or an error without a type.
func (e *Error) Unwrap() error { return e.Err }

// Errors are the problems of an input, sorted by line; when there are very many, the last one says how many more.
type Errors []*Error

// Error is one line for each problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is and errors.As look at each problem.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// problems collects what is wrong with one input, within bounds.
type problems struct {
	location string
	list     Errors
	dropped  int
}

func (p *problems) add(e *Error) {
	if len(p.list) == maxCollected {
		p.dropped++
		return
	}
	e.Location = p.location
	p.list = append(p.list, e)
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
	if more := len(p.list) - maxShown + p.dropped; more > 0 {
		p.list = append(p.list[:maxShown:maxShown], &Error{
			Location: p.location, Err: fmt.Errorf("and %d more problems", more),
		})
	}
	return p.list
}

// clip makes an author's text safe to stand in a message: short, and without characters that a terminal would obey.
func clip(s string) string { return clipTo(s, maxKey) }

func clipTo(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return s
}
