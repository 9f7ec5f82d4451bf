package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Options configure a Dir.
type Options struct {
	// MaxSize is the maximum size of a payload in bytes, at most 1 GiB. Default: 64 MiB, enough for the statuses of about 15,000
	// pods.
	MaxSize int
}

const (
	defaultMaxSize = 64 << 20
	maxMaxSize     = 1 << 30
)

// A temporary file starts with a dot, which no checkpoint does. There is one per name, so that failures do not accumulate.
const tempPrefix, tempSuffix = ".", ".tmp"

// invalidSuffixes are the suffixes of quarantined files. When all are in use, the last file is replaced: the first ones are
// closest to the cause.
var invalidSuffixes = [...]string{".corrupt", ".corrupt-2", ".corrupt-3", ".corrupt-4"}

// Dir is a directory of checkpoints that this process has locked. It is safe for concurrent use; operations are serialized, so
// that Load sees the complete result of a Save.
type Dir struct {
	path    string
	maxSize int
	root    directory
	files   fileSystem // root, except in tests

	// sem has capacity 1 and is held during file operations: a channel instead of a mutex, because it is held across I/O. It
	// guards the files and unsynced; methods that need it end in Locked.
	sem      chan struct{}
	unsynced bool // a power failure may undo changes of the directory
}

// Open locks the directory for this process, creates it with mode 0700 if it does not exist, and removes temporary files of a
// crashed process. It returns a *LockedError if another process has locked the directory. A full or read-only directory can be
// opened: Load works, and Save returns the cause (F17).
func Open(path string, options Options) (*Dir, error) {
	return open(path, options, func(root directory) fileSystem { return root })
}

func open(path string, options Options, newFileSystem func(directory) fileSystem) (*Dir, error) {
	if options.MaxSize < 0 || options.MaxSize > maxMaxSize {
		return nil, fmt.Errorf("checkpoint.Options: MaxSize must be between 0 and %d, got %d", maxMaxSize, options.MaxSize)
	}
	root, err := openDirectory(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint directory %s: %w", path, err)
	}
	d := &Dir{
		path: path, maxSize: cmp.Or(options.MaxSize, defaultMaxSize), root: root, files: newFileSystem(root),
		sem: make(chan struct{}, 1),
		// The previous process may have crashed between a rename and the sync.
		unsynced: true,
	}
	d.removeTempFiles()
	return d, nil
}

// removeTempFiles deletes the temporary files of a crashed process. It ignores errors: the next Save of the name tries again.
func (d *Dir) removeTempFiles() {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return
	}
	for _, entry := range entries {
		if isTemp(entry.Name()) {
			_ = d.files.Remove(entry.Name())
		}
	}
}

// Close unlocks the directory after the current operation. Later calls return fs.ErrClosed.
func (d *Dir) Close() error {
	defer d.acquire()()
	if err := d.root.Close(); err != nil {
		return fmt.Errorf("close checkpoint directory %s: %w", d.path, err)
	}
	return nil
}

// List returns the names of the checkpoints in alphabetical order, without checking their content.
func (d *Dir) List() ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list checkpoint directory %s: %w", d.path, err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && isName(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Load reads a checkpoint. It returns fs.ErrNotExist if there is none. It quarantines a file that Save did not write and returns
// an *InvalidFileError (F18). Other errors are I/O errors and leave the file in place.
func (d *Dir) Load(name string) (payload []byte, version int, err error) {
	if !isName(name) {
		return nil, 0, fmt.Errorf("load checkpoint %q: %w", name, ErrInvalidName)
	}
	defer d.acquire()()
	data, err := d.readLocked(name)
	if err == nil {
		payload, version, err = decode(name, data)
	}
	if len(payload) > d.maxSize {
		err = fmt.Errorf("%w: payload has %d bytes, at most %d are allowed", ErrTooLarge, len(payload), d.maxSize)
	}
	if isInvalidContent(err) {
		return nil, 0, d.quarantineLocked(name, err)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("load checkpoint %s: %w", d.filePath(name), err)
	}
	return payload, version, nil
}

