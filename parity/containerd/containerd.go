// Package containerd starts a real containerd for a test: its own root, state, socket, bridge network and images,
// nothing of the system's. It runs pods that the host reaches at their addresses, can be killed, frozen and restarted,
// and leaves nothing behind, also when the test's process is killed.
//
// It needs what needs.Containers checks, and works with containerd 1.6, 1.7 and 2.x from PATH: all of them read
// version 2 of the configuration. There is no registry; images are made from static programs (see Image). There is no
// masquerading and no port mapping either: pods reach each other and the host, and hostPorts do nothing.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldnode/herald/parity/internal/needs"
)

const (
	// SandboxImage is the image of every pod sandbox.
	SandboxImage = "herald.test/pause:1"

	// TestpodImage has the command testpod as its entrypoint; `testpod` alone prints what it can do.
	TestpodImage = "herald.test/testpod:1"
)

// longestFolder leaves room for "/containerd.sock.ttrpc" in the 107 characters of a socket's path.
const longestFolder = 107 - len("/containerd.sock.ttrpc")

// Config says how Start makes a containerd.
type Config struct {
	// Dir is where the containerd's folder is made. Its path must be short, for it becomes part of a socket's, and its
	// file system must carry an overlay. Default: os.TempDir().
	ParentDir string
	// Folder is the containerd's folder itself, which must be empty or not exist. Default: a new one in Dir.
	Dir string
}

// Containerd is one containerd and all that belongs to it.
//
// One goroutine owns it: Stop, Kill, Freeze, Continue, Restart and Close must not be called at the same time. Anybody
// may call Endpoint, Folder and, while the containerd runs, Image.
type Containerd struct {
	folder  string
	leash   *leash
	process *process // nil while none runs
	closed  bool
}

// Start starts a containerd with SandboxImage and TestpodImage in it and returns when it can run pods. ctx bounds the
// start, not the containerd's life. The working directory must be in this module: testpod is built with the go command.
func Start(ctx context.Context, config Config) (*Containerd, error) {
	folder, err := config.makeFolder()
	if err != nil {
		return nil, fmt.Errorf("containerd: making its folder: %w", err)
	}
	// Whatever is made after the leash is undone by it.
	leash, err := startLeash(folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("containerd: starting its leash: %w", err), os.RemoveAll(folder))
	}
	c := &Containerd{folder: folder, leash: leash}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("containerd: starting it in %s: %w", folder, err), c.destroy())
	}
	return c, nil
}

// ForTest starts a containerd that ends with the test; the test is skipped where none can run.
func ForTest(tb testing.TB) *Containerd {
	tb.Helper()
	needs.Containers(tb)
	c, err := Start(tb.Context(), Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the end of containerd's log:\n%s", c.logTail())
		}
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Endpoint returns the address of the CRI, "unix:///...". It stays the same across restarts.
func (c *Containerd) Endpoint() string { return "unix://" + c.socket() }

// Dir returns the directory that holds all that this containerd keeps; Close removes it.
func (c *Containerd) Dir() string { return c.folder }

// Close removes every pod and everything else that this containerd has made. Calling it again does nothing.
func (c *Containerd) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	return errors.Join(c.removePods(), c.destroy())
}

func (c *Containerd) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := makeNetwork(ctx, c.folder); err != nil {
		return err
	}
	if err := writeConfig(c.folder); err != nil {
		return err
	}
	if err := c.launch(ctx); err != nil {
		return err
	}
	testpod, err := buildTestpod(ctx, c.folder)
	if err != nil {
		return err
	}
	if err := c.ImportImage(ctx, SandboxImage, testpod, "pause"); err != nil {
		return err
	}
	return c.ImportImage(ctx, TestpodImage, testpod)
}

// destroy removes all by force: what removePods could not do in order, and what only Start has made.
func (c *Containerd) destroy() error {
	err := c.leash.release()
	if c.process != nil {
		<-c.process.done
		c.process = nil
	}
	return err
}

func (c *Containerd) socket() string { return filepath.Join(c.folder, "containerd.sock") }

// makeFolder resolves links: the kernel's list of mounts, which the leash reads, has them resolved.
func (c Config) makeFolder() (string, error) {
	folder, err := c.newFolder()
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(folder)
	if err == nil && len(resolved) > longestFolder {
		err = fmt.Errorf("%s is longer than %d characters and leaves no room for a socket's name; set a shorter Config.ParentDir",
			resolved, longestFolder)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(folder))
	}
	return resolved, nil
}

func (c Config) newFolder() (string, error) {
	if c.Dir == "" {
		return os.MkdirTemp(c.ParentDir, "herald-containerd-")
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(c.Dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty; name another, or remove what is in it", c.Dir)
	}
	return c.Dir, err
}
