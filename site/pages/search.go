package pages

import (
	"encoding/json"

	"github.com/yuin/goldmark/ast"
)

// section is what a search finds: a heading with the text below it.
type section struct {
	Page    string `json:"p"`
	Title   string `json:"t"` // of the page
	Anchor  string `json:"a,omitempty"`
	Heading string `json:"h,omitempty"`
	Text    string `json:"x"`
}

// sections splits a document at its headings.
func sections(d *document) []section {
	all := []section{{Page: d.page, Title: d.label}}
	for child := d.tree.FirstChild(); child != nil; child = child.NextSibling() {
		heading, isHeading := child.(*ast.Heading)
		switch {
		case isHeading && heading.Level == 1:
		case isHeading:
			all = append(all, section{Page: d.page, Title: d.label, Anchor: headingID(heading), Heading: plainText(heading, d.source)})
		case child.Kind() != ast.KindHTMLBlock:
			last := &all[len(all)-1]
			last.Text += plainText(child, d.source) + " "
		}
	}
	return all
}

// searchIndex returns a script with all sections. It is a script because a page that is opened from a file can not read other files.
func (s *Site) searchIndex() ([]byte, error) {
	var all []section
	for _, part := range s.groups {
		for _, d := range part.documents {
			all = append(all, sections(d)...)
		}
	}
	encoded, err := json.Marshal(all)
	return append(append([]byte("window.heraldIndex = "), encoded...), ";\n"...), err
}
