package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// keptSuffixes are where files that were set aside go. When all are taken, the last is replaced: the first stay because
// they are nearest to the cause.
var keptSuffixes = [...]string{".corrupt", ".corrupt-2", ".corrupt-3", ".corrupt-4"}

// Load reads a checkpoint. The error is fs.ErrNotExist when there is none, and a *InvalidFileError when there is a file that
// Save cannot have written, which then has been set aside (F18). Other errors are the disk's, and the file stays.
func (d *Dir) Load(name string) (payload []byte, version int, err error) {
	if !isName(name) {
		return nil, 0, fmt.Errorf("load checkpoint %q: %w", name, ErrInvalidName)
	}
	defer d.takeTurn()()
	data, err := d.readLocked(name)
	if err == nil {
		payload, version, err = decode(name, data)
	}
	if len(payload) > d.maxSize {
		err = fmt.Errorf("%w: its payload has %d bytes, at most %d are allowed", ErrTooLarge, len(payload), d.maxSize)
	}
	if isAboutContent(err) {
		return nil, 0, d.setAsideLocked(name, err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("load checkpoint %s: %w", d.pathOf(name), err)
	}
	return payload, version, nil
}

// Quarantine is for a payload that Load returned and that is of no use to the caller: it renames the checkpoint, unless
// another was saved in its place since, and returns a *InvalidFileError with the reason, which should wrap ErrVersion or
// ErrCorrupt.
func (d *Dir) Quarantine(name string, version int, payload []byte, reason error) error {
	if err := d.savable(name, version, payload); err != nil {
		return fmt.Errorf("set aside checkpoint %q: %w", name, err)
	}
	defer d.takeTurn()()
	if !d.holdsLocked(name, encode(name, version, payload), payload) {
		return &InvalidFileError{Path: d.pathOf(name), Reason: reason, MoveErr: errNotTheSame}
	}
	return d.setAsideLocked(name, reason)
}

var errNotTheSame = errors.New("it was replaced, or cannot be read any more")

func (d *Dir) setAsideLocked(name string, reason error) error {
	bad := &InvalidFileError{Path: d.pathOf(name), Reason: reason}
	kept := name + d.freeSuffixLocked(name)
	if bad.MoveErr = d.disk.Rename(name, kept); bad.MoveErr == nil {
		bad.MovedTo = d.pathOf(kept)
		d.unsynced = true
	}
	return bad
}

func (d *Dir) freeSuffixLocked(name string) string {
	for _, suffix := range keptSuffixes {
		if _, err := d.disk.Lstat(name + suffix); errors.Is(err, fs.ErrNotExist) {
			return suffix
		}
	}
	return keptSuffixes[len(keptSuffixes)-1]
}

// readLocked is the whole file, if it is one and not larger than the largest payload with the longest first line.
func (d *Dir) readLocked(name string) ([]byte, error) {
	info, err := d.disk.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file but %v", ErrForeign, info.Mode())
	}
	limit := int64(maxHeader + d.maxSize)
	if info.Size() > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, info.Size(), limit)
	}
	opened, err := d.disk.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(opened, limit)); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

func isAboutContent(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrForeign) || errors.Is(err, ErrVersion) || errors.Is(err, ErrTooLarge)
}
