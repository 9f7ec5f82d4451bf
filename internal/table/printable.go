package table

import (
	"strings"
	"unicode"
)

// Printable is a text as it may be shown in one line of a terminal. Words of a status come from runtimes and from whoever may
// write one, and must not command the reader's terminal: escape sequences are shown, as kubectl shows them, what comes after
// the first line is left out, and what nobody sees is dropped.
func Printable(text string) string {
	first, rest := text, ""
	if end := strings.IndexAny(text, "\n\r\f\v"); end >= 0 {
		first, rest = text[:end], "..."
	}
	first = strings.ReplaceAll(first, "\x1b", "^[")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return -1
		}
	}, first) + rest
}
