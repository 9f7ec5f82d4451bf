package cri

import "strings"

// expand puts the values of variables in place of $(NAME); $$ stands for one $. What names no variable stays as it is,
// and unknown tells which those were.
func expand(text string, variables map[string]string) (expanded string, unknown []string) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String(), unknown
		}
		text = after
		if rest, doubled := strings.CutPrefix(text, "$"); doubled {
			out.WriteByte('$')
			text = rest
			continue
		}
		name, rest, closed := strings.Cut(text, ")")
		if !closed || !strings.HasPrefix(name, "(") {
			out.WriteByte('$')
			continue
		}
		name = name[1:]
		if value, set := variables[name]; set {
			out.WriteString(value)
		} else {
			out.WriteString("$(" + name + ")")
			unknown = append(unknown, name)
		}
		text = rest
	}
}

func expandAll(texts []string, variables map[string]string) []string {
	var all []string
	for _, text := range texts {
		expanded, _ := expand(text, variables)
		all = append(all, expanded)
	}
	return all
}
