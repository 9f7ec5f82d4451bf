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

var update = flag.Bool("update", false, "rewrite docs/deps.txt and the table of docs/architecture.md")

const (
	module = "github.com/heraldnode/herald"
	root   = "../.."
)

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir, Doc string
	Imports, GoFiles     []string
	Standard             bool
	Module               *struct{ Path, Version string }
}

// goList runs `go list` in the module's root and decodes its stream of packages.
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

// relative turns an import path of this module into a folder below its root.
func relative(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestTheHouseIsAsThePlanDrawsIt(t *testing.T) {
	var packages []arch.Package
	for _, pkg := range goList(t, "./...") {
		dir, _ := relative(pkg.ImportPath)
		entry := arch.Package{Dir: dir, Doc: pkg.Doc}
		for _, imported := range pkg.Imports {
			if inside, ok := relative(imported); ok {
				entry.Inside = append(entry.Inside, inside)
			} else {
				entry.Outside = append(entry.Outside, imported)
			}
		}
		if len(pkg.GoFiles) > 0 {
			packages = append(packages, entry)
		}
	}
	for _, breach := range arch.Check(arch.Rooms, packages) {
		t.Error(breach)
	}
}

func TestEveryRoomOfThePlanExists(t *testing.T) {
	for _, room := range arch.Rooms {
		if files, _ := filepath.Glob(filepath.Join(root, room.Path, "*.go")); len(files) == 0 {
			t.Errorf("the plan has a room %s, the house has not", room.Path)
		}
	}
}

func TestPureCodeHasNoClockAndStructsStaySmall(t *testing.T) {
	for _, pkg := range goList(t, "./...") {
		dir, _ := relative(pkg.ImportPath)
		for _, name := range pkg.GoFiles {
			breaches, err := arch.CheckSource(filepath.Join(pkg.Dir, name), arch.IsPure(arch.Rooms, dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, breach := range breaches {
				t.Errorf("%s/%s", dir, breach)
			}
		}
	}
}

func TestThePictureInTheArchitectureTextIsThePlan(t *testing.T) {
	const begin, end = "<!-- rooms: written by `go test ./internal/arch -update` -->\n", "<!-- /rooms -->"
	file := filepath.Join(root, "docs", "architecture.md")
	text := readFile(t, file)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table of rooms", file)
	}
	want := before + begin + roomTable() + end + after
	if *update {
		writeFile(t, file, want)
	} else if text != want {
		t.Fatalf("the table of rooms in %s is not the plan's: go test ./internal/arch -update", file)
	}
}

func roomTable() string {
	var table strings.Builder
	table.WriteString("| layer | room | its job | may import |\n| --- | --- | --- | --- |\n")
	for _, room := range arch.Rooms {
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s |\n", room.Layer, room.Path, room.Job, strings.Join(room.MayImport, ", "))
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
