// Package rules finds the tests of each rule in docs/behaviour.md and docs/node-rules.md. Its own test generates docs/rules.md and
// the count in README.md, and fails if they are out of date.
package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Rule is one numbered statement of the specification.
type Rule struct {
	ID    string
	Tests []string // the tests that cite it, as "folder/Test"
}

const kinds = "PM|CFG|SM|GEN|PH|PW|PLEG|PRB|BUG|ADM|CGR|RSZ|EVI|IGC|IMG|RES"

var (
	definition  = regexp.MustCompile(`^- \*\*([A-Z]+-[0-9]+)\*\*`)
	idInText    = regexp.MustCompile(`\b(` + kinds + `)-([0-9]+)\b`)
	idInName    = regexp.MustCompile(`(` + kinds + `)([0-9]+)`)
	idKnownKind = regexp.MustCompile(`^(` + kinds + `)-[0-9]+$`)
)

// Defined returns the IDs of the rules in a specification, in its order.
func Defined(markdown string) ([]string, error) {
	var ids []string
	for line := range strings.Lines(markdown) {
		match := definition.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		id := match[1]
		if !idKnownKind.MatchString(id) {
			return nil, fmt.Errorf("rule %s: unknown kind (known: %s)", id, kinds)
		}
		if slices.Contains(ids, id) {
			return nil, fmt.Errorf("rule %s is defined twice", id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Join returns the rules with the tests that cite them. A test that cites an undefined rule is an error.
func Join(ids []string, cited map[string][]string) ([]Rule, error) {
	all := make([]Rule, 0, len(ids))
	for _, id := range ids {
		tests := slices.Clone(cited[id])
		slices.Sort(tests)
		all = append(all, Rule{ID: id, Tests: slices.Compact(tests)})
	}
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		if !slices.Contains(ids, id) {
			return nil, fmt.Errorf("%s cites %s, which is not defined", cited[id][0], id)
		}
	}
	return all, nil
}

// Untested returns the IDs of the rules that no test cites.
func Untested(all []Rule) []string {
	var ids []string
	for _, rule := range all {
		if len(rule.Tests) == 0 {
			ids = append(ids, rule.ID)
		}
	}
	return ids
}

const head = `# Rules and their tests

Generated from the tests of both modules by ` + "`go test ./internal/rules -update`" + `; do not edit. The rules are defined in
[behaviour.md](behaviour.md) and [node-rules.md](node-rules.md).

`

// Document returns the content of docs/rules.md.
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

// Count returns the sentence for README.md.
func Count(all []Rule) string {
	return fmt.Sprintf("%d of %d rules are named by a test.", len(all)-len(Untested(all)), len(all))
}

const (
	countBegin = "<!-- rules: written by go test ./internal/rules -update -->"
	countEnd   = "<!-- /rules -->"
)

// ReplaceCount replaces the sentence between the markers in README.md.
func ReplaceCount(readme string, all []Rule) (string, error) {
	before, rest, hasBegin := strings.Cut(readme, countBegin)
	_, after, hasEnd := strings.Cut(rest, countEnd)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("README.md has no markers for the count: add %s%s", countBegin, countEnd)
	}
	return before + countBegin + Count(all) + countEnd + after, nil
}