// readLocked reads the file if it is a regular file within the size limit.
func (d *Dir) readLocked(name string) ([]byte, error) {
	info, err := d.files.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file but %v", ErrForeign, info.Mode())
	}
	limit := int64(maxHeader + d.maxSize)
	if info.Size() > limit {
		return nil, fmt.Errorf("%w: file has %d bytes, at most %d are allowed", ErrTooLarge, info.Size(), limit)
	}
	file, err := d.files.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(file, limit)); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

var errReplaced = errors.New("file was replaced or is not readable any more")

// Quarantine renames a checkpoint whose payload Load returned but the caller cannot use, unless it was replaced since. It
// returns an *InvalidFileError with the reason, which should wrap ErrVersion or ErrCorrupt.
func (d *Dir) Quarantine(name string, version int, payload []byte, reason error) error {
	if err := d.checkSave(name, version, payload); err != nil {
		return fmt.Errorf("quarantine checkpoint %q: %w", name, err)
	}
	defer d.acquire()()
	if !d.containsLocked(name, encodeHeader(name, version, payload), payload) {
		return &InvalidFileError{Path: d.filePath(name), Reason: reason, MoveErr: errReplaced}
	}
	return d.quarantineLocked(name, reason)
}

func (d *Dir) quarantineLocked(name string, reason error) error {
	invalid := &InvalidFileError{Path: d.filePath(name), Reason: reason}
	target := name + d.freeSuffixLocked(name)
	if invalid.MoveErr = d.files.Rename(name, target); invalid.MoveErr == nil {
		invalid.MovedTo = d.filePath(target)
		d.unsynced = true
	}
	return invalid
}

func (d *Dir) freeSuffixLocked(name string) string {
	for _, suffix := range invalidSuffixes {
		if _, err := d.files.Lstat(name + suffix); errors.Is(err, fs.ErrNotExist) {
			return suffix
		}
	}
	return invalidSuffixes[len(invalidSuffixes)-1]
}

// Save replaces the checkpoint. The version of the payload must be at least 1. If Save fails, the previous checkpoint is
// unchanged and the error wraps the cause, for example syscall.ENOSPC (F17).
func (d *Dir) Save(name string, version int, payload []byte) error {
	if err := d.checkSave(name, version, payload); err != nil {
		return fmt.Errorf("save checkpoint %q: %w", name, err)
	}
	defer d.acquire()()
	if err := d.saveLocked(name, encodeHeader(name, version, payload), payload); err != nil {
		return fmt.Errorf("save checkpoint %s: %w", d.filePath(name), err)
	}
	return nil
}

func (d *Dir) checkSave(name string, version int, payload []byte) error {
	switch {
	case !isName(name):
		return ErrInvalidName
	case version < 1:
		return fmt.Errorf("version %d: %w", version, ErrInvalidVersion)
	case len(payload) > d.maxSize:
		return fmt.Errorf("payload %w: %d bytes, at most %d are allowed", ErrTooLarge, len(payload), d.maxSize)
	}
	return nil
}

func (d *Dir) saveLocked(name string, header, payload []byte) error {
	if d.containsLocked(name, header, payload) { // SM-87
		return d.syncLocked()
	}
	temp := tempPrefix + name + tempSuffix
	err := d.writeLocked(temp, header, payload)
	if err == nil {
		err = d.files.Rename(temp, name)
	}
	if err != nil {
		_ = d.files.Remove(temp) // the next Save or Open tries again
		return err
	}
	d.unsynced = true
	return d.syncLocked()
}

// containsLocked reports whether the file has exactly this content. It reads the file instead of caching the content, so that a
// deleted or damaged checkpoint is written again.
func (d *Dir) containsLocked(name string, header, payload []byte) bool {
	info, err := d.files.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(header)+len(payload)) {
		return false
	}
	file, err := d.files.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return readsEqual(file, header) && readsEqual(file, payload)
}

