package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Cited returns the tests below root by the rules that they cite: in the name of a test (TestSM58_...), in its text (SM-58),
// or in a transcript under testdata/scenarios. A citation in a declaration that several tests share counts for that
// declaration.
func Cited(root string) (map[string][]string, error) {
	cited := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || isInternal(root, file)) {
			return fs.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		switch folder = filepath.ToSlash(folder); {
		case strings.HasSuffix(file, "_test.go"):
			return addTestFile(cited, file, folder)
		case path.Base(folder) == "scenarios":
			return addTranscript(cited, file, folder)
		default:
			return nil
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the tests of %s: %w", root, err)
	}
	return cited, nil
}

// isInternal reports whether the folder is internal/. Its tests check the repository and helpers, not the behaviour of pods.
func isInternal(root, folder string) bool { return folder == filepath.Join(root, "internal") }

func addTestFile(cited map[string][]string, file, folder string) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, source, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, declaration := range parsed.Decls {
		name, doc := declarationName(declaration)
		from := declaration.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		text := string(source[positions.Position(from).Offset:positions.Position(declaration.End()).Offset])
		for _, id := range findIDs(name, text) {
			cited[id] = append(cited[id], path.Join(folder, name))
		}
	}
	return nil
}

// addTranscript treats a transcript as one test.
func addTranscript(cited map[string][]string, file, folder string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, id := range findIDs("", string(text)) {
		cited[id] = append(cited[id], path.Join(folder, filepath.Base(file)))
	}
	return nil
}

// declarationName returns the name of a declaration, or of its first part, and its doc comment.
func declarationName(declaration ast.Decl) (name string, doc *ast.CommentGroup) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		return d.Name.Name, d.Doc
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				return s.Name.Name, d.Doc
			case *ast.ValueSpec:
				return s.Names[0].Name, d.Doc
			}
		}
		return "", d.Doc
	}
	return "", nil
}

func findIDs(name, text string) []string {
	var ids []string
	for _, match := range idInName.FindAllStringSubmatch(name, -1) {
		ids = append(ids, match[1]+"-"+match[2])
	}
	for _, match := range idInText.FindAllStringSubmatch(text, -1) {
		ids = append(ids, match[1]+"-"+match[2])
	}
	return ids
}
