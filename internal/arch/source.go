package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

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
