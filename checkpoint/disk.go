package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is the folder as a Dir uses it. Names are plain, and a symbolic link is never a reason to leave the folder.
type disk interface {
	// Lstat describes a file, and a link itself rather than what it leads to.
	Lstat(name string) (fs.FileInfo, error)
	// OpenFile opens a file as os.OpenFile does.
	OpenFile(name string, flag int, mode fs.FileMode) (file, error)
	// Rename gives a file another name, in place of whatever has that name.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// Sync makes past renames and removals survive a power cut.
	Sync() error
}

// file is an open file of a disk.
type file interface {
	io.ReadWriteCloser
	// Sync makes what was written survive a power cut.
	Sync() error
}

// folder is a disk whose operations start from an open folder, so that they stay in it when its path is moved or mounted
// over.
type folder struct {
	*os.Root
	handle *os.File // the folder itself; it carries the lock
}

func (f folder) OpenFile(name string, flag int, mode fs.FileMode) (file, error) {
	opened, err := f.Root.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

func (f folder) Sync() error { return f.handle.Sync() }

// Close gives the lock back last.
func (f folder) Close() error {
	return errors.Join(f.Root.Close(), f.handle.Close())
}

// openFolder opens and locks a folder, which it creates if need be.
func openFolder(path string) (folder, error) {
	if err := makeFolder(path); err != nil {
		return folder{}, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return folder{}, err
	}
	handle, err := lock(root)
	if err != nil {
		return folder{}, errors.Join(err, root.Close())
	}
	return folder{Root: root, handle: handle}, nil
}

// makeFolder creates the folder and those above it that are missing, each so that it survives a power cut.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(parent), parent.Close())
}

// syncFolder has nothing to do on file systems that do not know the syncing of a folder; some network ones do not.
func syncFolder(folder interface{ Sync() error }) error {
	err := folder.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
