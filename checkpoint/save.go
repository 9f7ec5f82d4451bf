package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// A temporary file begins with a dot, as no checkpoint does. There is one for each name, so that failures do not pile up.
const tempPrefix, tempSuffix = ".", ".tmp"

// Save replaces the checkpoint by one with this payload, which is of the given version, 1 or more. When it fails, the
// checkpoint before is still there, and errors.Is finds what the disk said, such as syscall.ENOSPC (F17).
func (d *Dir) Save(name string, version int, payload []byte) error {
	if err := d.savable(name, version, payload); err != nil {
		return fmt.Errorf("save checkpoint %q: %w", name, err)
	}
	defer d.takeTurn()()
	if err := d.saveLocked(name, encode(name, version, payload), payload); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", d.pathOf(name), err)
	}
	return nil
}

func (d *Dir) savable(name string, version int, payload []byte) error {
	switch {
	case !isName(name):
		return ErrInvalidName
	case version < 1:
		return fmt.Errorf("version %d: %w", version, ErrInvalidVersion)
	case len(payload) > d.maxSize:
		return fmt.Errorf("its payload %w: %d bytes, at most %d are allowed", ErrTooLarge, len(payload), d.maxSize)
	}
	return nil
}

func (d *Dir) saveLocked(name string, line, payload []byte) error {
	if d.holdsLocked(name, line, payload) { // SM-87
		return d.syncLocked()
	}
	temp := tempPrefix + name + tempSuffix
	err := d.writeLocked(temp, line, payload)
	if err == nil {
		err = d.disk.Rename(temp, name)
	}
	if err != nil {
		_ = d.disk.Remove(temp) // the next Save or Open tries again
		return err
	}
	d.unsynced = true
	return d.syncLocked()
}

// holdsLocked reports whether the checkpoint has exactly this content. It asks the file and not a memory of it, so that a
// checkpoint that somebody deleted or damaged is written again.
func (d *Dir) holdsLocked(name string, line, payload []byte) bool {
	info, err := d.disk.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(line)+len(payload)) {
		return false
	}
	opened, err := d.disk.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer opened.Close()
	return readsAs(opened, line) && readsAs(opened, payload)
}

// readsAs reports whether the next bytes are these.
func readsAs(from io.Reader, want []byte) bool {
	buffer := make([]byte, min(len(want), 64<<10))
	for len(want) > 0 {
		next := buffer[:min(len(want), len(buffer))]
		if _, err := io.ReadFull(from, next); err != nil || !bytes.Equal(next, want[:len(next)]) {
			return false
		}
		want = want[len(next):]
	}
	return true
}

// writeLocked makes a new file with this content and sees it onto the disk.
func (d *Dir) writeLocked(name string, parts ...[]byte) error {
	_ = d.disk.Remove(name) // a leftover that could not be removed at the time; creating says whether it still is there
	created, err := d.disk.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := created.Write(part); err != nil {
			return errors.Join(err, created.Close())
		}
	}
	return errors.Join(created.Sync(), created.Close())
}

func (d *Dir) removeLocked(name string) error {
	err := d.disk.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.unsynced = d.unsynced || err == nil
	return d.syncLocked()
}

// syncLocked syncs the folder if there is anything to sync, also what an earlier call failed to.
func (d *Dir) syncLocked() error {
	if !d.unsynced {
		return nil
	}
	if err := syncFolder(d.disk); err != nil {
		return fmt.Errorf("sync the folder: %w", err)
	}
	d.unsynced = false
	return nil
}

// removeLeftovers deletes the temporary files of a process that was killed. One that cannot be deleted does no harm: the
// next Save of its name tries again.
func (d *Dir) removeLeftovers() {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return
	}
	for _, entry := range entries {
		if isTemp(entry.Name()) {
			_ = d.disk.Remove(entry.Name())
		}
	}
}

func isTemp(name string) bool {
	name, hasPrefix := strings.CutPrefix(name, tempPrefix)
	name, hasSuffix := strings.CutSuffix(name, tempSuffix)
	return hasPrefix && hasSuffix && isName(name)
}
