package pages_test

import (
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heraldnode/herald/site/pages"
)

const root = "../.."

func render(t *testing.T, root string) (map[string][]byte, error) {
	t.Helper()
	site, err := pages.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return site.Render()
}

// Every link and anchor of README.md and docs leads somewhere.
func TestLinks(t *testing.T) {
	if _, err := render(t, root); err != nil {
		t.Error(err)
	}
}

func TestLinks_Broken(t *testing.T) {
	files := map[string]string{
		"README.md": "# A\n\n[gone](docs/gone.md)\n\nSee\n[`b`](docs/b.md#nowhere) and [b](docs/b.md#a-b--c).\n\n[here](#none) ![x](https://example.test/x.png)\n",
		"docs/b.md": "# B\n\n## A `b` & C\n\n| [out](../../x) |\n| --- |\n| [file](../go.mod) [folder](../docs) [js](javascript:x) |\n\n```\n[code](gone.md)\n```\n",
		"go.mod":    "module x", "deploy/README.md": "# Deploy",
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := render(t, dir)
	want := `README.md:3: link "docs/gone.md": there is no such file
README.md:6: link "docs/b.md#nowhere": there is no such heading in docs/b.md
README.md:8: link "#none": there is no such heading in this file
README.md:8: link "https://example.test/x.png": an image must be a file of the repository
docs/b.md:5: link "../../x": the path leaves the repository
docs/b.md:7: link "javascript:x": the scheme is not http, https or mailto`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

var (
	links = regexp.MustCompile(`<(a|img|link|script)\b[^>]*?\b(?:href|src)="([^"]*)"`)
	ids   = regexp.MustCompile(`\bid="([^"]*)"`)
)

// What the pages link to exists, relative to them: they work from a file and below any path. Nothing is loaded from elsewhere.
func TestPages(t *testing.T) {
	outputs, err := render(t, root)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]map[string]bool{}
	for name, content := range outputs {
		anchors[name] = map[string]bool{}
		for _, match := range ids.FindAllStringSubmatch(string(content), -1) {
			if path.Ext(name) == ".html" && anchors[name][match[1]] {
				t.Errorf("%s: the ID %s is there twice", name, match[1])
			}
			anchors[name][html.UnescapeString(match[1])] = true
		}
	}
	for name, content := range outputs {
		if path.Ext(name) != ".html" {
			continue
		}
		for _, match := range links.FindAllStringSubmatch(string(content), -1) {
			checkLink(t, name, match[1], html.UnescapeString(match[2]), anchors)
		}
	}
}

func checkLink(t *testing.T, page, tag, link string, anchors map[string]map[string]bool) {
	t.Helper()
	if strings.Contains(link, ":") {
		if tag != "a" {
			t.Errorf("%s: loads %s", page, link)
		}
		return
	}
	file, anchor, hasAnchor := strings.Cut(link, "#")
	name := page
	if file != "" {
		name = path.Join(path.Dir(page), file)
	}
	if anchors[name] == nil || hasAnchor && !anchors[name][anchor] {
		t.Errorf("%s: %s leads nowhere", page, link)
	}
}

// Every document has a page, and the search finds its sections.
func TestPages_Complete(t *testing.T) {
	outputs, err := render(t, root)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatal(documents, err)
	}
	for _, document := range documents {
		page := strings.TrimSuffix(filepath.Base(document), ".md") + ".html"
		if outputs[page] == nil || !strings.Contains(string(outputs["index.html"]), `<a href="`+page+`">`) {
			t.Errorf("%s has no page, or none that the navigation leads to", document)
		}
		if !strings.Contains(string(outputs["search-index.js"]), `"p":"`+page+`"`) {
			t.Errorf("the search does not know %s", page)
		}
	}
}
