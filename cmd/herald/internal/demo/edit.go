package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit is a change of one line of a manifest, as a user could make it.
type edit struct{ file, before, after string }

var (
	goodEdit   = edit{file: "cart.yaml", before: "value: db.example}", after: "value: " + goodDatabase + "}"}
	brokenEdit = edit{file: "web.yaml", before: "    readinessProbe:", after: "    readinessprobe:"}
)

// undo returns the edit that restores the manifest.
func (e edit) undo() edit { return edit{file: e.file, before: e.after, after: e.before} }

// errEdited reports that a user has changed what an edit was to change.
var errEdited = errors.New("the manifest has another content")

// apply edits the file in a folder. Other changes that a user has made to it are kept.
func (e edit) apply(dir string) error {
	path := filepath.Join(manifestDir(dir), e.file)
	content, err := os.ReadFile(path)
	if err != nil {
		return errors.Join(errEdited, err)
	}
	if strings.Count(string(content), e.before) != 1 {
		return errEdited
	}
	// The agent must not read half of it.
	draft := filepath.Join(dir, e.file)
	if err := os.WriteFile(draft, []byte(strings.Replace(string(content), e.before, e.after, 1)), 0o600); err != nil {
		return fmt.Errorf("edit a manifest: %w", err)
	}
	return os.Rename(draft, path)
}

// difference returns the line that the edit has changed, before and after it. It returns nil if the file does not have it any more.
func (e edit) difference(dir string) []string {
	content, err := os.ReadFile(filepath.Join(manifestDir(dir), e.file))
	if err != nil {
		return nil
	}
	for text := range strings.Lines(string(content)) {
		if text = strings.TrimRight(text, "\n"); strings.Contains(text, e.after) {
			return []string{"- " + strings.Replace(text, e.after, e.before, 1), "+ " + text}
		}
	}
	return nil
}
