package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A subPath lies below its volume, where other containers may replace directories by links at any moment. So it is opened
// once, without ever leaving the volume, and the opened file is bind-mounted to a target that only this package writes to; the
// runtime mounts that target. The bind mount is needed only until the container runs: a container keeps its mounts.

// bindSubPath bind-mounts the subPath of the volume to target. As with the kubelet, what is mounted below the subPath already
// is not visible in the container; what is mounted later is, if the volumeMount asks for propagation.
func bindSubPath(volume, subPath, target string) error {
	file, err := openSubPath(volume, subPath)
	if err != nil {
		return fmt.Errorf("subPath: %q: %w", subPath, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := unmountSubPath(target); err != nil { // left by a start that a crash interrupted
		return err
	}
	if err := createMountPoint(target, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount %s of %s to %s: %w", subPath, volume, target, err)
	}
	return nil
}

// openSubPath opens the subPath of the volume and creates missing directories. Links are followed as long as they stay in the
// volume.
func openSubPath(volumePath, subPath string) (*os.File, error) {
	if !filepath.IsLocal(subPath) {
		return nil, errors.New("escapes the volume")
	}
	// O_PATH: a hostPath volume may be a pipe, which would block, or a device, which must not be opened.
	volume, err := os.OpenFile(volumePath, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer volume.Close()
	file, err := openBeneath(volume, subPath)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createDirs(volume, filepath.Clean(subPath)); err != nil {
			return nil, err
		}
		return openBeneath(volume, subPath)
	}
	return file, err
}

// openBeneath lets the kernel resolve the path in one step, which no other process can interfere with. O_PATH opens the file
// without reading it: opening has no effect on a device or a pipe.
func openBeneath(volume *os.File, subPath string) (*os.File, error) {
	path := filepath.Join(volume.Name(), subPath)
	fd, err := unix.Openat2(int(volume.Fd()), subPath, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// createDirs creates the missing directories of the subPath. They get the mode of the volume, as the kubelet's do: containers
// of other users and of the volume's group can use them as they can use the volume.
func createDirs(volume *os.File, subPath string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(volume.Fd()), &stat); err != nil {
		return &fs.PathError{Op: "fstat", Path: volume.Name(), Err: err}
	}
	for i := range len(subPath) + 1 {
		if i < len(subPath) && subPath[i] != '/' {
			continue
		}
		dir, err := openBeneath(volume, subPath[:i])
		if errors.Is(err, fs.ErrNotExist) {
			err = createDir(volume, subPath[:i], stat.Mode&0o7777)
		} else if err == nil {
			err = dir.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createDir creates one directory and sets its mode independent of the umask. It does not follow a link that takes the place
// of the new directory.
func createDir(volume *os.File, subPath string, mode uint32) error {
	parent, err := openBeneath(volume, filepath.Dir(subPath))
	if err != nil {
		return err
	}
	defer parent.Close()
	path, name := filepath.Join(volume.Name(), subPath), filepath.Base(subPath)
	if err := unix.Mkdirat(int(parent.Fd()), name, mode); err != nil {
		return &fs.PathError{Op: "mkdirat", Path: path, Err: err}
	}
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "openat", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	if err := unix.Fchmod(fd, mode); err != nil {
		return &fs.PathError{Op: "fchmod", Path: path, Err: err}
	}
	return nil
}

func createMountPoint(target string, isDir bool) error {
	if isDir {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// unmountSubPath undoes bindSubPath. It returns nil if the target does not exist. It only removes the empty mount point, never
// content.
func unmountSubPath(target string) error {
	// The target may have received mounts of the host below the volume. Without MS_SLAVE, detaching them would detach the
	// host's own.
	err := unix.Mount("", target, "", unix.MS_SLAVE|unix.MS_REC, "")
	if err == nil {
		err = unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unmountSubPaths undoes every bind mount below dir, at any depth, and removes dir. It does not look into what is mounted.
func unmountSubPaths(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		isMounted, err := isMountPoint(path)
		switch {
		case err != nil:
		case entry.IsDir() && !isMounted:
			err = unmountSubPaths(path)
		default:
			err = unmountSubPath(path)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}

func isMountPoint(path string) (bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &stat); err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
