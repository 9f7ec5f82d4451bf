package pages

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// target is where a link of a document leads.
type target struct {
	href string // relative to the page
	file string // a file or folder of the repository that is not a document; "" if the link leads elsewhere
}

// resolve returns the target of a link as it is written in a document, or why there is none.
func (s *Site) resolve(d *document, link string) (found target, reason string) {
	parsed, err := url.Parse(link)
	if err != nil {
		return target{}, err.Error()
	}
	if parsed.Scheme != "" || parsed.Host != "" {
		if parsed.Scheme != "http" && parsed.Scheme != "https" && parsed.Scheme != "mailto" {
			return target{}, "the scheme is not http, https or mailto"
		}
		return target{href: link}, ""
	}
	if parsed.Path == "" {
		if !d.ids[parsed.Fragment] {
			return target{}, "there is no such heading in this file"
		}
		return target{href: link}, ""
	}
	name := path.Join(path.Dir(d.path), parsed.Path)
	if strings.HasPrefix(parsed.Path, "/") || strings.HasPrefix(name, "..") {
		return target{}, "the path leaves the repository"
	}
	if name+"/" == decisions {
		return s.firstDecision(d)
	}
	if other := s.byPath[name]; other != nil {
		if parsed.Fragment != "" && !other.ids[parsed.Fragment] {
			return target{}, "there is no such heading in " + other.path
		}
		parsed.Path = relative(d.page, other.page)
		return target{href: parsed.String()}, ""
	}
	if _, err := fs.Stat(os.DirFS(s.root), name); err != nil {
		return target{}, "there is no such file"
	}
	if parsed.Fragment != "" {
		return target{}, "only headings of documents can be linked to"
	}
	return target{href: relative(d.page, filePage(name)), file: name}, ""
}

// firstDecision is what a link to the folder of decisions leads to; the navigation lists the others.
func (s *Site) firstDecision(d *document) (target, string) {
	for _, part := range s.groups {
		if first := part.documents[0]; strings.HasPrefix(first.path, decisions) {
			return target{href: relative(d.page, first.page)}, ""
		}
	}
	return target{}, "there are no decisions"
}

// rewriteLinks lets the links of a document lead to pages. It returns the files that they need.
func (s *Site) rewriteLinks(d *document) (files []string, problems []error) {
	_ = ast.Walk(d.tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		var destination *[]byte
		switch node := node.(type) {
		case *ast.Link:
			destination = &node.Destination
		case *ast.Image:
			destination = &node.Destination
		}
		if destination == nil || !entering {
			return ast.WalkContinue, nil
		}
		found, reason := s.resolve(d, string(*destination))
		if _, isImage := node.(*ast.Image); isImage && reason == "" {
			if found.file == "" {
				reason = "an image must be a file of the repository"
			}
			found.href = relative(d.page, imagePage(found.file))
		}
		if reason != "" {
			problems = append(problems, fmt.Errorf("%s:%d: link %q: %s", d.path, lineOf(d.source, offsetOf(node)), *destination, reason))
			return ast.WalkContinue, nil
		}
		if found.file != "" {
			files = append(files, found.file)
		}
		*destination = []byte(found.href)
		return ast.WalkContinue, nil
	})
	return files, problems
}

// relative returns how a page links to another.
func relative(from, to string) string {
	name, err := filepath.Rel(path.Dir(from), to)
	if err != nil { // both are relative
		return to
	}
	return filepath.ToSlash(name)
}
