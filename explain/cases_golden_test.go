package explain_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/explain"
)

var update = flag.Bool("update", false, "rewrite testdata/cases.txt and docs/explain.md")

// compareGolden compares the text with a file, or writes it with -update.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s is out of date, run go test ./explain -update (-want +got):\n%s", file, diff)
	}
}

func TestPod_Cases(t *testing.T) {
	var out strings.Builder
	for _, test := range exampleCases() {
		v := explain.Pod(test.facts, test.question)
		question := string(test.question)
		if question == "" {
			question = "-"
		}
		fmt.Fprintf(&out, "# %s: question %s, code %s, class %s, ok %v, final %v\n%s: %s\n\n",
			test.name, question, v.Code, explain.ClassOf(v.Code), v.OK, v.Final, v.Text(now), explain.Short(v, now))
	}
	compareGolden(t, filepath.Join("testdata", "cases.txt"), out.String())
}

// declaredCode is a constant of codes.go with its comment.
type declaredCode struct{ name, value, meaning string }

// declaredCodes returns the codes that codes.go declares, in its order.
func declaredCodes(t *testing.T) []declaredCode {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var codes []declaredCode
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		name := spec.Names[0].Name
		meaning, ok := strings.CutPrefix(strings.Join(strings.Fields(spec.Doc.Text()), " "), name+": ")
		if !ok {
			t.Errorf("the comment of %s does not begin with %q", name, name+": ")
		}
		codes = append(codes, declaredCode{name, value, meaning})
		return true
	})
	return codes
}

// TestCodes verifies that each code is declared, described and produced by a case.
func TestCodes(t *testing.T) {
	described, produced := map[string]bool{}, map[string]bool{}
	for _, code := range explain.Codes() {
		if described[code.Name] {
			t.Errorf("%s is described twice", code.Name)
		}
		described[code.Name] = true
	}
	for _, test := range exampleCases() {
		produced[explain.Pod(test.facts, test.question).Code] = true
	}
	declared := declaredCodes(t)
	for _, code := range declared {
		if !described[code.value] || !produced[code.value] {
			t.Errorf("%s: described %v, produced by a case %v, want both", code.name, described[code.value], produced[code.value])
		}
	}
	if len(declared) < 70 || len(described) != len(declared) {
		t.Errorf("got %d declared and %d described codes", len(declared), len(described))
	}
	for code := range produced {
		if !described[code] {
			t.Errorf("a case produces %s, which is not described", code)
		}
	}
}
