// Package rules tells which rule of docs/behaviour.md is named by which test. Its own test writes docs/rules.md and the
// count in the README, and fails when they are not true any more.
package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Rule is one numbered sentence of the specification.
type Rule struct {
	ID    string
	Tests []string // where it is named, as "package.Test"
}

var (
	defined  = regexp.MustCompile(`^- \*\*([A-Z]+-[0-9]+)\*\*`)
	written  = regexp.MustCompile(`\b(` + kinds + `)-([0-9]+)\b`)
	inAName  = regexp.MustCompile(`(` + kinds + `)([0-9]+)`)
	numbered = regexp.MustCompile(`^(` + kinds + `)-[0-9]+$`)
)

const kinds = "PM|CFG|SM|GEN|PH|PW|PLEG|PRB|BUG"

// Defined lists the rules of a specification in its order.
func Defined(markdown string) ([]string, error) {
	var ids []string
	for line := range strings.Lines(markdown) {
		found := defined.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if !numbered.MatchString(found[1]) {
			return nil, fmt.Errorf("rule %s is of no known kind (%s)", found[1], kinds)
		}
		if slices.Contains(ids, found[1]) {
			return nil, fmt.Errorf("rule %s is there twice", found[1])
		}
		ids = append(ids, found[1])
	}
	return ids, nil
}

// Join gives each rule the tests that name it. A test that names a rule which does not exist is an error: it proves
// nothing, or was mistyped.
func Join(ids []string, named map[string][]string) ([]Rule, error) {
	all := make([]Rule, 0, len(ids))
	for _, id := range ids {
		tests := slices.Clone(named[id])
		slices.Sort(tests)
		all = append(all, Rule{ID: id, Tests: slices.Compact(tests)})
	}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		if !slices.Contains(ids, id) {
			return nil, fmt.Errorf("%s names %s, which is no rule", named[id][0], id)
		}
	}
	return all, nil
}

// Untested are the rules that no test names.
func Untested(all []Rule) []string {
	var ids []string
	for _, rule := range all {
		if len(rule.Tests) == 0 {
			ids = append(ids, rule.ID)
		}
	}
	return ids
}
