package conformance

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed reasons.yaml
var reasonsFile []byte

// reason explains why Herald's result of some specs differs from the kubelet's, or why both fail.
type reason struct {
	// Specs is a regular expression of the names.
	Specs string `json:"specs"`
	Text  string `json:"reason"`

	expression *regexp.Regexp
}

func readReasons(content []byte) ([]reason, error) {
	var reasons []reason
	if err := yaml.UnmarshalStrict(content, &reasons); err != nil {
		return nil, fmt.Errorf("reasons: %w", err)
	}
	for i := range reasons {
		expression, err := regexp.Compile(reasons[i].Specs)
		if err != nil {
			return nil, fmt.Errorf("reasons: %w", err)
		}
		if reasons[i].Text == "" || reasons[i].Specs == "" {
			return nil, fmt.Errorf("reasons: entry %d is incomplete", i+1)
		}
		reasons[i].expression = expression
	}
	return reasons, nil
}

// row is one spec of the document.
type row struct {
	name            string
	kubelet, herald Outcome // "" is not run
	reason          string
}

// bothRan is false if one of them did not run the spec.
func (r row) bothRan() bool { return r.kubelet != "" && r.herald != "" }

func (r row) differs() bool { return r.bothRan() && r.kubelet != r.herald }

func (r row) bothFailed() bool { return r.kubelet == Failed && r.herald == Failed }

// rows joins the results. It fails if a difference or a failure of both has no reason, and if a reason explains nothing.
func rows(kubelet, herald Results, reasons []reason) ([]row, error) {
	all := maps.Clone(kubelet)
	all.Update(herald)
	used := make([]bool, len(reasons))
	var joined []row
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := row{name: name, kubelet: kubelet[name], herald: herald[name]}
		if r.differs() || r.bothFailed() {
			i := slices.IndexFunc(reasons, func(each reason) bool { return each.expression.MatchString(name) })
			if i < 0 {
				errs = append(errs, fmt.Errorf("kubelet %s, Herald %s, and reasons.yaml has no reason: %s", r.kubelet, r.herald, name))
			} else {
				r.reason, used[i] = reasons[i].Text, true
			}
		}
		joined = append(joined, r)
	}
	for i, each := range reasons {
		if !used[i] {
			errs = append(errs, fmt.Errorf("reasons.yaml: %q explains no spec: remove it", each.Specs))
		}
	}
	return joined, errors.Join(errs...)
}

const preface = `# Kubernetes' own tests

<!-- Written by make conformance; do not edit. -->

The specs of Kubernetes' end-to-end suite that test a node's agent, run against Herald and against the kubelet of the same version on the
same control plane, container runtime and images. They are the specs of test/e2e/node, test/e2e/common/node and of the volumes in
test/e2e/common/storage that are not Serial, Slow or Disruptive and need no feature that is off by default. A skipped spec has found that
it cannot run on the machine. The specs of the feature InPlacePodLevelResourcesVerticalScaling are left out: Herald's
Node does not declare it yet, and they need cgroup v2. Runs of a part of the specs replace their results only, so the results may be
of several runs.

`

// Document returns docs/conformance.md.
func Document(kubelet, herald Results) (string, error) {
	reasons, err := readReasons(reasonsFile)
	if err != nil {
		return "", err
	}
	joined, err := rows(kubelet, herald, reasons)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(preface)
	b.WriteString("| agent | specs | passed | failed | skipped |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, each := range []struct {
		name    string
		results Results
	}{{"kubelet", kubelet}, {"Herald", herald}} {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", each.name, len(each.results),
			each.results.Count(Passed), each.results.Count(Failed), each.results.Count(Skipped))
	}
	b.WriteString("\n## Differences\n\n")
	writeReasons(&b, joined, row.differs)
	b.WriteString("\n## Failed on both\n\n")
	writeReasons(&b, joined, row.bothFailed)
	b.WriteString("\n## All specs\n\n| spec | kubelet | Herald |\n| --- | --- | --- |\n")
	for _, r := range joined {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(r.name), outcome(r.kubelet), outcome(r.herald))
	}
	return b.String(), nil
}

func writeReasons(b *strings.Builder, joined []row, selected func(row) bool) {
	found := slices.DeleteFunc(slices.Clone(joined), func(r row) bool { return !selected(r) })
	if len(found) == 0 {
		b.WriteString("None.\n")
		return
	}
	b.WriteString("| spec | kubelet | Herald | reason |\n| --- | --- | --- | --- |\n")
	for _, r := range found {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", cell(r.name), r.kubelet, r.herald, cell(r.reason))
	}
}

// cell escapes a text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ", "*", `\*`).Replace(strings.TrimSpace(text))
}

func outcome(o Outcome) string {
	if o == "" {
		return "not run"
	}
	return string(o)
}
