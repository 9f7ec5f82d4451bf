package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fileSystem is the directory of the history. Names have no path separators.
type fileSystem interface {
	// List returns the regular files in the order of their names.
	List() ([]fileInfo, error)
	// Open opens a file for reading and, if write is set, for writing; then it is created if it does not exist.
	Open(name string, write bool) (file, error)
	// Rename renames a file and replaces an existing one.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// Sync makes earlier changes of the directory survive a power failure.
	Sync() error
	// Close releases the directory.
	Close() error
}

type fileInfo struct {
	name    string
	size    int64
	modTime time.Time
}

// file is an open file.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate changes the size.
	Truncate(size int64) error
	// Sync makes earlier writes survive a power failure.
	Sync() error
}

// directory is a fileSystem on disk. It is locked for this process.
type directory struct {
	root   *os.Root
	handle *os.File // holds the lock
	close  func() error
}

// ErrLocked reports that another process has opened the directory.
var ErrLocked = errors.New("another process uses this directory")

// openDirectory creates the directory with mode 0700 if necessary, and locks it. A read-only directory can be opened.
func openDirectory(path string) (*directory, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	handle, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	d := &directory{root: root, handle: handle}
	d.close = sync.OnceValue(func() error { return errors.Join(handle.Close(), root.Close()) })
	err = syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), d.Close())
	}
	return d, nil
}

// List implements fileSystem.
func (d *directory) List() ([]fileInfo, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var files []fileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() { // a file may be removed meanwhile
			files = append(files, fileInfo{name: entry.Name(), size: info.Size(), modTime: info.ModTime()})
		}
	}
	return files, nil
}

// Open implements fileSystem.
func (d *directory) Open(name string, write bool) (file, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR | os.O_CREATE
	}
	opened, err := d.root.OpenFile(name, flag|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Rename implements fileSystem.
func (d *directory) Rename(from, to string) error { return d.root.Rename(from, to) }

// Remove implements fileSystem.
func (d *directory) Remove(name string) error { return d.root.Remove(name) }

// Sync implements fileSystem. Some network file systems cannot sync a directory.
func (d *directory) Sync() error {
	err := d.handle.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// Close implements fileSystem. It may be called again.
func (d *directory) Close() error { return d.close() }

// memory is a fileSystem in memory: the history of a node without a disk to write to.
type memory struct {
	mu    sync.Mutex // guards files and their content
	files map[string]*memoryFile
}

type memoryFile struct {
	owner   *memory
	data    []byte
	modTime time.Time
}

func newMemory() *memory { return &memory{files: map[string]*memoryFile{}} }

// List implements fileSystem.
func (m *memory) List() ([]fileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var files []fileInfo
	for name, f := range m.files {
		files = append(files, fileInfo{name: name, size: int64(len(f.data)), modTime: f.modTime})
	}
	slices.SortFunc(files, func(a, b fileInfo) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// Open implements fileSystem.
func (m *memory) Open(name string, write bool) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	opened, found := m.files[name]
	if !found && !write {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if !found {
		opened = &memoryFile{owner: m, modTime: time.Now()}
		m.files[name] = opened
	}
	return opened, nil
}

// Rename implements fileSystem.
func (m *memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	renamed, found := m.files[from]
	if !found {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(m.files, from)
	m.files[to] = renamed
	return nil
}

// Remove implements fileSystem.
func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, found := m.files[name]; !found {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.files, name)
	return nil
}

// Sync implements fileSystem.
func (*memory) Sync() error { return nil }

// Close implements fileSystem.
func (*memory) Close() error { return nil }

// ReadAt implements file.
func (f *memoryFile) ReadAt(buffer []byte, offset int64) (int, error) {
	f.owner.mu.Lock()
	defer f.owner.mu.Unlock()
	if offset >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(buffer, f.data[offset:])
	if n < len(buffer) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements file.
func (f *memoryFile) WriteAt(data []byte, offset int64) (int, error) {
	f.owner.mu.Lock()
	defer f.owner.mu.Unlock()
	if missing := int(offset) + len(data) - len(f.data); missing > 0 {
		f.data = append(f.data, make([]byte, missing)...)
	}
	f.modTime = time.Now()
	return copy(f.data[offset:], data), nil
}

// Truncate implements file.
func (f *memoryFile) Truncate(size int64) error {
	f.owner.mu.Lock()
	defer f.owner.mu.Unlock()
	if size > int64(len(f.data)) {
		f.data = append(f.data, make([]byte, int(size)-len(f.data))...)
	}
	f.data = f.data[:size]
	return nil
}

// Sync implements file.
func (*memoryFile) Sync() error { return nil }

// Close implements file.
func (*memoryFile) Close() error { return nil }
