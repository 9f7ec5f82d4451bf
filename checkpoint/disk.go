package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fileSystem is the directory as a Dir uses it. Names have no path separators, and symbolic links are not followed out of the
// directory.
type fileSystem interface {
	// Lstat describes a file, without following a symbolic link.
	Lstat(name string) (fs.FileInfo, error)
	// OpenFile opens a file like os.OpenFile.
	OpenFile(name string, flag int, mode fs.FileMode) (file, error)
	// Rename renames a file and replaces an existing one.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// Sync makes earlier renames and removals survive a power failure.
	Sync() error
}

// file is an open file.
type file interface {
	io.ReadWriteCloser
	// Sync makes earlier writes survive a power failure.
	Sync() error
}

// directory is a fileSystem relative to an open, locked directory. It does not follow the path when that is moved or mounted
// over.
type directory struct {
	*os.Root
	handle *os.File // the directory itself; holds the lock
}

// openDirectory opens and locks a directory, and creates it if necessary.
func openDirectory(path string) (directory, error) {
	if err := makeDirectory(path); err != nil {
		return directory{}, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return directory{}, err
	}
	handle, err := lock(root)
	if err != nil {
		return directory{}, errors.Join(err, root.Close())
	}
	return directory{Root: root, handle: handle}, nil
}

// makeDirectory creates the directory and its missing parents, and syncs each so that it survives a power failure.
func makeDirectory(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDirectory(filepath.Dir(path)); err != nil {
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
	return errors.Join(syncDirectory(parent), parent.Close())
}

// syncDirectory ignores file systems that cannot sync a directory, for example some network file systems.
func syncDirectory(directory interface{ Sync() error }) error {
	err := directory.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// OpenFile implements fileSystem.
func (d directory) OpenFile(name string, flag int, mode fs.FileMode) (file, error) {
	opened, err := d.Root.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Sync implements fileSystem.
func (d directory) Sync() error { return d.handle.Sync() }

// Close releases the lock last.
func (d directory) Close() error {
	return errors.Join(d.Root.Close(), d.handle.Close())
}

// LockedError reports that another process has locked the directory (F30).
type LockedError struct {
	Path string
	PID  int // 0 if unknown
}

// Error names the directory and the process.
func (e *LockedError) Error() string {
	process := "another process"
	if e.PID != 0 {
		process = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data directory %s is in use by %s: stop it, or choose another directory", e.Path, process)
}

const (
	// pidFile contains the PID of the process that holds the lock, for the error of other processes.
	pidFile = ".holder"
	// lockInheritance is how long a child process may keep the lock of a parent that was killed: between fork and exec.
	lockInheritance = time.Second
)

// lock locks the directory until the returned file is closed, which the kernel does for a process that dies. The lock is on the
// directory itself, so that it works on a read-only or full disk.
func lock(root *os.Root) (*os.File, error) {
	handle, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for deadline := time.Now().Add(lockInheritance); errors.Is(err, syscall.EWOULDBLOCK) && time.Now().Before(deadline); {
		if !hasExited(readPID(root)) {
			break
		}
		time.Sleep(lockInheritance / 100)
		err = syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(&LockedError{Path: root.Name(), PID: readPID(root)}, handle.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock directory: %w", err), handle.Close())
	}
	// Ignore errors, for example on a full or read-only disk: only the PID in the error of other processes is lost.
	_ = root.WriteFile(pidFile, fmt.Appendln(nil, os.Getpid()), 0o600)
	return handle, nil
}

// hasExited reports whether the PID is known and no such process exists.
func hasExited(pid int) bool { return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// readPID returns the PID of the process that holds the lock, or 0.
func readPID(root *os.Root) int {
	opened, err := root.Open(pidFile)
	if err != nil {
		return 0
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
