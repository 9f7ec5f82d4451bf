package rules

import (
	"fmt"
	"strings"
)

const head = `# Rules and the tests that name them

Written by ` + "`go test ./internal/rules -update`" + ` from the tests of both modules; do not edit. The rules are those of
[behaviour.md](behaviour.md).

`

// Document is docs/rules.md.
func Document(all []Rule) string {
	var out strings.Builder
	out.WriteString(head)
	out.WriteString(Count(all) + "\n")
	if untested := Untested(all); len(untested) > 0 {
		fmt.Fprintf(&out, "\nNot named by any test: %s.\n", strings.Join(untested, ", "))
	}
	out.WriteString("\n| rule | tests |\n| --- | --- |\n")
	for _, rule := range all {
		fmt.Fprintf(&out, "| %s | %s |\n", rule.ID, strings.Join(rule.Tests, "<br>"))
	}
	return out.String()
}

// Count is the sentence for the README.
func Count(all []Rule) string {
	return fmt.Sprintf("%d of %d rules are named by a test.", len(all)-len(Untested(all)), len(all))
}

const (
	countBegins = "<!-- rules: written by go test ./internal/rules -update -->"
	countEnds   = "<!-- /rules -->"
)

// WithCount puts the sentence where the README has a place for it.
func WithCount(readme string, all []Rule) (string, error) {
	before, rest, begins := strings.Cut(readme, countBegins)
	_, after, ends := strings.Cut(rest, countEnds)
	if !begins || !ends {
		return "", fmt.Errorf("no place for the count: put %s and %s into the text", countBegins, countEnds)
	}
	return before + countBegins + Count(all) + countEnds + after, nil
}
