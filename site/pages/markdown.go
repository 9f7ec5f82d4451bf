package pages

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown has the dialect of the documents: tables, strike-through, and addresses as links. Raw HTML is left out.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify, extension.TaskList),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(&blocks{html.NewConfig()}, 100))),
)

// parse returns the tree and the anchors of its headings.
func parse(source []byte) (ast.Node, map[string]bool) {
	ids := &anchors{seen: map[string]bool{}}
	return markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(ids)))), ids.seen
}

// anchors names headings as GitHub does, so that a link works in both places.
type anchors struct{ seen map[string]bool }

// Generate implements parser.IDs.
func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	slug := slugOf(string(value))
	id := slug
	for n := 1; a.seen[id]; n++ {
		id = fmt.Sprintf("%s-%d", slug, n)
	}
	a.seen[id] = true
	return []byte(id)
}

// Put implements parser.IDs.
func (a *anchors) Put(value []byte) { a.seen[string(value)] = true }

// slugOf returns the anchor of a heading: lower case, without punctuation, with hyphens for spaces.
func slugOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		default:
			return -1
		}
	}, strings.TrimSpace(heading))
}

// blocks renders what can be wider than a screen so that it scrolls, with a keyboard too.
type blocks struct{ html.Config }

// RegisterFuncs implements renderer.NodeRenderer.
func (b *blocks) RegisterFuncs(register renderer.NodeRendererFuncRegisterer) {
	register.Register(ast.KindFencedCodeBlock, b.renderCode)
	register.Register(ast.KindCodeBlock, b.renderCode)
	register.Register(extast.KindTable, b.renderTable)
	register.Register(ast.KindHeading, b.renderHeading)
}

func (b *blocks) renderCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<pre tabindex=\"0\"><code>")
		_, _ = w.Write(util.EscapeHTML([]byte(segmentsOf(node.Lines(), source))))
		_, _ = w.WriteString("</code></pre>\n")
	}
	return ast.WalkSkipChildren, nil
}

func (b *blocks) renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<div class=\"scroll\" tabindex=\"0\">\n<table>\n")
	} else {
		_, _ = w.WriteString("</table>\n</div>\n")
	}
	return ast.WalkContinue, nil
}

// renderHeading adds a link to the heading itself.
func (b *blocks) renderHeading(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	heading := node.(*ast.Heading)
	id := headingID(heading)
	switch {
	case heading.Level == 1 && entering:
		_, _ = fmt.Fprintf(w, "<h1 id=%q>", id)
	case heading.Level == 1:
		_, _ = w.WriteString("</h1>\n")
	case entering:
		_, _ = fmt.Fprintf(w, "<h%d id=%q><a class=\"anchor\" href=\"#%s\">", heading.Level, id, id)
	default:
		_, _ = fmt.Fprintf(w, "</a></h%d>\n", heading.Level)
	}
	return ast.WalkContinue, nil
}

func headingID(heading *ast.Heading) string {
	if id, found := heading.AttributeString("id"); found {
		if text, isText := id.([]byte); isText {
			return string(text)
		}
	}
	return ""
}

// plainText returns what a reader sees of a node.
func plainText(node ast.Node, source []byte) string {
	var all strings.Builder
	_ = ast.Walk(node, func(child ast.Node, entering bool) (ast.WalkStatus, error) {
		switch child := child.(type) {
		case *ast.Text:
			if entering {
				all.Write(child.Segment.Value(source))
				if child.SoftLineBreak() || child.HardLineBreak() {
					all.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				all.Write(child.Value)
			}
		case *ast.AutoLink:
			if entering {
				all.Write(child.Label(source))
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if entering {
				all.WriteString(segmentsOf(child.Lines(), source))
			}
		default:
			if !entering && (child.Type() == ast.TypeBlock) {
				all.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8([]byte(all.String()), nil))), " ")
}
