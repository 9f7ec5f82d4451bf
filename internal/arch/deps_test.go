package arch_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/arch"
)

const depsHead = `# What importing Herald costs. The first list is every module that the lean module links, with the reason; the second
# the modules that only its tests use; the third how many packages from outside each room links.
# After a change: go test ./internal/arch -run Dep -update, then write a reason where it says ?
`

// TestDependenciesAreExplained fails when a module comes, goes or changes its version without docs/deps.txt saying so,
// when a reason is missing, and when a room links more or fewer packages than the list says.
func TestDependenciesAreExplained(t *testing.T) {
	file := filepath.Join(root, "docs", "deps.txt")
	have := readFile(t, file)
	reasons := reasonsIn(have)
	want := depsHead + "\n[linked]\n" + moduleLines(linkedModules(t), reasons) +
		"\n[tests only]\n" + moduleLines(testModules(t), reasons) +
		"\n[packages from outside, by room]\n" + weightLines(t)
	if *update {
		writeFile(t, file, want)
		have = want
	}
	if have != want {
		t.Errorf("docs/deps.txt is not what the module links now: go test ./internal/arch -run Dep -update\n--- is\n%s--- should be\n%s", have, want)
	}
	for module, reason := range reasonsIn(have) {
		if reason == "?" {
			t.Errorf("docs/deps.txt gives no reason for %s", module)
		}
	}
}

// reasonsIn reads "module version  reason" lines.
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
		reason := reasons[path]
		if reason == "" {
			reason = "?"
		}
		fmt.Fprintf(&lines, "%s %s  %s\n", path, modules[path], reason)
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
	var lines strings.Builder
	for _, room := range arch.Rooms {
		outside := 0
		for _, pkg := range goList(t, "-deps", "./"+room.Path) {
			if _, inside := relative(pkg.ImportPath); !inside && !pkg.Standard {
				outside++
			}
		}
		fmt.Fprintf(&lines, "%s %d\n", room.Path, outside)
	}
	return lines.String()
}
