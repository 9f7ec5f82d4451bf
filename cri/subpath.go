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

// bindSubPath bind-mounts the subPath of the volume to target.
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
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind mount %s of %s to %s: %w", subPath, volume, target, err)
	}
	return nil
}

// openSubPath opens the subPath of the volume and creates missing directories. Links are followed as long as they stay in the
// volume.
func openSubPath(volume, subPath string) (*os.File, error) {
	if !filepath.IsLocal(subPath) {
		return nil, errors.New("escapes the volume")
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := openBeneath(volume, subPath)
	if errors.Is(err, fs.ErrNotExist) {
		if err := root.MkdirAll(subPath, 0o750); err != nil {
			return nil, err
		}
		return openBeneath(volume, subPath)
	}
	return file, err
}

// openBeneath lets the kernel resolve the path in one step, which no other process can interfere with. O_PATH opens the file
// without reading it: opening has no effect on a device or a pipe.
func openBeneath(volume, subPath string) (*os.File, error) {
	dir, err := os.Open(volume)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), subPath, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: filepath.Join(volume, subPath), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(volume, subPath)), nil
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
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unmountSubPaths undoes every bind mount below dir, <container>/<i>, and removes dir.
func unmountSubPaths(dir string) error {
	containers, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, container := range containers {
		targets, err := os.ReadDir(filepath.Join(dir, container.Name()))
		errs = append(errs, err)
		for _, target := range targets {
			errs = append(errs, unmountSubPath(filepath.Join(dir, container.Name(), target.Name())))
		}
		errs = append(errs, os.Remove(filepath.Join(dir, container.Name())))
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}
