package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/controlplane"
)

// ownerDir is an environment variable. If it is set, this test binary starts a control plane in that directory and crashes.
const ownerDir = "HERALD_TEST_OWNER_DIR"

func runOwner(dir string) {
	binaries, err := controlplane.Build(context.Background(), os.Stderr)
	if err != nil {
		panic(err)
	}
	cp, err := controlplane.Start(context.Background(), controlplane.Config{Binaries: binaries, Dir: dir})
	if err != nil {
		panic(err)
	}
	server := cp.NewServer(controlplane.ServerConfig{
		// The shell replaces itself with its last command, so it needs one after sleep.
		Name: "server", Command: []string{"/bin/sh", "-c", "/bin/sleep 600; exit", dir},
		Ready: func(context.Context) error { return nil },
	})
	if err := server.Start(context.Background()); err != nil {
		panic(err)
	}
	go func() { // what only the servers use must not be collected
		for {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
		panic(err)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	panic(fmt.Sprintf("expected by the test (%v)", err))
}

func TestSupervisor_OwnerCrashes(t *testing.T) {
	signal := func(s os.Signal) func(*os.Process, io.Closer) error {
		return func(owner *os.Process, _ io.Closer) error { return owner.Signal(s) }
	}
	tests := map[string]struct {
		file      string // crash when this file exists
		crash     func(owner *os.Process, stdin io.Closer) error
		processes int // etcd, kube-apiserver, the server and the supervisor
	}{
		"panic":                 {"ready", func(_ *os.Process, stdin io.Closer) error { return stdin.Close() }, 4},
		"interrupt":             {"ready", signal(os.Interrupt), 4},
		"kill":                  {"ready", signal(os.Kill), 4},
		"kill when etcd starts": {"etcd.log", signal(os.Kill), 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cp")
			owner := exec.CommandContext(t.Context(), os.Args[0])
			owner.Env = append(os.Environ(), ownerDir+"="+dir)
			stdin, err := owner.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			heraldtest.Eventually(t, func() error {
				_, err := os.Stat(filepath.Join(dir, test.file))
				return err
			})
			if running := findRemains(t, dir); len(running) < test.processes+1 {
				t.Errorf("got %q, want the directory and %d processes", running, test.processes)
			}
			if err := test.crash(owner.Process, stdin); err != nil {
				t.Error(err)
			}
			if err := owner.Wait(); err == nil {
				t.Error("the owner exited without an error")
			}
			// The supervisor starts its work when the owner has ended.
			heraldtest.Eventually(t, func() error {
				if left := findRemains(t, dir); len(left) != 0 {
					return fmt.Errorf("got %q, want nothing", left)
				}
				return nil
			})
		})
	}
}

// findRemains returns the directory of a control plane, if it exists, and the command lines of all processes that mention it.
func findRemains(t *testing.T, dir string) (found []string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		found = append(found, dir)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		if command, err := os.ReadFile(path); err == nil && bytes.Contains(command, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	return found
}
