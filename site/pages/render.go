package pages

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"os"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark/ast"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/layout.html"))

const indexScript = "search-index.js"

// pageData is what the layout shows.
type pageData struct {
	Title, Root string
	Body        template.HTML
	Groups      []navGroup
	Contents    []entry
	Previous    *entry
	Next        *entry
}

type navGroup struct {
	Title   string
	IsOpen  bool
	Entries []entry
}

type entry struct {
	Label, Href string
	IsCurrent   bool
	IsSub       bool
}

// Render returns all files of the site by their names. Its error has a line for each link that leads nowhere. A site can be rendered once:
// the links of its documents are replaced.
func (s *Site) Render() (map[string][]byte, error) {
	outputs := map[string][]byte{}
	var problems []error
	files := map[string]bool{}
	index, err := s.searchIndex()
	problems = append(problems, err)
	outputs[indexScript] = index
	for _, name := range []string{"site.css", "site.js", "icon.svg"} {
		content, err := assets.ReadFile("assets/" + name)
		problems = append(problems, err)
		outputs[name] = content
	}
	all := s.documents()
	for i, d := range all {
		contents := contentsOf(d)
		needed, broken := s.rewriteLinks(d)
		problems = append(problems, broken...)
		for _, file := range needed {
			files[file] = true
		}
		var body bytes.Buffer
		problems = append(problems, markdown.Renderer().Render(&body, d.source, d.tree))
		html := strings.ReplaceAll(body.String(), "<th></th>", "<td></td>") // a head without a text is none
		data := s.pageData(d.page, d.title, template.HTML(html))            //nolint:gosec // goldmark escapes
		data.Contents = contents
		if i > 0 {
			data.Previous = &entry{Label: all[i-1].label, Href: relative(d.page, all[i-1].page)}
		}
		if i < len(all)-1 {
			data.Next = &entry{Label: all[i+1].label, Href: relative(d.page, all[i+1].page)}
		}
		problems = append(problems, put(outputs, d.page, data))
	}
	problems = append(problems, s.renderFiles(outputs, files))
	return outputs, errors.Join(problems...)
}

func (s *Site) renderFiles(outputs map[string][]byte, files map[string]bool) error {
	var problems []error
	for name := range files {
		raw, body, err := fileContent(s.root, name)
		switch {
		case err != nil:
			problems = append(problems, err)
		case raw != nil:
			outputs[imagePage(name)] = raw
		default:
			problems = append(problems, put(outputs, filePage(name), s.pageData(filePage(name), name, body)))
		}
	}
	return errors.Join(problems...)
}

func (s *Site) documents() (all []*document) {
	for _, part := range s.groups {
		all = append(all, part.documents...)
	}
	return all
}

func put(outputs map[string][]byte, page string, data pageData) error {
	var buffer bytes.Buffer
	err := layout.Execute(&buffer, data)
	outputs[page] = buffer.Bytes()
	return err
}

func (s *Site) pageData(page, title string, body template.HTML) pageData {
	data := pageData{Title: title, Root: strings.Repeat("../", strings.Count(page, "/")), Body: body}
	for _, part := range s.groups {
		nav := navGroup{Title: part.title, IsOpen: part.title != "Decisions"}
		for _, d := range part.documents {
			nav.Entries = append(nav.Entries, entry{Label: d.label, Href: relative(page, d.page), IsCurrent: d.page == page})
			nav.IsOpen = nav.IsOpen || d.page == page
		}
		data.Groups = append(data.Groups, nav)
	}
	return data
}

// maxContents bounds a table of contents; longer ones have the upper headings only.
const maxContents = 60

// contentsOf returns the table of contents of a page.
func contentsOf(d *document) (entries []entry) {
	var upper []entry
	for child := d.tree.FirstChild(); child != nil; child = child.NextSibling() {
		heading, isHeading := child.(*ast.Heading)
		if !isHeading || heading.Level < 2 || heading.Level > 3 {
			continue
		}
		one := entry{Label: plainText(heading, d.source), Href: "#" + headingID(heading), IsSub: heading.Level == 3}
		entries = append(entries, one)
		if heading.Level == 2 {
			upper = append(upper, one)
		}
	}
	if len(entries) > maxContents {
		entries = upper
	}
	if len(entries) < 2 {
		return nil
	}
	return entries
}

// Write replaces the folder by the files.
func Write(out string, outputs map[string][]byte) error {
	problems := []error{os.RemoveAll(out)}
	for name, content := range outputs {
		file := filepath.Join(out, filepath.FromSlash(name))
		problems = append(problems, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)) //nolint:gosec // for web servers
	}
	return errors.Join(problems...)
}
