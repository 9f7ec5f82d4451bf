package resolve

import "strings"

// Expand puts the values of variables in place of $(NAME); $$ stands for one $. What names no variable stays as it is.
func Expand(text string, value func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if rest, escaped := strings.CutPrefix(after, "$"); escaped {
			out.WriteByte('$')
			text = rest
			continue
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		if !closed || !strings.HasPrefix(after, "(") {
			out.WriteByte('$')
			text = after
			continue
		}
		if known, ok := value(name); ok {
			out.WriteString(known)
		} else {
			out.WriteString("$(" + name + ")")
		}
		text = rest
	}
}
