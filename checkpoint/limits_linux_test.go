package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
)

func TestF17AFileSizeLimitLeavesTheCheckpointBefore(t *testing.T) {
	play(t, "have no room for files", t.TempDir())
}

func TestF17ADescriptorLimitLeavesTheCheckpointBefore(t *testing.T) {
	play(t, "have no descriptor left", t.TempDir())
}

// haveNoRoomForFiles lets the kernel refuse the end of a write.
func haveNoRoomForFiles(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	return withFolder(path, func(dir *checkpoint.Dir) error {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		return refused(dir, path, syscall.EFBIG)
	})
}

// haveNoDescriptorLeft lets the kernel refuse each open.
func haveNoDescriptorLeft(path string) error {
	return withFolder(path, func(dir *checkpoint.Dir) error {
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			return err
		}
		none := before
		none.Cur = 0
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
			return err
		}
		saving := dir.Save("status", 1, []byte("after"))
		_, _, loading := dir.Load("status")
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			return err
		}
		if !errors.Is(saving, syscall.EMFILE) || !errors.Is(loading, syscall.EMFILE) {
			return fmt.Errorf("saving: %w; loading: %w", saving, loading)
		}
		return onlyHolds(dir, path, "before")
	})
}

// withFolder opens the folder, saves "before" in it and goes on.
func withFolder(path string, goOn func(*checkpoint.Dir) error) error {
	dir, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Save("status", 1, []byte("before")); err != nil {
		return err
	}
	return goOn(dir)
}

// refused saves more than fits, wants that refused and the checkpoint before to be there, and then saves what fits.
func refused(dir *checkpoint.Dir, path string, fault error) error {
	if err := dir.Save("status", 1, make([]byte, 1<<20)); !errors.Is(err, fault) {
		return fmt.Errorf("saving too much: %w", err)
	}
	if err := onlyHolds(dir, path, "before"); err != nil {
		return err
	}
	if err := dir.Save("status", 1, []byte("after")); err != nil {
		return fmt.Errorf("saving what fits: %w", err)
	}
	return onlyHolds(dir, path, "after")
}

// onlyHolds wants this checkpoint and no other file.
func onlyHolds(dir *checkpoint.Dir, path, payload string) error {
	if have, _, err := dir.Load("status"); err != nil || string(have) != payload {
		return fmt.Errorf("loaded %q, want %q: %w", have, payload, err)
	}
	if _, err := os.Lstat(filepath.Join(path, ".status.tmp")); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the temporary file is still there: %w", err)
	}
	return nil
}
