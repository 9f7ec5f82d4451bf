package pages

import (
	"bytes"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxShown bounds the files that are shown as a page.
const maxShown = 1 << 20

var imageTypes = []string{".png", ".svg", ".jpg", ".gif"}

func isImage(name string) bool { return slices.Contains(imageTypes, path.Ext(name)) }

// filePage returns the page that shows a file or folder which is linked to.
func filePage(name string) string {
	if isImage(name) {
		return imagePage(name)
	}
	return "files/" + name + ".html"
}

// imagePage returns where an image is copied to.
func imagePage(name string) string {
	return "images/" + strings.ReplaceAll(strings.TrimPrefix(name, "docs/"), "/", "-")
}

// shownFile is a file on a page.
type shownFile struct{ Name, Text string }

var fileTemplate = template.Must(template.New("file").Parse(`<h1>{{.Title}}</h1>
{{range .Files}}<h2>{{.Name}}</h2>
<pre tabindex="0"><code>{{.Text}}</code></pre>
{{else}}<p>The files of this folder are in the repository.</p>
{{end}}`))

// fileContent returns an image as it is, and of another file or folder the content of its page.
func fileContent(root, name string) (raw []byte, page template.HTML, err error) {
	content, err := readShown(root, name)
	if err != nil || isImage(name) {
		return content.raw, "", err
	}
	var rendered bytes.Buffer
	err = fileTemplate.Execute(&rendered, map[string]any{"Title": name, "Files": content.files})
	return nil, template.HTML(rendered.String()), err //nolint:gosec // the template escapes
}

type shown struct {
	raw   []byte
	files []shownFile
}

func readShown(root, name string) (content shown, err error) {
	folder := os.DirFS(root)
	info, err := fs.Stat(folder, name)
	if err != nil {
		return content, err
	}
	names := []string{name}
	if info.IsDir() {
		if names, err = fs.Glob(folder, name+"/*"); err != nil {
			return content, err
		}
	}
	for _, file := range names {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file))) //nolint:gosec // the developer's own
		switch {
		case err != nil && info.IsDir(): // a folder in it
		case err != nil:
			return content, err
		case isImage(file):
			content.raw = data
		case len(data) <= maxShown && utf8.Valid(data):
			content.files = append(content.files, shownFile{file, string(data)})
		}
	}
	return content, nil
}
