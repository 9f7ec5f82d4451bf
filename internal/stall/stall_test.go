package stall_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/internal/stall"
)

// More threads than CPUs stall for lack of CPUs, which the kernel tells in the same way as lack of memory.
func TestBUG143_Watch(t *testing.T) {
	const file = "/proc/pressure/cpu"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	woken, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		done <- stall.Watch(ctx, file, 10*time.Millisecond, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
	}()
	for range 3 * runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			for ctx.Err() == nil { // keeps a CPU busy
			}
		}()
	}
	select {
	case <-woken:
	case err := <-done:
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) || errors.Is(err, fs.ErrPermission) {
			t.Skipf("this machine has no pressure stall information: %v", err)
		}
		t.Fatalf("ended: %v", err)
	case <-ctx.Done():
		t.Fatal("not told about busy CPUs")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v after the end of the context", err)
	}
}

func TestWatch_Unsupported(t *testing.T) {
	if err := stall.Watch(t.Context(), filepath.Join(t.TempDir(), "none"), time.Millisecond, func() {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
