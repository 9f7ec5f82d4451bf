package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// document is a Markdown file and the page that it becomes. Paths use slashes and are relative to the roots.
type document struct {
	path   string // docs/alerts.md
	page   string // alerts.html
	title  string
	label  string // in the navigation
	source []byte
	tree   ast.Node
	ids    map[string]bool // anchors
}

// group is a part of the navigation.
type group struct {
	title     string
	documents []*document
}

// order is the navigation. What docs has beyond it comes last; what it does not have is left out.
var order = []struct {
	title string
	paths []string
}{
	{"Start", []string{"README.md", "docs/tutorial.md", "docs/install.md", "docs/static-pods.md", "docs/faq.md"}},
	{"Use", []string{
		"docs/kubectl.md", "docs/page.md", "docs/explain.md", "docs/history.md", "docs/queries.md", "docs/alerts.md", "docs/actions.md",
		"docs/metrics.md", "docs/stats.md", "deploy/README.md", "docs/commands.md",
	}},
	{"Operate", []string{
		"docs/config.md", "docs/security.md", "docs/server.md", "docs/handover.md", "docs/runtimes.md", "docs/process.md", "docs/cgroups.md",
	}},
	{"Build on it", []string{"docs/library.md", "docs/architecture.md", "docs/kubelet-map.md", "CONTRIBUTING.md"}},
	{"Compare", []string{
		"docs/differences.md", "docs/conformance.md", "docs/benchmarks.md", "docs/benchmarks-tokens.md", "docs/pod-fields.md", "SCOPE.md",
	}},
	{"Rules", []string{"docs/behaviour.md", "docs/node-rules.md", "docs/rules.md", "docs/systemd-and-vm.md", "CHANGELOG.md"}},
}

const decisions = "docs/adr/"

// labels are shorter than the titles of the pages.
var labels = map[string]string{
	"README.md": "Herald", "deploy/README.md": "Dashboards and alerts", "docs/behaviour.md": "Behaviour of the kubelet",
	"docs/handover.md": "From the kubelet and back",
}

// Site is the documents of the repository. It is not safe for concurrent use.
type Site struct {
	root   string
	groups []group
	byPath map[string]*document
}

// Read reads README.md, the other documents beside it, and docs.
func Read(root string) (*Site, error) {
	s := &Site{root: root, byPath: map[string]*document{}}
	paths, err := markdownFiles(root)
	if err != nil {
		return nil, err
	}
	for _, part := range order {
		existing := slices.DeleteFunc(slices.Clone(part.paths), func(path string) bool { return !slices.Contains(paths, path) })
		if err := s.add(part.title, existing); err != nil {
			return nil, err
		}
	}
	var others, records []string
	for _, name := range paths {
		switch {
		case s.byPath[name] != nil:
		case strings.HasPrefix(name, decisions):
			records = append(records, name)
		default:
			others = append(others, name)
		}
	}
	if err := s.add("More", others); err != nil {
		return nil, err
	}
	return s, s.add("Decisions", records)
}

// markdownFiles returns the files that become pages, sorted.
func markdownFiles(root string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, err
	}
	names = append(names, filepath.Join(root, "deploy", "README.md"))
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	for i := range names {
		name, err := filepath.Rel(root, names[i])
		if err != nil {
			return nil, err
		}
		names[i] = filepath.ToSlash(name)
	}
	slices.Sort(names)
	return names, err
}

func (s *Site) add(title string, paths []string) error {
	part := group{title: title}
	for _, name := range paths {
		source, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(name))) //nolint:gosec // the developer's own
		if err != nil {
			return err
		}
		d := &document{path: name, page: pageOf(name), source: source}
		d.tree, d.ids = parse(source)
		if d.title = titleOf(d.tree, source); d.title == "" {
			return fmt.Errorf("%s:1: the file has no title", name)
		}
		if d.label = labels[name]; d.label == "" {
			d.label = d.title
		}
		s.byPath[name] = d
		part.documents = append(part.documents, d)
	}
	if len(part.documents) > 0 {
		s.groups = append(s.groups, part)
	}
	return nil
}

// pageOf returns the page of a file: docs/adr/0001-x.md is adr/0001-x.html.
func pageOf(name string) string {
	if name == "README.md" {
		return "index.html"
	}
	name = strings.TrimPrefix(name, "docs/")
	if folder, isReadme := strings.CutSuffix(name, "/README.md"); isReadme {
		return folder + ".html"
	}
	return strings.ToLower(strings.TrimSuffix(name, ".md")) + ".html"
}

func titleOf(tree ast.Node, source []byte) string {
	for child := tree.FirstChild(); child != nil; child = child.NextSibling() {
		if heading, isHeading := child.(*ast.Heading); isHeading && heading.Level == 1 {
			return plainText(heading, source)
		}
	}
	return ""
}

// lineOf returns the line of an offset.
func lineOf(source []byte, offset int) int {
	return 1 + strings.Count(string(source[:min(offset, len(source))]), "\n")
}

// offsetOf returns where a node begins: at its first text, or where the block that it is in does.
func offsetOf(node ast.Node) int {
	found := -1
	_ = ast.Walk(node, func(child ast.Node, entering bool) (ast.WalkStatus, error) {
		if literal, isText := child.(*ast.Text); isText && entering {
			found = literal.Segment.Start
			return ast.WalkStop, nil
		}
		return ast.WalkContinue, nil
	})
	for ; found < 0 && node != nil; node = node.Parent() {
		if node.Type() == ast.TypeBlock && node.Lines() != nil && node.Lines().Len() > 0 {
			found = node.Lines().At(0).Start
		}
	}
	return max(found, 0)
}

func segmentsOf(lines *text.Segments, source []byte) string {
	var all strings.Builder
	for i := range lines.Len() {
		segment := lines.At(i)
		all.Write(segment.Value(source))
	}
	return all.String()
}
