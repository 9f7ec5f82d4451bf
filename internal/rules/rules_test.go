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

func TestTheListOfRulesIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	ids, err := rules.Defined(read(t, filepath.Join(root, "docs", "behaviour.md")))
	if err != nil {
		t.Fatal(err)
	}
	named, err := rules.Named(root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rules.Join(ids, named)
	if err != nil {
		t.Fatal(err)
	}
	readme := filepath.Join(root, "README.md")
	counted, err := rules.WithCount(read(t, readme), all)
	if err != nil {
		t.Fatal(err)
	}
	hold(t, filepath.Join(root, "docs", "rules.md"), rules.Document(all))
	hold(t, readme, counted)
	t.Log("not named by any test:", strings.Join(rules.Untested(all), " "))
}

// hold fails unless the file has that text, or writes it.
func hold(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a document for everybody
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, read(t, file)); diff != "" {
		t.Errorf("%s is not true any more: go test ./internal/rules -update\n%s", filepath.Base(file), diff)
	}
}

func read(t *testing.T, file string) string {
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

func TestARuleIsNamedInATestsNameOrText(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "room"), 0o755); err != nil { //nolint:gosec // of a test
		t.Fatal(err)
	}
	source := "package room\n\n// TestB is about PH-4.\nfunc TestB() {}\n\nfunc TestSM5AndSM6() { _ = \"GEN-1\" }\n"
	if err := os.WriteFile(filepath.Join(root, "room", "a_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	named, err := rules.Named(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"SM-5": {"room/TestSM5AndSM6"}, "SM-6": {"room/TestSM5AndSM6"}, "GEN-1": {"room/TestSM5AndSM6"}, "PH-4": {"room/TestB"},
	}
	if diff := cmp.Diff(want, named); diff != "" {
		t.Error(diff)
	}
}

func TestATestThatNamesNoRuleIsAMistake(t *testing.T) {
	ids, err := rules.Defined("- **SM-1** T: a. O: b.\n- **SM-2** T: c. O: d.\n")
	if err != nil {
		t.Fatal(err)
	}
	all, err := rules.Join(ids, map[string][]string{"SM-1": {"room/TestA"}})
	if err != nil || !cmp.Equal(rules.Untested(all), []string{"SM-2"}) {
		t.Errorf("untested: %v, %v", rules.Untested(all), err)
	}
	if _, err := rules.Join(ids, map[string][]string{"SM-9": {"room/TestA"}}); err == nil {
		t.Error("SM-9 was taken for a rule")
	}
}
