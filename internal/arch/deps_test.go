package arch_test

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/arch"
)

const depsHeader = `# What importing Herald costs: the modules that this module links, each with a reason; the modules that only its tests use;
# and the number of external packages that each package links.
# After a change, run go test ./internal/arch -run Dep -update and replace each ? by a reason.
`

// TestDependencies_Documented fails when docs/deps.txt does not match the modules and packages that are linked, or lacks a
// reason for one of them.
func TestDependencies_Documented(t *testing.T) {
	file := filepath.Join(root, "docs", "deps.txt")
	have := readFile(t, file)
	reasons := reasonsIn(have)
	want := depsHeader + "\n[linked]\n" + moduleLines(linkedModules(t), reasons) +
		"\n[tests only]\n" + moduleLines(testModules(t), reasons) +
		"\n[considered, not used]\n" + consideredLines() +
		"\n[external packages, by package]\n" + weightLines(t)
	if *update {
		writeFile(t, file, want)
		have = want
	}
	if have != want {
		t.Errorf("docs/deps.txt is out of date: run go test ./internal/arch -run Dep -update\n--- have\n%s--- want\n%s", have, want)
	}
	for module, reason := range reasonsIn(have) {
		if reason == "?" {
			t.Errorf("docs/deps.txt has no reason for %s", module)
		}
	}
}

// considered lists libraries that could replace code of this module, and why they do not.
var considered = map[string]string{
	"github.com/cockroachdb/datadriven": "agent scenarios: each of the 225 commands would need a separator line, and it stops at the " +
		"first mismatch inside a running synctest bubble, to save about 70 lines of parser",
	"k8s.io/client-go/util/flowcontrol": "cri: its Backoff does not expose when an entry was updated, so the remaining delay and the " +
		"message of the last pull failure would need a second map with its own garbage collection",
}

func consideredLines() string {
	var lines strings.Builder
	for _, path := range slices.Sorted(maps.Keys(considered)) {
		fmt.Fprintf(&lines, "%s  %s\n", path, considered[path])
	}
	return lines.String()
}

// reasonsIn parses lines of the form "module version  reason".
func reasonsIn(text string) map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[1], "v") {
			reasons[fields[0]] = strings.Join(fields[2:], " ")
		}
	}
	return reasons
}

func moduleLines(modules, reasons map[string]string) string {
	var lines strings.Builder
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		fmt.Fprintf(&lines, "%s %s  %s\n", path, modules[path], cmp.Or(reasons[path], "?"))
	}
	return lines.String()
}

func linkedModules(t *testing.T) map[string]string {
	t.Helper()
	return modulesOf(goList(t, "-deps", "./..."))
}

func testModules(t *testing.T) map[string]string {
	t.Helper()
	modules := modulesOf(goList(t, "-deps", "-test", "./..."))
	for path := range linkedModules(t) {
		delete(modules, path)
	}
	return modules
}

func modulesOf(packages []listed) map[string]string {
	modules := map[string]string{}
	for _, pkg := range packages {
		if pkg.Module != nil && pkg.Module.Path != module {
			modules[pkg.Module.Path] = pkg.Module.Version
		}
	}
	return modules
}

func weightLines(t *testing.T) string {
	t.Helper()
	packages := map[string]listed{}
	for _, pkg := range goList(t, "-deps", "./...") {
		packages[pkg.ImportPath] = pkg
	}
	var lines strings.Builder
	for _, entry := range arch.Layout {
		external := 0
		for path := range reachable(packages, path.Join(module, entry.Path)) {
			if _, inside := relative(path); !inside && !packages[path].Standard {
				external++
			}
		}
		fmt.Fprintf(&lines, "%s %d\n", entry.Path, external)
	}
	return lines.String()
}

// reachable returns the package and everything that it imports, directly or indirectly.
func reachable(packages map[string]listed, importPath string) map[string]bool {
	found, pending := map[string]bool{}, []string{importPath}
	for len(pending) > 0 {
		next := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if _, known := packages[next]; found[next] || !known {
			continue
		}
		found[next] = true
		pending = append(pending, packages[next].Imports...)
	}
	return found
}
