package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A subPath is below its volume, where other containers may swap folders for links at any moment. So it is opened once,
// without ever leaving the volume, and what was opened is bound to a place that only this room writes to; the runtime
// mounts that place. The place is needed only until the container runs: what a container has mounted stays.

// openBelow opens what the path below the volume leads to, and makes the folders that are missing. Links are followed as
// long as they stay inside.
func openBelow(volume, deeper string) (*os.File, error) {
	if !filepath.IsLocal(deeper) {
		return nil, fmt.Errorf("subPath: %q leads out of the volume", deeper)
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return nil, fmt.Errorf("subPath: %q: %w", deeper, err)
	}
	defer root.Close()
	found, err := openInside(volume, deeper)
	if errors.Is(err, fs.ErrNotExist) {
		if err := root.MkdirAll(deeper, 0o750); err != nil {
			return nil, fmt.Errorf("subPath: %q: %w", deeper, err)
		}
		found, err = openInside(volume, deeper)
	}
	if err != nil {
		return nil, fmt.Errorf("subPath: %q: %w", deeper, err)
	}
	return found, nil
}

// openInside lets the kernel resolve the path, in one step that nobody can interfere with. What is opened is only held,
// not read: a device or a pipe notices nothing.
func openInside(volume, deeper string) (*os.File, error) {
	dir, err := os.Open(volume)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), deeper, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: filepath.Join(volume, deeper), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(volume, deeper)), nil
}

// bindBelow makes place show what the path below the volume leads to.
func bindBelow(volume, deeper, place string) error {
	opened, err := openBelow(volume, deeper)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	if err := releaseBind(place); err != nil { // of a start that a crash cut short
		return err
	}
	if err := makePlace(place, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", opened.Fd()), place, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s of %s to %s: %w", deeper, volume, place, err)
	}
	return nil
}

func makePlace(place string, folder bool) error {
	if folder {
		return os.MkdirAll(place, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(place, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// releaseBind undoes bindBelow; what is not there is released. Only the empty mount point is ever removed.
func releaseBind(place string) error {
	err := unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("releasing %s: %w", place, err)
	}
	if err := os.Remove(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// releaseAllBinds undoes every bind below a folder, and removes the folder.
func releaseAllBinds(dir string) error {
	containers, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failed := []error{err}
	for _, container := range containers {
		places, err := os.ReadDir(filepath.Join(dir, container.Name()))
		failed = append(failed, err)
		for _, place := range places {
			failed = append(failed, releaseBind(filepath.Join(dir, container.Name(), place.Name())))
		}
		failed = append(failed, os.Remove(filepath.Join(dir, container.Name())))
	}
	return errors.Join(append(failed, os.Remove(dir))...)
}
