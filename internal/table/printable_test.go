package table_test

import (
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/internal/table"
)

func TestWhatPodsSayDoesNotCommandTheTerminal(t *testing.T) {
	tests := map[string]struct{ text, shown string }{
		"harmless":             {"CrashLoopBackOff", "CrashLoopBackOff"},
		"other scripts":        {"Größe 日本", "Größe 日本"},
		"an escape sequence":   {"\x1b[2JRunning", "^[[2JRunning"},
		"one in eight bits":    {"\u009b2JRunning", "2JRunning"},
		"a second line":        {"Error\nNAME READY", "Error..."},
		"back to the start":    {"Error\rRunning", "Error..."},
		"a tabulator":          {"a\tb", "a b"},
		"a bell and a delete":  {"a\a\x7fb", "ab"},
		"the other way around": {"a\u202eb\u200bc", "abc"},
		"no UTF-8":             {"a\xffb", "a\ufffdb"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := table.Printable(test.text); got != test.shown {
				t.Errorf("%q, want %q", got, test.shown)
			}
		})
	}
}

func TestNoRowHasMoreThanOneLineOrAnythingThatControls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		p := pod(func(p *v1.Pod) {
			p.Name, p.Namespace, p.Status.Reason, p.Spec.NodeName = text, text, text, text
			p.Status.NominatedNodeName, p.Status.PodIPs = text, []v1.PodIP{{IP: text}}
		})
		var out strings.Builder
		if err := table.NewPrinter(&out, table.Options{Namespaces: true, Wide: true, NoHeader: true}).Print(table.Of(p, noon)); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), unicode.IsControl) {
			t.Errorf("%q", out.String())
		}
	})
}
