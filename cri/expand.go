package cri

import "github.com/heraldnode/herald/provision/resolve"

// expand puts the values of variables in place of $(NAME). What names no variable stays as it is, and unknown tells which
// those were.
func expand(text string, variables map[string]string) (expanded string, unknown []string) {
	expanded = resolve.Expand(text, func(name string) (string, bool) {
		value, set := variables[name]
		if !set {
			unknown = append(unknown, name)
		}
		return value, set
	})
	return expanded, unknown
}

func expandAll(texts []string, variables map[string]string) []string {
	var all []string
	for _, text := range texts {
		expanded, _ := expand(text, variables)
		all = append(all, expanded)
	}
	return all
}
