package expression

import (
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// allErrors returns the errors of the parser and the type checker.
func (e *RuleEnvironment) allErrors(issues *cel.Issues) []*Error {
	all := make([]*Error, 0, len(issues.Errors()))
	for _, issue := range issues.Errors() {
		message, _, _ := strings.Cut(issue.Message, "\n")
		message, _, _ = strings.Cut(message, " (did you mean ")     // which suggests what does not fit
		message = strings.TrimSuffix(message, " (in container '')") // CEL's word for a namespace
		all = append(all, &Error{
			Line: max(1, issue.Location.Line()), Column: max(0, issue.Location.Column()) + 1, Message: message + e.remedy(message),
		})
	}
	return all
}

// functionNames are the functions of rules beside those of CEL.
var functionNames = []string{"annotation", "count", "ended", "flipped", "label", "older", "pressure", "quantity", "restarted"}

// remedy says what to write instead of what is not declared.
func (e *RuleEnvironment) remedy(message string) string {
	kind, rest, isQuoted := strings.Cut(message, " '")
	name, _, _ := strings.Cut(rest, "'")
	variables := []string{"node", "pod", "container"}[:e.scope+1]
	switch {
	case !isQuoted:
		return ""
	case kind == "undefined field" && isQueryOnly(podType.TypeName(), name):
		return "; only queries have it, because it can change without a change that evaluates the rule"
	case kind == "undefined field":
		fields := slices.Concat(slices.Collect(maps.Values(RuleFields()))...)
		slices.Sort(fields)
		return didYouMean(name, fields)
	case kind != "undeclared reference to":
		return ""
	case name == "container":
		return "; only a rule with on: container has it"
	case name == "pod":
		return "; only a rule with on: pod or on: container has it"
	case name == "now":
		return "; write for:, older(pod, '1h') or a window like container.restarted('10m')"
	default:
		if suggestion := didYouMean(name, slices.Concat(variables, functionNames)); suggestion != "" {
			return suggestion
		}
		return "; the variables are " + strings.Join(variables, ", ")
	}
}

func didYouMean(name string, candidates []string) string {
	if found := Closest(name, candidates); found != "" {
		return "; did you mean " + found + "?"
	}
	return ""
}

// Closest returns the candidate that was probably meant by a name: it differs in at most two characters, and in less than half of them.
// Case and underscores do not count. It returns "" if there is none.
func Closest(name string, candidates []string) string {
	best, found := 3, ""
	for _, candidate := range candidates {
		a, b := plain(name), plain(candidate)
		if d := distance(a, b); d < best && 2*d < len(b) {
			best, found = d, candidate
		}
	}
	return found
}

func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "") }

// distance returns how many characters must be changed, added or removed to make one text the other (Levenshtein).
func distance(a, b string) int {
	const maxLength = 32
	if len(a) > maxLength || len(b) > maxLength {
		return maxLength
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
