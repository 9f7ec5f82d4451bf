package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Loaded is a package as the go command lists it. Dir and Inside are relative to the module root; Inside and Outside are
// its imports, without those of tests.
type Loaded struct {
	Dir     string
	Doc     string
	Inside  []string
	Outside []string
}

// Check returns a message for each violation of the layout.
func Check(layout []Package, loaded []Loaded) []string {
	var violations []string
	for _, pkg := range loaded {
		if pkg.Doc == "" {
			violations = append(violations, pkg.Dir+" has no package comment")
		}
		if slices.Contains(bannedNames, path.Base(pkg.Dir)) {
			violations = append(violations, pkg.Dir+" has a meaningless name: name it after what it does")
		}
		entry, found := entryFor(layout, pkg.Dir)
		if !found {
			violations = append(violations, pkg.Dir+" has no entry in internal/arch/packages.go")
			continue
		}
		violations = append(violations, checkInside(layout, entry, pkg)...)
		violations = append(violations, checkOutside(entry, pkg)...)
	}
	return violations
}

func checkInside(layout []Package, entry Package, pkg Loaded) []string {
	var violations []string
	for _, imported := range pkg.Inside {
		target, found := entryFor(layout, imported)
		if !found || target.Path == entry.Path || slices.Contains(entry.MayImport, target.Path) ||
			slices.Contains(below[entry.Layer], target.Layer) {
			continue
		}
		violations = append(violations, fmt.Sprintf("%s (%s) must not import %s (%s)",
			pkg.Dir, entry.Layer, imported, target.Layer))
	}
	return violations
}

func checkOutside(entry Package, pkg Loaded) []string {
	var violations []string
	for _, imported := range pkg.Outside {
		switch {
		case matchesAny(imported, neverImported):
			violations = append(violations, fmt.Sprintf("%s imports %s, which this module never links", pkg.Dir, imported))
		case matchesAny(imported, restricted) && !matchesAny(imported, entry.Modules):
			violations = append(violations, fmt.Sprintf("%s imports %s, which is reserved for other packages", pkg.Dir, imported))
		case slices.Contains(pureLayers, entry.Layer) && slices.Contains(effectImports, imported) && !slices.Contains(entry.Modules, imported):
			violations = append(violations, fmt.Sprintf("%s (%s) imports %s: pure packages perform no effects", pkg.Dir, entry.Layer, imported))
		case entry.Layer == Vocabulary && strings.Contains(imported, ".") && !matchesAny(imported, append(vocabularyImports, entry.Modules...)):
			violations = append(violations, fmt.Sprintf("%s (%s) imports %s: vocabulary needs no libraries", pkg.Dir, entry.Layer, imported))
		}
	}
	return violations
}

// entryFor returns the most specific entry that covers dir.
func entryFor(layout []Package, dir string) (Package, bool) {
	var best Package
	found := false
	for _, entry := range layout {
		if (dir == entry.Path || strings.HasPrefix(dir, entry.Path+"/")) && len(entry.Path) >= len(best.Path) {
			best, found = entry, true
		}
	}
	return best, found
}

func matchesAny(imported string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return imported == prefix || strings.HasPrefix(imported, prefix+"/")
	})
}

// CheckSource returns a message for each violation in one Go file that imports do not show: a struct with too many fields
// and, if pure is set, a goroutine or a use of the clock.
func CheckSource(file string, pure bool) ([]string, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	var violations []string
	report := func(at token.Pos, text string, args ...any) {
		where := files.Position(at)
		violations = append(violations, fmt.Sprintf("%s:%d: %s", filepath.Base(where.Filename), where.Line, fmt.Sprintf(text, args...)))
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.TypeSpec:
			if fields := fieldCount(n); fields > maxStructFields && !strings.HasSuffix(n.Name.Name, "Config") {
				report(n.Pos(), "%s has %d fields: at most %d, a Config aside", n.Name.Name, fields, maxStructFields)
			}
		case *ast.GoStmt:
			if pure {
				report(n.Pos(), "a goroutine in a pure package")
			}
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok && pure && slices.Contains(effectCalls[from.Name], n.Sel.Name) {
				report(n.Pos(), "%s.%s in a pure package: take the time as an argument", from.Name, n.Sel.Name)
			}
		}
		return true
	})
	return violations, nil
}

func fieldCount(spec *ast.TypeSpec) int {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return 0
	}
	return structure.Fields.NumFields()
}

// IsPure reports whether the package in dir belongs to a pure layer.
func IsPure(layout []Package, dir string) bool {
	entry, found := entryFor(layout, dir)
	return found && slices.Contains(pureLayers, entry.Layer)
}
