package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/source/manifest"
)

// TestCFG9AndCFG10InvalidPodsAreRefused goes through the files of testdata/refused: what was written, and behind arrows
// what is said of it. -update rewrites what is said.
func TestCFG9AndCFG10InvalidPodsAreRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/refused/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			for i, refusal := range strings.Split(string(text), "## ")[1:] {
				if i > 0 {
					said.WriteString("\n")
				}
				said.WriteString(sayAgain(t, refusal))
			}
			if *update {
				if err := os.WriteFile(path, []byte(said.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), said.String()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

// sayAgain decodes the manifest of one case, which begins at the input's third line, and writes the case anew.
func sayAgain(t *testing.T, refusal string) string {
	t.Helper()
	name, rest, _ := strings.Cut(refusal, "\n")
	written, _, _ := strings.Cut(rest, "=> ")
	written = strings.TrimRight(written, "\n") + "\n"
	pods, err := manifest.Decode([]byte("apiVersion: v1\nkind: Pod\n"+written), fromFile)
	if err == nil {
		t.Errorf("%s: %d pods were accepted", name, len(pods))
		return ""
	}
	said := "## " + name + "\n" + written
	for line := range strings.SplitSeq(err.Error(), "\n") {
		said += "=> " + line + "\n"
	}
	return said
}
