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

// CheckSource reads one Go file and returns a sentence for each thing that imports alone do not show: a struct that has
// grown too large and, where pure is set, a goroutine or a look at the clock.
func CheckSource(file string, pure bool) ([]string, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	var breaches []string
	say := func(at token.Pos, text string, args ...any) {
		where := files.Position(at)
		breaches = append(breaches, fmt.Sprintf("%s:%d: %s", filepath.Base(where.Filename), where.Line, fmt.Sprintf(text, args...)))
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.TypeSpec:
			if fields := fieldCount(n); fields > maxStructFields && !strings.HasSuffix(n.Name.Name, "Config") {
				say(n.Pos(), "%s has %d fields: at most %d, a Config aside", n.Name.Name, fields, maxStructFields)
			}
		case *ast.GoStmt:
			if pure {
				say(n.Pos(), "a goroutine in a pure package")
			}
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok && pure && slices.Contains(actingCalls[from.Name], n.Sel.Name) {
				say(n.Pos(), "%s.%s in a pure package: take the time as an argument", from.Name, n.Sel.Name)
			}
		}
		return true
	})
	return breaches, nil
}

func fieldCount(spec *ast.TypeSpec) int {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return 0
	}
	return structure.Fields.NumFields()
}

// IsPure reports whether the package in that folder only decides.
func IsPure(rooms []Room, dir string) bool {
	room, found := roomOf(rooms, dir)
	return found && slices.Contains(pureLayers, room.Layer)
}
