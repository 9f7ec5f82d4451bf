package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/heraldnode/herald/podid"
)

const cgroupMount = "/sys/fs/cgroup"

// removeCgroup removes the pod's cgroup, which the runtime made as the parent of the containers' and leaves behind.
func (r *Runtime) removeCgroup(ctx context.Context, uid podid.UID) error {
	driver, err := r.cgroupDriver(ctx)
	if err != nil {
		return err
	}
	for _, name := range r.config.podCgroups(string(uid), driver) {
		if driver == driverSystemd {
			err = errors.Join(err, stopSlice(ctx, name))
		} else {
			err = errors.Join(err, removeCgroupfs(ctx, name))
		}
	}
	return err
}

// removeCgroupfs removes the cgroup from the one hierarchy of version 2, and from each of version 1. A cgroup can be
// removed only when no process is in it, and a child only before its parent.
func removeCgroupfs(ctx context.Context, name string) error {
	found, err := filepath.Glob(filepath.Join(cgroupMount, "*", name))
	if err != nil {
		return err
	}
	var failed []error
	for _, dir := range append(found, filepath.Join(cgroupMount, name)) {
		err := killLost(ctx, dir)
		if err == nil {
			err = removeTree(dir)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failed := []error{err}
	for _, entry := range entries {
		if entry.IsDir() {
			failed = append(failed, removeTree(filepath.Join(dir, entry.Name())))
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// stopSlice lets systemd remove the cgroup; one that it does not know is stopped.
func stopSlice(ctx context.Context, slice string) error {
	if output, err := exec.CommandContext(ctx, "systemctl", "stop", slice).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl stop %s: %w: %s", slice, err, output)
	}
	return nil
}
