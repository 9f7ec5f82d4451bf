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
	maxShown     = 20   // errors that Errors contains; the rest is counted
	maxCollected = 1000 // errors that are collected and sorted
	maxMessage   = 500  // characters of one message
	maxName      = 80   // characters of a key or name from the input in a message
)

// Error is one error in the input.
type Error struct {
	Location string // Origin.Location
	Document int    // number of the document, from 1; 0 if the error concerns the whole input
	Line     int    // line of the input, from 1; 0 if the error concerns the whole input
	Field    string // such as spec.containers[0].image; "" if the error concerns the whole document
	Err      error  // the cause
}

// Error returns the message in the form of a compiler: /etc/x.yaml:12: spec.containers[0].imagee: unknown field.
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
	return strings.Join(append(parts, e.message()), ": ")
}

func (e *Error) message() string {
	message := e.Err.Error()
	if fieldErr := (*field.Error)(nil); errors.As(e.Err, &fieldErr) {
		message = fieldErr.ErrorBody()
	}
	return truncateTo(message, maxMessage)
}

// Unwrap returns the cause: ErrEmpty, a *field.Error, or an error without a type.
func (e *Error) Unwrap() error { return e.Err }

// Errors holds the errors of an input, sorted by line. If there are too many, the last one has the number of the others.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// errorCollector collects a limited number of errors of one input.
type errorCollector struct {
	location string
	errs     Errors
	dropped  int
}

func (c *errorCollector) add(e *Error) {
	if len(c.errs) == maxCollected {
		c.dropped++
		return
	}
	e.Location = c.location
	c.errs = append(c.errs, e)
}

func (c *errorCollector) err() error {
	if len(c.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(c.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
	if more := len(c.errs) - maxShown + c.dropped; more > 0 {
		c.errs = append(c.errs[:maxShown:maxShown], &Error{
			Location: c.location, Err: fmt.Errorf("and %d more errors", more),
		})
	}
	return c.errs
}

// truncate returns text from the input in a form that is safe in a message: short, and without control characters.
func truncate(s string) string { return truncateTo(s, maxName) }

func truncateTo(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return s
}
