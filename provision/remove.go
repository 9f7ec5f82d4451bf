package provision

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deepest is how many folders are held open, one in the other. What is deeper is moved up first, so that a container
// cannot make a tree that nobody can remove.
const deepest = 100

// removal removes one tree. It goes through open folders only: whatever links and mounts are in the tree, or are put
// there meanwhile, it never leaves it.
type removal struct {
	stop  func() error // asked before each folder; an error ends it all
	top   *os.File
	moved int
}

// removeTree removes what has that name in the folder, with all that is in it. Something that is mounted there stays, and
// is an error. What is not there is removed already.
func removeTree(in *os.File, name string, stop func() error) error {
	return (&removal{stop: stop}).remove(in, name, 0)
}

func neverStop() error { return nil }

func (r *removal) remove(in *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(in.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove %s: %w", filepath.Join(in.Name(), name), errForeignMount)
	case !errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("remove %s: %w", filepath.Join(in.Name(), name), err)
	case depth == deepest:
		return r.moveUp(in, name)
	}
	folder, err := openFolder(in, name)
	if err != nil {
		return err
	}
	err = errors.Join(r.empty(folder, depth), folder.Close())
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", filepath.Join(in.Name(), name), err)
	}
	return nil
}

// empty lists again and again, until nothing is left: what is deep comes up meanwhile.
func (r *removal) empty(folder *os.File, depth int) error {
	if depth == 0 {
		r.top = folder
	}
	for {
		if err := r.stop(); err != nil {
			return err
		}
		if _, err := folder.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := folder.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(folder, name, depth+1); err != nil {
				return err
			}
		}
	}
}

func (r *removal) moveUp(in *os.File, name string) error {
	for {
		r.moved++
		to := fmt.Sprintf("..deep-%d", r.moved)
		err := unix.Renameat2(int(in.Fd()), name, int(r.top.Fd()), to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("move %s up: %w", filepath.Join(in.Name(), name), err)
		}
		return nil
	}
}

// openFolder opens a folder that is really there, on the same mount, with the right to change it.
func openFolder(in *os.File, name string) (*os.File, error) {
	opened, err := openBeneath(in, name, unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) {
		if err := makeReadable(in, name); err != nil {
			return nil, err
		}
		opened, err = openBeneath(in, name, unix.O_RDONLY)
	}
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat()
	if err == nil && info.Mode().Perm()&0o700 != 0o700 {
		err = opened.Chmod(info.Mode().Perm() | 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

func makeReadable(in *os.File, name string) error {
	held, err := openBeneath(in, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer held.Close()
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", held.Fd()), 0o700)
}

func openBeneath(in *os.File, name string, flags uint64) (*os.File, error) {
	full := filepath.Join(in.Name(), name)
	fd, err := unix.Openat2(int(in.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		return nil, fmt.Errorf("%s: %w", full, errForeignMount)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: full, Err: err}
	}
	return os.NewFile(uintptr(fd), full), nil
}