// readsEqual reports whether the next bytes of the reader are these.
func readsEqual(reader io.Reader, want []byte) bool {
	buffer := make([]byte, min(len(want), 64<<10))
	for len(want) > 0 {
		chunk := buffer[:min(len(want), len(buffer))]
		if _, err := io.ReadFull(reader, chunk); err != nil || !bytes.Equal(chunk, want[:len(chunk)]) {
			return false
		}
		want = want[len(chunk):]
	}
	return true
}

// writeLocked creates a file with this content and syncs it.
func (d *Dir) writeLocked(name string, parts ...[]byte) error {
	_ = d.files.Remove(name) // a leftover; if it remains, creating the file fails
	file, err := d.files.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := file.Write(part); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(file.Sync(), file.Close())
}

// Remove deletes a checkpoint. It returns nil if the checkpoint does not exist.
func (d *Dir) Remove(name string) error {
	if !isName(name) {
		return fmt.Errorf("remove checkpoint %q: %w", name, ErrInvalidName)
	}
	defer d.acquire()()
	if err := d.removeLocked(name); err != nil {
		return fmt.Errorf("remove checkpoint %s: %w", d.filePath(name), err)
	}
	return nil
}

func (d *Dir) removeLocked(name string) error {
	err := d.files.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.unsynced = d.unsynced || err == nil
	return d.syncLocked()
}

// syncLocked syncs the directory if it has unsynced changes, including those of an earlier call that failed.
func (d *Dir) syncLocked() error {
	if !d.unsynced {
		return nil
	}
	if err := syncDirectory(d.files); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	d.unsynced = false
	return nil
}

// acquire waits for the semaphore and returns a function that releases it.
func (d *Dir) acquire() (release func()) {
	d.sem <- struct{}{}
	return func() { <-d.sem }
}

func (d *Dir) filePath(name string) string { return filepath.Join(d.path, name) }

// isName excludes dots, so that no name collides with a temporary or quarantined file or refers to another directory.
func isName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= 100 && name[0] != '-' && name[0] != '_' && strings.TrimLeft(name, allowed) == ""
}

func isTemp(name string) bool {
	name, hasPrefix := strings.CutPrefix(name, tempPrefix)
	name, hasSuffix := strings.CutSuffix(name, tempSuffix)
	return hasPrefix && hasSuffix && isName(name)
}

// Store stores one value as JSON in one checkpoint. Like its Dir, it is safe for concurrent use.
type Store[T any] struct {
	dir     *Dir
	name    string
	version int
}

// NewStore returns a Store for the checkpoint. The version, at least 1, is that of T's JSON. Change it when this program and an
// older one would misread each other's JSON; new fields alone do not require it.
func NewStore[T any](dir *Dir, name string, version int) (*Store[T], error) {
	if err := dir.checkSave(name, version, nil); err != nil {
		return nil, fmt.Errorf("checkpoint store %q: %w", name, err)
	}
	return &Store[T]{dir: dir, name: name, version: version}, nil
}

// Save saves the value like Dir.Save. Equal values are not written again, provided that T's JSON is deterministic.
func (s *Store[T]) Save(value T) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("save checkpoint %q: %w", s.name, err)
	}
	return s.dir.Save(s.name, s.version, payload)
}

// Load loads the value like Dir.Load. It also quarantines a checkpoint of another version, and one that does not decode to T.
func (s *Store[T]) Load() (T, error) {
	var value, zero T
	payload, version, err := s.dir.Load(s.name)
	if err != nil {
		return zero, err
	}
	if version != s.version {
		err = fmt.Errorf("%w: %d, this program reads %d", ErrVersion, version, s.version)
	} else if decodeErr := json.Unmarshal(payload, &value); decodeErr != nil {
		err = fmt.Errorf("%w: decode payload as %T: %w", ErrCorrupt, value, decodeErr)
	}
	if err != nil {
		return zero, s.dir.Quarantine(s.name, version, payload, err)
	}
	return value, nil
}
