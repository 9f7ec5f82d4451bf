package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// shellFiles are the page's own files. The browser loads nothing else.
//
//go:embed shell
var shellFiles embed.FS

const indexFile = "index.html"

// shellFile is a file as it is sent.
type shellFile struct {
	contentType  string
	raw, zipped  []byte
	cacheControl string
}

// addShell serves the shell. The index names the other files by a hash of all of them, so that browsers may keep them for ever.
func addShell(mux *http.ServeMux) {
	files, hash := readShell()
	for name, content := range files {
		file := shellFile{contentType: mime.TypeByExtension(path.Ext(name)), raw: content, cacheControl: "public, max-age=31536000, immutable"}
		pattern := "GET /" + hash + "/" + name
		if name == indexFile {
			pattern, file.cacheControl = "GET /{$}", "no-store"
			file.raw = bytes.ReplaceAll(content, []byte("HASH"), []byte(hash))
		}
		file.zipped = compress(file.raw)
		mux.Handle(pattern, &file)
	}
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
}

func readShell() (files map[string][]byte, hash string) {
	files = map[string][]byte{}
	digest := sha256.New()
	_ = fs.WalkDir(shellFiles, "shell", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := shellFiles.ReadFile(name)
		files[path.Base(name)] = content
		_, _ = digest.Write(content)
		return err
	}) // an embedded file system does not fail
	return files, hex.EncodeToString(digest.Sum(nil)[:8])
}

func compress(content []byte) []byte {
	var buffer bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&buffer, gzip.BestCompression) // the level is valid
	_, _ = writer.Write(content)
	_ = writer.Close()
	return buffer.Bytes()
}

// ServeHTTP implements http.Handler.
func (f *shellFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Cache-Control", f.cacheControl)
	w.Header().Set("Vary", "Accept-Encoding")
	content := f.raw
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		content = f.zipped
	}
	_, _ = w.Write(content)
}
