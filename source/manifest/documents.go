package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDocuments bounds the work of one input; no real one comes near it.
const maxDocuments = 1000

// document is the text of one YAML or JSON document.
type document struct {
	number int // from 1
	line   int // the line of the input on which the text begins
	text   []byte
}

// problem is one that lies in this document.
func (d document) problem(line int, field string, err error) *Error {
	return &Error{Document: d.number, Line: line, Field: field, Err: err}
}

// broken is a problem of the text itself; line counts from the start of the document.
func (d document) broken(line int, err error) *Error { return d.problem(d.line+line-1, "", err) }

// split cuts an input into its documents and leaves out the empty ones. YAML reserves the markers at the start of a line
// for this use, so no scalar can contain one, and no YAML needs to be understood here.
func split(data []byte) ([]document, *Error) {
	if problem := checkText(data); problem != nil {
		return nil, problem
	}
	s := splitter{text: bytes.TrimPrefix(data, []byte("\ufeff")), line: 1, next: 1}
	for s.end < len(s.text) {
		if len(s.found) == maxDocuments {
			return nil, &Error{Line: s.next, Err: fmt.Errorf("more than %d documents", maxDocuments)}
		}
		s.readLine()
	}
	s.cut(s.end)
	return s.found, nil
}

func checkText(data []byte) *Error {
	if len(data) > MaxBytes {
		return &Error{Err: fmt.Errorf("%d bytes are more than the %d that a manifest may have", len(data), MaxBytes)}
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			line := 1 + bytes.Count(data[:at], []byte("\n"))
			return &Error{Line: line, Err: errors.New("not a text: it has a NUL byte or is not in UTF-8")}
		}
		at += size
	}
	return nil
}

// splitter walks over the lines of a text. Between start and end lies the document that is being read.
type splitter struct {
	text       []byte
	start, end int
	line, next int  // the lines of start and end
	begun      bool // it has a start marker or content: the next start marker begins another document
	content    bool
	found      []document
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
		if s.begun {
			s.cut(from)
		}
		s.begun = true
		s.content = isContent(line[len("---"):])
	case isMarker(line, "..."):
		s.cut(from)
		s.start, s.line = s.end, s.next+1
	case isContent(line) && (s.begun || line[0] != '%'): // %YAML and its like belong to the document that follows
		s.begun, s.content = true, true
	}
	s.next++
}

// cut ends the document that is being read before the byte at end, on the line that begins there.
func (s *splitter) cut(end int) {
	if s.content {
		s.found = append(s.found, document{number: len(s.found) + 1, line: s.line, text: s.text[s.start:end]})
	}
	s.start, s.line = end, s.next
	s.begun, s.content = false, false
}

// isMarker reports whether the line is a document marker, perhaps with something after a blank.
func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isContent reports whether the line has more than blanks and a comment.
func isContent(line []byte) bool {
	line = bytes.Trim(line, " \t\r\n")
	return len(line) > 0 && line[0] != '#'
}
