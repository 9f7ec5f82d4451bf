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

// Named finds which rules the tests below a folder name: in the name of a test (TestSM58...), in its text (SM-58), or in a
// story under testdata/scenarios. A rule that is named in a part that several tests share counts for that part.
func Named(root string) (map[string][]string, error) {
	named := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || isWorkshop(root, file)) {
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
			return namedIn(named, file, folder)
		case path.Base(folder) == "scenarios":
			return namedInStory(named, file, folder)
		default:
			return nil
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the tests of %s: %w", root, err)
	}
	return named, nil
}

// isWorkshop tells the checks of the repository itself: they prove nothing about pods.
func isWorkshop(root, folder string) bool { return folder == filepath.Join(root, "internal") }

func namedIn(named map[string][]string, file, folder string) error {
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
		part, doc := partOf(declaration)
		from := declaration.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		text := string(source[positions.Position(from).Offset:positions.Position(declaration.End()).Offset])
		for _, id := range idsIn(part, text) {
			named[id] = append(named[id], path.Join(folder, part))
		}
	}
	return nil
}

// namedInStory takes a transcript for the test that it is.
func namedInStory(named map[string][]string, file, folder string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, id := range idsIn("", string(text)) {
		named[id] = append(named[id], path.Join(folder, filepath.Base(file)))
	}
	return nil
}

// partOf names a declaration as a reader looks for it.
func partOf(declaration ast.Decl) (name string, doc *ast.CommentGroup) {
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

func idsIn(name, text string) []string {
	var ids []string
	for _, found := range inAName.FindAllStringSubmatch(name, -1) {
		ids = append(ids, found[1]+"-"+found[2])
	}
	for _, found := range written.FindAllStringSubmatch(text, -1) {
		ids = append(ids, found[1]+"-"+found[2])
	}
	return ids
}
