package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
)

func TestF17_FileSizeLimit(t *testing.T) {
	runChild(t, "file size limit", t.TempDir())
}

func TestF17_DescriptorLimit(t *testing.T) {
	runChild(t, "descriptor limit", t.TempDir())
}

// testFileSizeLimit makes the kernel reject the end of a write.
func testFileSizeLimit(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	return withDir(path, func(dir *checkpoint.Dir) error {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		return checkFailedSave(dir, path, syscall.EFBIG)
	})
}

// testDescriptorLimit makes the kernel reject each open.
func testDescriptorLimit(path string) error {
	return withDir(path, func(dir *checkpoint.Dir) error {
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			return err
		}
		exhausted := before
		exhausted.Cur = 0
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &exhausted); err != nil {
			return err
		}
		saveErr := dir.Save("status", 1, []byte("after"))
		_, _, loadErr := dir.Load("status")
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			return err
		}
		if !errors.Is(saveErr, syscall.EMFILE) || !errors.Is(loadErr, syscall.EMFILE) {
			return fmt.Errorf("got save error %w and load error %w, want EMFILE", saveErr, loadErr)
		}
		return checkContent(dir, path, "before")
	})
}

// withDir opens the directory, saves "before" and calls test.
func withDir(path string, test func(*checkpoint.Dir) error) error {
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Save("status", 1, []byte("before")); err != nil {
		return err
	}
	return test(dir)
}

// checkFailedSave saves more than fits, checks that the previous checkpoint is unchanged, and saves what fits.
func checkFailedSave(dir *checkpoint.Dir, path string, want error) error {
	if err := dir.Save("status", 1, make([]byte, 1<<20)); !errors.Is(err, want) {
		return fmt.Errorf("save too much: got %w, want %w", err, want)
	}
	if err := checkContent(dir, path, "before"); err != nil {
		return err
	}
	if err := dir.Save("status", 1, []byte("after")); err != nil {
		return fmt.Errorf("save what fits: %w", err)
	}
	return checkContent(dir, path, "after")
}

// checkContent checks the payload, and that there is no temporary file.
func checkContent(dir *checkpoint.Dir, path, payload string) error {
	if got, _, err := dir.Load("status"); err != nil || string(got) != payload {
		return fmt.Errorf("got %q, want %q: %w", got, payload, err)
	}
	if _, err := os.Lstat(filepath.Join(path, ".status.tmp")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("temporary file exists: %w", err)
	}
	return nil
}

// TestF17_FullAndReadOnlyDisk runs a child process in its own mount namespace, so that nothing has to be unmounted.
// TestF17_FailedSave covers the same faults without mounts.
func TestF17_FullAndReadOnlyDisk(t *testing.T) {
	cmd := newChild(t, "full disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitNoMount ||
		errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) { // ENOSPC: user namespaces are disabled
		t.Skipf("needs a mount namespace: %v; run as root, or allow user namespaces", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exitNoMount is the exit status of a child that may not mount in its namespace.
const exitNoMount = 77

// testFullDisk saves on a disk of 64 KiB until it is full, and then on a read-only disk.
func testFullDisk(path string) error {
	err := syscall.Mount("none", path, "tmpfs", 0, "size=64k")
	if errors.Is(err, fs.ErrPermission) {
		os.Exit(exitNoMount)
	}
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	err = withDir(path, func(dir *checkpoint.Dir) error {
		if err := checkFailedSave(dir, path, syscall.ENOSPC); err != nil {
			return err
		}
		if err := syscall.Mount("none", path, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("remount: %w", err)
		}
		if err := dir.Save("status", 1, []byte("never")); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("save on a read-only disk: got %w, want EROFS", err)
		}
		return checkContent(dir, path, "after")
	})
	if err != nil {
		return err
	}
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return fmt.Errorf("open a read-only directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Save("status", 1, []byte("after")); err != nil {
		return fmt.Errorf("save unchanged payload in a read-only directory: %w", err)
	}
	return checkContent(dir, path, "after")
}
