package bench_test

import (
	"io"
	"strings"
	"testing"

	"github.com/heraldnode/herald/parity/bench"
)

func TestResultsArePrintedForPeopleAndForMachines(t *testing.T) {
	nothing := func(b *testing.B) {
		for b.Loop() {
		}
	}
	results := bench.Run([]bench.Case{{Name: "nothing", What: "do nothing", Kubelet: nothing, Herald: nothing}}, 1, io.Discard)
	var out strings.Builder
	if err := bench.Print(&out, results); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "do nothing") || !strings.Contains(text, "\nRATIO nothing ") {
		t.Fatalf("it prints:\n%s", text)
	}
}

// The benchmark is worth nothing if one side does not do the work.
func TestBothSidesReadEveryManifest(t *testing.T) {
	cases, err := bench.Manifests(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for side, run := range map[string]func(*testing.B){"kubelet": c.Kubelet, "herald": c.Herald} {
			if r := testing.Benchmark(run); r.N == 0 {
				t.Errorf("%s, %s: it failed", c.Name, side)
			}
		}
	}
}
