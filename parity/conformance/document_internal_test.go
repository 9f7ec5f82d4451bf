package conformance

import (
	"os"
	"strings"
	"testing"
)

// TestDocument_UpToDate fails if the results, the reasons and docs/conformance.md do not belong together.
func TestDocument_UpToDate(t *testing.T) {
	kubelet, err := ReadResults("testdata/kubelet.json")
	if err != nil {
		t.Fatal(err)
	}
	herald, err := ReadResults("testdata/herald.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Document(kubelet, herald)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/conformance.md")
	if err != nil || string(got) != want {
		t.Errorf("docs/conformance.md is out of date (%v): run make conformance ARGS=-document", err)
	}
}

func TestRows(t *testing.T) {
	const known = "- {specs: '^slow$', reason: it is slow}"
	tests := map[string]struct {
		kubelet, herald Results
		reasons         string
		want            string // in the error
	}{
		"same":              {Results{"a": Passed}, Results{"a": Passed}, "", ""},
		"not run":           {Results{}, Results{"a": Failed}, "", ""},
		"explained":         {Results{"slow": Passed}, Results{"slow": Failed}, known, ""},
		"unexplained":       {Results{"a": Passed}, Results{"a": Failed}, "", "no reason: a"},
		"other spec":        {Results{"slower": Passed}, Results{"slower": Failed}, known, "no reason: slower"},
		"stale":             {Results{"slow": Passed}, Results{"slow": Passed}, known, "explains no spec"},
		"both failed":       {Results{"a": Failed}, Results{"a": Failed}, "", "no reason: a"},
		"better is told":    {Results{"a": Failed}, Results{"a": Passed}, "", "no reason: a"},
		"skipped by Herald": {Results{"a": Passed}, Results{"a": Skipped}, "", "no reason: a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reasons, err := readReasons([]byte(test.reasons))
			if err != nil {
				t.Fatal(err)
			}
			_, err = rows(test.kubelet, test.herald, reasons)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestReadReport(t *testing.T) {
	results, err := readReport("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}
	want := Results{"[sig-node] Pods should pass": Passed, "[sig-node] Pods should fail": Failed, "[sig-node] Pods should skip": Skipped}
	if len(results) != len(want) {
		t.Errorf("got %v", results)
	}
	for name, outcome := range want {
		if results[name] != outcome {
			t.Errorf("%s: got %q, want %q", name, results[name], outcome)
		}
	}
	if _, err := readReport("testdata/report-setup-failed.json"); err == nil || !strings.Contains(err.Error(), "no node") {
		t.Errorf("failed setup: got %v", err)
	}
}
