package diff_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/heraldnode/herald/parity/diff"
)

var update = flag.Bool("update", false, "rewrite docs/differences.md")

const document = "../../docs/differences.md"

func TestTheDocumentOfDifferencesIsTheTable(t *testing.T) {
	var want strings.Builder
	want.WriteString(`# What differs from the kubelet, on purpose

Written from the table in parity/diff by ` + "`go test ./diff -update`" + ` in parity. The rules and bugs are those of
[behaviour.md](behaviour.md). Each row has a test that shows the difference on both sides; whatever else differs fails
the comparison.

| rule | the kubelet | Herald | why | shown by |
| --- | --- | --- | --- | --- |
`)
	for _, d := range diff.Differences {
		fmt.Fprintf(&want, "| %s | %s | %s | %s | `%s` |\n", d.Rule, d.Kubelet, d.Herald, d.Why, d.Shown)
	}
	if *update {
		if err := os.WriteFile(document, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(document)
	if err != nil || string(have) != want.String() {
		t.Fatalf("%s is not what the table says: go test ./diff -update (%v)", document, err)
	}
}

func TestEveryDifferenceIsShownByATest(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), "_test.go") {
			text, err := os.ReadFile(entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	for _, d := range diff.Differences {
		if !strings.Contains(tests.String(), "func "+d.Shown) {
			t.Errorf("%s: no test is called %s...", d.Rule, d.Shown)
		}
	}
}
