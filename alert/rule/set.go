package rule

import (
	"errors"
	"fmt"
	"slices"
)

// File has the rules of a file. It is immutable.
type File struct {
	Path    string // empty for the default rules
	Rules   []*Rule
	Inhibit []Inhibition
}

// Set has the rules of all files. It is immutable.
type Set struct {
	Rules   []*Rule
	Inhibit []Inhibition
	// UnusedDisable has the names that were to be disabled and that no rule has.
	UnusedDisable []string
}

// Merge returns the rules of all files without those that are disabled by name. A rule of a file replaces all default rules of its name.
// It is an error if two rules have the same name and labels.
func Merge(disable []string, files ...*File) (*Set, error) {
	replaced, known := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		for _, r := range file.Rules {
			known[r.Name] = true
			replaced[r.Name] = replaced[r.Name] || file.Path != ""
		}
	}
	set := &Set{}
	var errs []error
	seen := map[string]*Rule{}
	for _, file := range files {
		set.Inhibit = append(set.Inhibit, file.Inhibit...)
		for _, r := range file.Rules {
			if slices.Contains(disable, r.Name) || file.Path == "" && replaced[r.Name] {
				continue
			}
			if other := seen[r.ID()]; other != nil {
				errs = append(errs, fmt.Errorf("%s:%d: alert %s has the name and labels of the rule at %s:%d; rename one of them or change a label",
					r.File, r.Text.Line, r.Name, other.File, other.Text.Line))
				continue
			}
			seen[r.ID()] = r
			set.Rules = append(set.Rules, r)
		}
	}
	for _, name := range disable {
		if !known[name] {
			set.UnusedDisable = append(set.UnusedDisable, name)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return set, nil
}
