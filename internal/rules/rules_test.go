package rules_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/internal/rules"
)

var update = flag.Bool("update", false, "write docs/rules.md and the count in README.md")

func TestRules_DocumentsUpToDate(t *testing.T) {
	root := filepath.Join("..", "..")
	ids, err := rules.Defined(readFile(t, filepath.Join(root, "docs", "behaviour.md")) + readFile(t, filepath.Join(root, "docs", "node-rules.md")))
	if err != nil {
		t.Fatal(err)
	}
	cited, err := rules.Cited(root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rules.Join(ids, cited)
	if err != nil {
		t.Fatal(err)
	}
	readme := filepath.Join(root, "README.md")
	counted, err := rules.ReplaceCount(readFile(t, readme), all)
	if err != nil {
		t.Fatal(err)
	}
	expectContent(t, filepath.Join(root, "docs", "rules.md"), rules.Document(all))
	expectContent(t, readme, counted)
	t.Log("not named by any test:", strings.Join(rules.Untested(all), " "))
}

// expectContent fails unless the file has the content. With -update it writes the file first.
func expectContent(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a public document
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, readFile(t, file)); diff != "" {
		t.Errorf("%s is out of date, run go test ./internal/rules -update (-want +got):\n%s", filepath.Base(file), diff)
	}
}

// readFile returns "" if the file does not exist.
func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCited(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "pkg"), 0o755); err != nil { //nolint:gosec // a test directory
		t.Fatal(err)
	}
	source := "package pkg\n\n// TestB is about PH-4.\nfunc TestB() {}\n\nfunc TestSM5_SM6_Name() { _ = \"GEN-1\" }\n"
	if err := os.WriteFile(filepath.Join(root, "pkg", "a_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cited, err := rules.Cited(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"SM-5": {"pkg/TestSM5_SM6_Name"}, "SM-6": {"pkg/TestSM5_SM6_Name"}, "GEN-1": {"pkg/TestSM5_SM6_Name"}, "PH-4": {"pkg/TestB"},
	}
	if diff := cmp.Diff(want, cited); diff != "" {
		t.Errorf("citations (-want +got):\n%s", diff)
	}
}

func TestJoin(t *testing.T) {
	ids, err := rules.Defined("- **SM-1** T: a. O: b.\n- **SM-2** T: c. O: d.\n")
	if err != nil {
		t.Fatal(err)
	}
	all, err := rules.Join(ids, map[string][]string{"SM-1": {"pkg/TestA"}})
	if err != nil || !cmp.Equal(rules.Untested(all), []string{"SM-2"}) {
		t.Errorf("got untested %v, error %v; want SM-2", rules.Untested(all), err)
	}
	if _, err := rules.Join(ids, map[string][]string{"SM-9": {"pkg/TestA"}}); err == nil {
		t.Error("undefined rule: got no error, want one")
	}
}
