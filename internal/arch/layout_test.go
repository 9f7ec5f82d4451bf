package arch_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/arch"
)

var update = flag.Bool("update", false, "rewrite docs/deps.txt and the package table of docs/architecture.md")

const (
	module = "github.com/heraldnode/herald"
	root   = "../.."
)

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir, Doc string
	Imports, GoFiles     []string
	Standard             bool
	Module               *struct{ Path, Version string }
}

// goList runs go list in the module root.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Doc,Imports,GoFiles,Standard,Module"}, args...)...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var pkg listed
		err := decoder.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, pkg)
	}
}

// relative returns the folder of an import path of this module.
func relative(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestLayout_Imports(t *testing.T) {
	var loaded []arch.Loaded
	for _, pkg := range goList(t, "./...") {
		dir, _ := relative(pkg.ImportPath)
		entry := arch.Loaded{Dir: dir, Doc: pkg.Doc}
		for _, imported := range pkg.Imports {
			if inside, ok := relative(imported); ok {
				entry.Inside = append(entry.Inside, inside)
			} else {
				entry.Outside = append(entry.Outside, imported)
			}
		}
		if len(pkg.GoFiles) > 0 {
			loaded = append(loaded, entry)
		}
	}
	for _, violation := range arch.Check(arch.Layout, loaded) {
		t.Error(violation)
	}
}

func TestLayout_PackagesExist(t *testing.T) {
	for _, entry := range arch.Layout {
		if files, _ := filepath.Glob(filepath.Join(root, entry.Path, "*.go")); len(files) == 0 {
			t.Errorf("the layout lists %s, which has no Go files", entry.Path)
		}
	}
}

func TestLayout_Source(t *testing.T) {
	for _, pkg := range goList(t, "./...") {
		dir, _ := relative(pkg.ImportPath)
		for _, name := range pkg.GoFiles {
			violations, err := arch.CheckSource(filepath.Join(pkg.Dir, name), arch.IsPure(arch.Layout, dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, violation := range violations {
				t.Errorf("%s/%s", dir, violation)
			}
		}
	}
}

func TestLayout_ArchitectureTable(t *testing.T) {
	const begin, end = "<!-- packages: written by `go test ./internal/arch -update` -->\n", "<!-- /packages -->"
	file := filepath.Join(root, "docs", "architecture.md")
	text := readFile(t, file)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers for the package table", file)
	}
	want := before + begin + packageTable() + end + after
	if *update {
		writeFile(t, file, want)
	} else if text != want {
		t.Fatalf("the package table in %s is out of date: run go test ./internal/arch -update", file)
	}
}

func packageTable() string {
	var table strings.Builder
	table.WriteString("| layer | package | purpose | may import |\n| --- | --- | --- | --- |\n")
	for _, entry := range arch.Layout {
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s |\n", entry.Layer, entry.Path, entry.Purpose, strings.Join(entry.MayImport, ", "))
	}
	return table.String()
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
