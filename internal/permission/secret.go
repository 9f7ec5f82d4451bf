package permission

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CheckSecret is CheckFile for a file with a secret. It also returns an error if users other than root and the trusted user can
// read the file: its mode or its access control list lets them, and so do its parent directories.
func (c Checker) CheckSecret(path string) error {
	if err := c.CheckFile(path); err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	readers, err := c.readers(path, &stat)
	if err != nil || readers == "" {
		return err
	}
	if isReachable, err := isReachable(path); err != nil || !isReachable {
		return err
	}
	return fmt.Errorf("%s can be read by %s (mode %04o), so others could act as this node (chmod go-r %s)",
		path, readers, uint32(stat.Mode)&0o7777, path) //nolint:unconvert // its type differs between operating systems
}

// readers describes who else may read the file, or returns "".
func (c Checker) readers(path string, stat *unix.Stat_t) (string, error) {
	const groupRead, otherRead = 0o040, 0o004
	switch {
	case stat.Mode&otherRead != 0:
		return "every user", nil
	case stat.Mode&groupRead == 0:
		return "", nil // this excludes an access control list, too: its mask is shown as the group's bits
	}
	entries, err := readACL(path)
	if err != nil {
		return "", fmt.Errorf("%s has an access control list that cannot be read: %w", path, err)
	}
	if entries == nil {
		entries = []aclEntry{{tag: aclOwningGroup, permissions: aclRead}}
	}
	for _, entry := range entries {
		switch {
		case entry.permissions&aclRead == 0:
		case entry.tag == aclUser && entry.id != 0 && entry.id != c.UID:
			return fmt.Sprintf("user %d", entry.id), nil
		case entry.tag == aclGroup && !c.trustsGroup(entry.id):
			return fmt.Sprintf("group %d", entry.id), nil
		case entry.tag == aclOwningGroup && !c.trustsGroup(stat.Gid):
			return fmt.Sprintf("group %d", stat.Gid), nil
		}
	}
	return "", nil
}

// isReachable reports whether every parent directory lets others through. A group that may enter counts as others.
func isReachable(path string) (bool, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false, err
	}
	if resolved, err = filepath.Abs(resolved); err != nil {
		return false, err
	}
	for dir := filepath.Dir(resolved); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false, err
		}
		const mayEnter = 0o011
		if info.Mode().Perm()&mayEnter == 0 {
			return false, nil
		}
		if dir == filepath.Dir(dir) {
			return true, nil
		}
	}
}

// CheckCommand checks the program that a command name runs, and its directory. A program that does not exist is reported when it
// is executed.
func (c Checker) CheckCommand(name string) error {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(c.CheckFile(path), c.CheckFile(filepath.Dir(path)))
}
