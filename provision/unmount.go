package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/podid"
)

// Unmount sees to it that nothing is left of the pod's volumes. It may be called for any pod, again and again; after an
// error, or a crash, the next call goes on. A hostPath is left as it is, and so is what somebody else mounted in a volume,
// which is an error.
func (p *Provisioner) Unmount(ctx context.Context, uid podid.UID) error {
	if !isName(string(uid)) {
		return fmt.Errorf("unmount the volumes of pod %q: that is no UID", uid)
	}
	if err := p.removeVolumes(ctx, string(uid)); err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", uid, err)
	}
	p.forget(uid)
	return nil
}

func (p *Provisioner) removeVolumes(ctx context.Context, uid string) error {
	root, err := os.Open(p.config.Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	volumes, err := openBeneath(root, filepath.Join(uid, volumesName), unix.O_RDONLY)
	if err == nil {
		err = errors.Join(dismantleAll(ctx, volumes), volumes.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(
		removeEmpty(root, filepath.Join(uid, volumesName)),
		removeEmpty(root, uid)) // others may have something beside the volumes
}

func removeEmpty(in *os.File, name string) error {
	err := unix.Unlinkat(int(in.Fd()), name, unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", filepath.Join(in.Name(), name), err)
}

// dismantleAll goes through the plugins' folders.
func dismantleAll(ctx context.Context, volumes *os.File) error {
	plugins, err := volumes.Readdirnames(-1)
	if err != nil {
		return err
	}
	var failed []error
	for _, plugin := range plugins {
		folder, err := openBeneath(volumes, plugin, unix.O_RDONLY)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			failed = append(failed, removeTree(volumes, plugin, neverStop))
			continue
		}
		if err == nil {
			err = errors.Join(dismantlePlugin(ctx, folder), folder.Close())
		}
		failed = append(failed, err, removeEmpty(volumes, plugin))
	}
	return errors.Join(failed...)
}

func dismantlePlugin(ctx context.Context, folder *os.File) error {
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if ctx.Err() != nil {
			return errors.Join(append(failed, context.Cause(ctx))...)
		}
		err := unmountAll(folder, name)
		if err == nil {
			err = removeTree(folder, name, func() error { return context.Cause(ctx) })
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// unmountAll ends the mounts in memory that a volume is made of. Their names are reached through the open folder above
// them, which nobody can swap.
func unmountAll(in *os.File, name string) error {
	for {
		fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) {
			return nil // no folder, or no mount of ours: those can be entered
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", filepath.Join(in.Name(), name), err)
		}
		opened := os.NewFile(uintptr(fd), filepath.Join(in.Name(), name))
		isMounted, err := isTmpfsMount(opened)
		if err := errors.Join(err, opened.Close()); err != nil || !isMounted {
			return err
		}
		if err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", in.Fd(), name), unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", filepath.Join(in.Name(), name), err)
		}
	}
}
