package alert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Matcher compares a label with a value, in Alertmanager's syntax: name="value", name!="value", name=~"expression", name!~"expression".
// A label that does not exist is empty. Regular expressions match the whole value. Create it with ParseMatcher.
type Matcher struct {
	name, operator, value string
	expression            *regexp.Regexp
}

// ParseMatcher parses a matcher. The quotes of the value may be left out if it has none, no space and no comma.
func ParseMatcher(text string) (Matcher, error) {
	trimmed := strings.TrimSpace(text)
	end := strings.IndexFunc(trimmed, func(r rune) bool { return !isNameRune(r) })
	if end <= 0 {
		return Matcher{}, fmt.Errorf("matcher %q: want name, operator and value, like severity=\"warning\"", text)
	}
	m := Matcher{name: trimmed[:end]}
	rest := strings.TrimSpace(trimmed[end:])
	for _, operator := range [...]string{"=~", "!~", "!=", "="} {
		if strings.HasPrefix(rest, operator) {
			m.operator, rest = operator, strings.TrimSpace(rest[len(operator):])
			break
		}
	}
	switch value, err := strconv.Unquote(rest); {
	case m.operator == "":
		return Matcher{}, fmt.Errorf("matcher %q: want one of the operators =, !=, =~, !~ after %q", text, m.name)
	case err == nil:
		m.value = value
	case strings.ContainsAny(rest, "\"' ,"):
		return Matcher{}, fmt.Errorf("matcher %q: the value is not quoted correctly", text)
	default:
		m.value = rest
	}
	if strings.HasSuffix(m.operator, "~") {
		var err error
		if m.expression, err = regexp.Compile("^(?s:" + m.value + ")$"); err != nil {
			return Matcher{}, fmt.Errorf("matcher %q: %w", text, err)
		}
	}
	return m, nil
}

func isNameRune(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// Matches reports whether the labels match.
func (m Matcher) Matches(labels Labels) bool {
	value := labels[m.name]
	switch m.operator {
	case "=":
		return value == m.value
	case "!=":
		return value != m.value
	case "=~":
		return m.expression.MatchString(value)
	case "!~":
		return !m.expression.MatchString(value)
	default:
		return false // the zero Matcher
	}
}

// MatchAll reports whether the labels match all matchers. No matchers match nothing.
func MatchAll(matchers []Matcher, labels Labels) bool {
	for _, m := range matchers {
		if !m.Matches(labels) {
			return false
		}
	}
	return len(matchers) > 0
}

// String returns the matcher as ParseMatcher reads it.
func (m Matcher) String() string { return m.name + m.operator + strconv.Quote(m.value) }

// MarshalJSON implements json.Marshaler.
func (m Matcher) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (m *Matcher) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := ParseMatcher(text)
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}
