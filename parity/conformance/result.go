package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
)

// Outcome is the result of one spec.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// Skipped is the outcome of a spec that found that it cannot run here, for example without AppArmor.
	Skipped Outcome = "skipped"
)

// Results are the outcomes of specs by name.
type Results map[string]Outcome

// add adds the result of a spec that was selected and was not interrupted.
func (r Results) add(spec specReport) error {
	switch {
	case spec.LeafNodeType != "It":
		if spec.State == "failed" || spec.State == "panicked" || spec.State == "timedout" {
			return fmt.Errorf("%s %s: %s", spec.LeafNodeType, spec.State, spec.Failure.Message)
		}
		return nil
	case spec.NumAttempts == 0 || spec.State == "interrupted" || spec.State == "aborted":
		return nil
	}
	outcome := Failed
	if spec.State == string(Passed) || spec.State == string(Skipped) {
		outcome = Outcome(spec.State)
	}
	r[strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")] = outcome
	return nil
}

// Count returns how many specs have the outcome.
func (r Results) Count(outcome Outcome) int {
	count := 0
	for _, each := range r {
		if each == outcome {
			count++
		}
	}
	return count
}

// ReadResults reads a file of WriteResults. A missing file is empty.
func ReadResults(path string) (Results, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	results := Results{}
	if err := json.Unmarshal(content, &results); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return results, nil
}

// Update replaces the outcomes of the specs in newer.
func (r Results) Update(newer Results) { maps.Copy(r, newer) }

// WriteResults writes results to a file, sorted by name.
func WriteResults(path string, results Results) error {
	content, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
