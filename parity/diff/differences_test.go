package diff_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/parity/diff"
)

var update = flag.Bool("update", false, "rewrite docs/differences.md")

const document = "../../docs/differences.md"

func TestDifferences_Document(t *testing.T) {
	var want strings.Builder
	want.WriteString(`# Intended differences from the kubelet

Generated from the table in parity/diff by ` + "`go test ./diff -run Document -update`" + ` in parity. Rule and bug numbers refer
to [behaviour.md](behaviour.md). Each row names the test of parity/diff that shows the difference on both sides, or a test of
another package that shows Herald's. Any other difference fails the comparison tests.

| rule | kubelet | Herald | why | shown by |
| --- | --- | --- | --- | --- |
`)
	for _, difference := range diff.Differences {
		fmt.Fprintf(&want, "| %s | %s | %s | %s | `%s` |\n",
			difference.Rule, difference.Kubelet, difference.Herald, difference.Why, difference.Shown)
	}
	if *update {
		if err := os.WriteFile(document, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil || string(got) != want.String() {
		t.Fatalf("%s is out of date (%v): run go test ./diff -run Document -update", document, err)
	}
}

func TestDifferences_ShownByTest(t *testing.T) {
	for _, difference := range diff.Differences {
		folder, name := path.Split(difference.Shown)
		if folder == "" {
			folder = "parity/diff/"
		}
		if !strings.Contains(readTests(t, folder), "func "+name+"(") {
			t.Errorf("%s: got no test named %s in %s", difference.Rule, name, folder)
		}
	}
}

// readTests returns the tests of a folder of the repository.
func readTests(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	return tests.String()
}
