// Package containerd starts a real containerd for a test, with its own root, state, socket, bridge network and images. It does
// not touch the system's containerd. Its pods are reachable from the host. It can be killed, frozen and restarted, and leaves
// nothing behind, even if the test's process is killed.
//
// It requires what needs.Containers checks. It is the containerd from PATH or a containerd 2.x: see Version. There is no registry;
// images are created from static programs (see ImportImage). There is no masquerading and no port mapping: pods reach each other
// and the host, and hostPorts have no effect.
package containerd

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/heraldnode/herald/parity/internal/needs"
)

const (
	// SandboxImage is the image of every pod sandbox.
	SandboxImage = "herald.test/pause:1"

	// TestpodImage has the command testpod as its entrypoint; `testpod` without arguments prints its usage.
	TestpodImage = "herald.test/testpod:1"

	// SecondHandler is a runtime handler besides the default one, runc. It runs containers in the same way.
	SecondHandler = "second"
)

// startTimeout bounds Start and Restart. It only ends a hang, so it is generous.
const startTimeout = 5 * time.Minute

// maxDirLength leaves room for "/containerd.sock.ttrpc" in the 107 characters of a socket path.
const maxDirLength = 107 - len("/containerd.sock.ttrpc")

// Config configures a containerd.
type Config struct {
	// ParentDir is where the containerd's directory is created. Its path must be short, because it becomes part of a socket path,
	// and its file system must support overlayfs. Defaults to os.TempDir().
	ParentDir string
	// Dir is the containerd's directory itself. It must be empty or not exist. Defaults to a new directory in ParentDir.
	Dir string
	// Version is the containerd to run. Defaults to DefaultVersion().
	Version Version
}

// Containerd is a containerd with everything that belongs to it.
//
// One goroutine owns it: Stop, Kill, Freeze, Continue, Restart and Close must not be called concurrently. Endpoint, Dir and, while
// containerd runs, ImportImage are safe for concurrent use.
type Containerd struct {
	dir        string
	release    release
	supervisor *supervisor
	process    *process // nil while none runs
	closed     bool
}

// Start starts a containerd with SandboxImage and TestpodImage and returns when it can run pods. ctx bounds the start only. The
// working directory must be in this module: testpod is built with the go command.
func Start(ctx context.Context, config Config) (*Containerd, error) {
	release, err := cmp.Or(config.Version, DefaultVersion()).prepare(ctx, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	dir, err := config.createDir()
	if err != nil {
		return nil, fmt.Errorf("containerd: create directory: %w", err)
	}
	// The supervisor cleans up everything that is created from here on.
	supervisor, err := startSupervisor(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("containerd: start supervisor: %w", err), os.RemoveAll(dir))
	}
	c := &Containerd{dir: dir, release: release, supervisor: supervisor}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("containerd: start in %s: %w", dir, err), c.destroy())
	}
	return c, nil
}

// ForTest starts a containerd that stops with the test. It skips the test where containers cannot run.
func ForTest(tb testing.TB) *Containerd {
	tb.Helper()
	needs.Containers(tb)
	c, err := Start(tb.Context(), Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the containerd log:\n%s", c.logTail())
		}
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Endpoint returns the address of the CRI, "unix:///...". It does not change on a restart.
func (c *Containerd) Endpoint() string { return "unix://" + c.socket() }

// Dir returns the directory with all files of this containerd. Close removes it.
func (c *Containerd) Dir() string { return c.dir }

// Close removes every pod and everything else that this containerd has created. Further calls have no effect.
func (c *Containerd) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	return errors.Join(c.removePods(), c.destroy())
}

func (c *Containerd) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := createNetwork(ctx, c.dir); err != nil {
		return err
	}
	if err := writeConfig(c.dir, c.release.config); err != nil {
		return err
	}
	if err := c.launch(ctx); err != nil {
		return err
	}
	testpod, err := buildTestpod(ctx, c.dir)
	if err != nil {
		return err
	}
	if err := c.ImportImage(ctx, SandboxImage, testpod, "pause"); err != nil {
		return err
	}
	return c.ImportImage(ctx, TestpodImage, testpod)
}

// destroy removes by force what removePods has left, and everything that Start has created.
func (c *Containerd) destroy() error {
	err := c.supervisor.cleanUp()
	if c.process != nil {
		<-c.process.exited
		c.process = nil
	}
	return err
}

func (c *Containerd) socket() string { return filepath.Join(c.dir, "containerd.sock") }

// createDir resolves symbolic links: the supervisor reads the kernel's mount table, which has resolved paths.
func (c Config) createDir() (string, error) {
	dir, err := c.newDir()
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil && len(resolved) > maxDirLength {
		err = fmt.Errorf("%s is longer than %d characters, too long for a socket path; set a shorter Config.ParentDir",
			resolved, maxDirLength)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return resolved, nil
}

func (c Config) newDir() (string, error) {
	if c.Dir == "" {
		return os.MkdirTemp(c.ParentDir, "herald-containerd-")
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(c.Dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("directory %s is not empty: use another one or empty it", c.Dir)
	}
	return c.Dir, err
}

const configFile = "config.toml"

func writeConfig(dir, content string) error {
	plugins, err := needs.CNIPlugins()
	if err != nil {
		return err
	}
	parsed, err := template.New(configFile).Parse(content)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, configFile))
	if err != nil {
		return err
	}
	defer file.Close()
	return parsed.Execute(file, map[string]string{
		"Dir":           dir,
		"CNIPlugins":    plugins,
		"SandboxImage":  SandboxImage,
		"SecondHandler": SecondHandler,
	})
}

//go:embed cleanup.sh
var cleanupScript string

// supervisor is a shell that waits on a pipe for the end of this process, or for cleanUp, and then removes everything that
// belongs to a containerd's directory. The kernel closes the pipe however this process ends.
type supervisor struct {
	dir    string
	pipe   io.Closer
	exited <-chan error
}

func startSupervisor(dir string) (*supervisor, error) {
	shell := exec.CommandContext(context.Background(), "/bin/sh", "-c", cleanupScript, "herald-supervisor", dir)
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	// The supervisor must survive a signal to the process group of the test.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- shell.Wait() }() // also keeps the pipe open, which the garbage collector would close
	return &supervisor{dir: dir, pipe: pipe, exited: exited}, nil
}

// cleanUp makes the supervisor remove everything, and returns an error if something is left.
func (s *supervisor) cleanUp() error {
	closeErr := s.pipe.Close()
	if err := <-s.exited; err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "cleanup.log"))
		return fmt.Errorf("containerd: remove %s: %w\n%s", s.dir, err, log)
	}
	return closeErr
}
