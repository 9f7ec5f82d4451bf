package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/podid"
)

// Unmount removes the pod's volumes. It may be called repeatedly and for any pod. After an error or a crash, the next call
// continues. A hostPath is kept. A mount that others made in a volume is kept too, and is an error.
func (p *Provisioner) Unmount(ctx context.Context, uid podid.UID) error {
	if !isFileName(string(uid)) {
		return fmt.Errorf("unmount volumes of pod %q: invalid UID", uid)
	}
	if err := p.removeVolumes(ctx, string(uid)); err != nil {
		return fmt.Errorf("unmount volumes of pod %s: %w", uid, err)
	}
	p.forgetPod(uid)
	return nil
}

func (p *Provisioner) removeVolumes(ctx context.Context, uid string) error {
	root, err := os.Open(p.dirs.RootOf(podid.UID(uid)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	volumes, err := openBeneath(root, filepath.Join(uid, volumesDir), unix.O_RDONLY)
	if err == nil {
		err = errors.Join(removePlugins(ctx, volumes), volumes.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(
		removeIfEmpty(root, filepath.Join(uid, volumesDir)),
		removeMarkers(root, uid),
		removeIfEmpty(root, uid)) // it may contain other entries
}

// removeMarkers removes the files of markReady and of the kubelet. The directories of other plugins are theirs.
func removeMarkers(root *os.File, uid string) error {
	plugins, err := openBeneath(root, filepath.Join(uid, pluginsDir), unix.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer plugins.Close()
	return errors.Join(removeTree(plugins, emptyDirPlugin, neverCancelled), removeIfEmpty(root, filepath.Join(uid, pluginsDir)))
}

func removeIfEmpty(parent *os.File, name string) error {
	err := unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", filepath.Join(parent.Name(), name), err)
}

// removePlugins removes the volumes of all plugins.
func removePlugins(ctx context.Context, volumes *os.File) error {
	plugins, err := volumes.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, plugin := range plugins {
		dir, err := openBeneath(volumes, plugin, unix.O_RDONLY)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			errs = append(errs, removeTree(volumes, plugin, neverCancelled))
			continue
		}
		if err == nil {
			err = errors.Join(removePluginVolumes(ctx, dir), dir.Close())
		}
		errs = append(errs, err, removeIfEmpty(volumes, plugin))
	}
	return errors.Join(errs...)
}

func removePluginVolumes(ctx context.Context, plugin *os.File) error {
	names, err := plugin.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		err := unmountTmpfs(plugin, name)
		if err == nil {
			err = removeTree(plugin, name, func() error { return context.Cause(ctx) })
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unmountTmpfs unmounts the volume's tmpfs mounts. It addresses them through the open parent directory, which cannot be
// replaced.
func unmountTmpfs(parent *os.File, name string) error {
	for {
		fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) {
			return nil // not a directory, or not our mount, which would be accessible
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", filepath.Join(parent.Name(), name), err)
		}
		dir := os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name))
		isMounted, err := isTmpfsMount(dir)
		if err := errors.Join(err, dir.Close()); err != nil || !isMounted {
			return err
		}
		if err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", parent.Fd(), name), unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", filepath.Join(parent.Name(), name), err)
		}
	}
}

// maxDepth is how many nested directories are held open. Deeper ones are moved up first, so that no container can create a
// tree that cannot be removed.
const maxDepth = 100

// treeRemover removes one tree. It uses open directories only, so it never leaves the tree, whatever links and mounts are
// created in it meanwhile.
type treeRemover struct {
	cancelled func() error // called before each directory; an error ends the removal
	top       *os.File
	moved     int
}

// removeTree removes the named entry of a directory with all its content. A missing entry is not an error. Mounts below it
// are kept, and are an error.
func removeTree(parent *os.File, name string, cancelled func() error) error {
	return (&treeRemover{cancelled: cancelled}).remove(parent, name, 0)
}

func neverCancelled() error { return nil }

func (r *treeRemover) remove(parent *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(parent.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove %s: %w", filepath.Join(parent.Name(), name), errForeignMount)
	case !errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("remove %s: %w", filepath.Join(parent.Name(), name), err)
	case depth == maxDepth:
		return r.moveUp(parent, name)
	}
	dir, err := openWritable(parent, name)
	if err != nil {
		return err
	}
	err = errors.Join(r.removeEntries(dir, depth), dir.Close())
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", filepath.Join(parent.Name(), name), err)
	}
	return nil
}

// removeEntries lists the directory until it is empty, because deep directories are moved into the top one meanwhile.
func (r *treeRemover) removeEntries(dir *os.File, depth int) error {
	if depth == 0 {
		r.top = dir
	}
	for {
		if err := r.cancelled(); err != nil {
			return err
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, name, depth+1); err != nil {
				return err
			}
		}
	}
}

func (r *treeRemover) moveUp(parent *os.File, name string) error {
	for {
		r.moved++
		target := fmt.Sprintf("..deep-%d", r.moved)
		err := unix.Renameat2(int(parent.Fd()), name, int(r.top.Fd()), target, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("move %s up: %w", filepath.Join(parent.Name(), name), err)
		}
		return nil
	}
}

// openWritable opens a directory on the same mount, without following links, and makes it writable.
func openWritable(parent *os.File, name string) (*os.File, error) {
	dir, err := openBeneath(parent, name, unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) {
		if err := makeReadable(parent, name); err != nil {
			return nil, err
		}
		dir, err = openBeneath(parent, name, unix.O_RDONLY)
	}
	if err != nil {
		return nil, err
	}
	info, err := dir.Stat()
	if err == nil && info.Mode().Perm()&0o700 != 0o700 {
		err = dir.Chmod(info.Mode().Perm() | 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func makeReadable(parent *os.File, name string) error {
	dir, err := openBeneath(parent, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer dir.Close()
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), 0o700)
}

func openBeneath(parent *os.File, name string, flags uint64) (*os.File, error) {
	path := filepath.Join(parent.Name(), name)
	fd, err := unix.Openat2(int(parent.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		return nil, fmt.Errorf("%s: %w", path, errForeignMount)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
