// Package docblocks finds the code blocks of the documents, the commands in them, and the commands that their sentences name, so that
// tests can check them.
package docblocks

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Block is a fenced code block.
type Block struct {
	// File is relative to the root of the repository.
	File string
	// Line is the number of the first line of the text.
	Line int
	// Language is the first word after the fence, Words are the others.
	Language string
	Words    []string
	// Text is the content, without the indentation of the fence.
	Text string
}

// Position returns the file and line of a line of the block; 0 is the first.
func (b *Block) Position(line int) string { return fmt.Sprintf("%s:%d", b.File, b.Line+line) }

// Document is a Markdown file.
type Document struct {
	File   string
	Blocks []Block
	// prose has the lines outside of blocks; the others are empty.
	prose []string
}

// Read returns README.md, the documents beside it, and those of docs and deploy.
func Read(root string) ([]Document, error) {
	names, err := filepath.Glob(filepath.Join(root, "*.md"))
	for _, folder := range []string{"docs", "deploy"} {
		walkErr := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && filepath.Ext(name) == ".md" {
				names = append(names, name)
			}
			return err
		})
		if walkErr != nil {
			return nil, walkErr
		}
	}
	slices.Sort(names)
	var documents []Document
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		documents = append(documents, Parse(filepath.ToSlash(relative), string(data)))
	}
	return documents, err
}

var fence = regexp.MustCompile("^( *)(```+)(.*)$")

// Parse finds the blocks of a document. A block without an end reaches to the end of the document.
func Parse(file, text string) Document {
	document := Document{File: file}
	var open *Block
	var indent, closing string
	for i, line := range strings.Split(text, "\n") {
		match := fence.FindStringSubmatch(line)
		outside := ""
		switch {
		case open == nil && match != nil:
			words := append(strings.Fields(match[3]), "")
			open = &Block{File: file, Line: i + 2, Language: words[0], Words: words[1:]}
			indent, closing = match[1], match[2]
		case open == nil:
			outside = line
		case match != nil && match[2] == closing && strings.TrimSpace(match[3]) == "":
			document.Blocks = append(document.Blocks, *open)
			open = nil
		default:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		}
		document.prose = append(document.prose, outside)
	}
	if open != nil {
		document.Blocks = append(document.Blocks, *open)
	}
	return document
}
