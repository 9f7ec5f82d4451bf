package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
)

// TestF17AFullAndThenReadOnlyDiskLeavesTheCheckpointBefore gives a child process its own view of the mounts, so that nothing
// has to be unmounted. The same faults without mounts are in TestF17AFailedSaveLeavesTheCheckpointBefore.
func TestF17AFullAndThenReadOnlyDiskLeavesTheCheckpointBefore(t *testing.T) {
	cmd := again(t, "have a full disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == mayNotMount ||
		errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) { // the latter when user namespaces are set to none
		t.Skipf("needs a mount namespace: %v; run as root, or allow user namespaces", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mayNotMount is the exit status of a child that has a mount namespace and may not use it.
const mayNotMount = 77

// haveFullDisk saves on a disk of 64 KiB until it is full, and then on one that can only be read.
func haveFullDisk(path string) error {
	err := syscall.Mount("none", path, "tmpfs", 0, "size=64k")
	if errors.Is(err, fs.ErrPermission) {
		os.Exit(mayNotMount)
	}
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	err = withFolder(path, func(dir *checkpoint.Dir) error {
		if err := refused(dir, path, syscall.ENOSPC); err != nil {
			return err
		}
		if err := syscall.Mount("none", path, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("remount: %w", err)
		}
		if err := dir.Save("status", 1, []byte("never")); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("saving on a read-only disk: %w", err)
		}
		return onlyHolds(dir, path, "after")
	})
	if err != nil {
		return err
	}
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return fmt.Errorf("opening a read-only folder: %w", err)
	}
	defer dir.Close()
	if err := dir.Save("status", 1, []byte("after")); err != nil {
		return fmt.Errorf("saving what a read-only folder holds already: %w", err)
	}
	return onlyHolds(dir, path, "after")
}
