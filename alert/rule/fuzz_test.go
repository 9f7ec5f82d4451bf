package rule_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/expression"
)

// FuzzA8_Parse checks that no file ends the parser, and that rules of files that it accepts are bounded.
func FuzzA8_Parse(f *testing.F) {
	for _, seed := range []string{
		"", "a: b: c", "- *x", "a: &a [*a]", inFile(valid), inFile(valid + "for: 5m\nlabels: {x: y}"),
		inFile("alert: X\non: pod\nexpr: |\n  pod.ready &&\n\n    pod.redy"), inFile("alert: X\non: pod\nexpr: >-\n  pod.ready &&\n  pod.redy"),
		inFile("alert: X\non: pod\nexpr: 'pod.name == ''x'' && pod.redy'"), inFile("alert: X\non: pod\nexpr: \"pod.name == \\\"\\u00e9\\\" && pod.redy\""),
		inFile(valid + "annotations: {summary: '{{ $labels.pod | humanize }} {{ printf \"%d\" 3 }}'}"),
		inFile(valid + "annotations: {summary: '{{ with $facts.pod }}{{ .name }}{{ else }}{{ index . \"x\" }}{{ end }}'}"),
		inFile(valid + "actions: [{type: snapshot, only_if: pod.critical, max: 3 per 1h, expect: {resolved_within: 5m}}]"),
		inFile("alert: X\non: node\nexpr: node.ready\ncondition: {type: A, reason: B}") + "inhibit: [{source: [a=b], target: [c=~\"d\"]}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := rule.Parse(data, "x.yaml")
		if err != nil {
			checkErrors(t, err, strings.Count(string(data), "\n")+1)
			return
		}
		for _, r := range file.Rules {
			for _, in := range []rule.Input{{}, newInput()} {
				result := r.Eval(in)
				if result.Cost > 2*expression.MaxRuleCost {
					t.Errorf("cost %d", result.Cost)
				}
				for name, text := range r.Annotate(labelsOf(r), result.Value, in) {
					if len(text) > 4096 || !utf8.ValidString(text) {
						t.Errorf("annotation %s has %d bytes", name, len(text))
					}
				}
				for i := range r.Actions {
					_, _ = r.Allows(i, in)
				}
			}
		}
	})
}

func checkErrors(t *testing.T, err error, lines int) {
	t.Helper()
	var errs rule.Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("got %v", err)
	}
	for _, e := range errs {
		if e.Message == "" || strings.ContainsAny(e.Error(), "\n\r") || len(e.Message) > 600 || e.Line < 0 || e.Line > lines+1 || e.Line > 0 && e.Column < 1 {
			t.Errorf("got %+v for a file of %d lines", e, lines)
		}
	}
}
