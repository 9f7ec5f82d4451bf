package rule_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
)

// annotate returns the annotation of a rule about a container.
func annotate(t *testing.T, text string, value *float64, in rule.Input) string {
	t.Helper()
	r := parse(t, "alert: X\non: container\nexpr: 'true'\nvalue: container.restarts\nlabels: {team: shop}\nannotations:\n  summary: |-\n    "+text)
	return r.Annotate(labelsOf(r), value, in)["summary"]
}

func TestAnnotate(t *testing.T) {
	tests := map[string]string{
		"{{ $labels.namespace }}/{{ $labels.pod }} {{ $labels.container }} {{ $labels.team }}":      "shop/cart web shop",
		"{{ $value }} {{ humanize $value }}":                                                        "1.234567e+06 1.235M",
		"{{ $facts.container.image }} {{ $facts.pod.phase }} {{ $facts.node.name }}":                "example.test/web:1 Running n1",
		`{{ index $facts.pod.labels "app" }}{{ index $facts.pod.labels "none" }}`:                   "cart",
		"{{ humanize1024 $facts.container.load.memory }}B":                                          "10MiB",
		"{{ humanizePercentage $facts.container.load.memory_limit }}":                               "16%",
		"{{ humanizePercentage $facts.container.load.psi_cpu }}":                                    "unknown",
		"{{ humanizeDuration 3700 }} {{ humanizeDuration 0.012 }} {{ humanizeDuration 90061 }}":     "1h 1m 40s 12ms 1d 1h 1m 1s",
		"{{ humanizeDuration 0 }} {{ humanize 0.00001 }} {{ humanize1024 1 }} {{ humanize -2000 }}": "0s 10µ 1 -2k",
		"{{ with $facts.pod.reason }}({{ . }}){{ else }}none{{ end }}":                              "none",
		"{{ if $facts.container.ready }}ready{{ end }}":                                             "ready",
		`{{ printf "%.2f" $value }}`:                                                                "1234567.00",
		`{{ (index $facts.pod.containers 0).name }}`:                                                "web",
	}
	for text, want := range tests {
		if got := annotate(t, text, new(1234567.), newInput()); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if got := annotate(t, "{{ $value }}", nil, newInput()); got != "unknown" {
		t.Errorf("got %q for an unknown value", got)
	}
}

// TestAnnotate_Error checks that a template that fails leaves the error as the annotation.
func TestAnnotate_Error(t *testing.T) {
	in := newInput()
	in.Pod.Spec.Containers = nil
	got := annotate(t, "{{ (index $facts.pod.containers 0).name }}", nil, in)
	if !strings.HasPrefix(got, "<error: ") || !strings.Contains(got, "out of range") {
		t.Errorf("got %q", got)
	}
	r := parse(t, "alert: X\non: pod\nexpr: 'true'\nannotations: {summary: '{{ $labels.pod }}', description: x}")
	if got := r.Annotate(alert.Labels{}, nil, rule.Input{}); !strings.HasPrefix(got["summary"], "<error: ") || got["description"] != "x" {
		t.Errorf("got %v", got)
	}
}

func TestAnnotate_Bounded(t *testing.T) {
	for _, text := range []string{
		`{{ printf "%100000d" 1 }}`, strings.Repeat(`{{ printf "%1000d" 1 }}`, 100), "{{ $facts.container.message }}",
		`{{ $x := printf "%4096d" 1 }}{{ $y := print $x $x $x }}{{ $z := print $y $y $y }}{{ html $z }}`,
	} {
		in := newInput()
		in.Pod.Local.Status.ContainerStatuses[0].State.Running = nil
		in.Pod.Local.Status.ContainerStatuses[0].State.Waiting = waiting("x")
		in.Pod.Local.Status.ContainerStatuses[0].State.Waiting.Message = strings.Repeat("é", 5000)
		if got := annotate(t, text, nil, in); len(got) > 4096 || len(got) < 200 {
			t.Errorf("%.50s: got %d bytes", text, len(got))
		}
	}
}
