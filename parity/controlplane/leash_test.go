package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldnode/herald/parity/controlplane"
)

// victimDir makes a victim of this test binary: it starts a control plane in that folder and ends badly.
const victimDir = "HERALD_TEST_VICTIM_DIR"

func beVictim(dir string) {
	binaries, err := controlplane.Build(context.Background(), os.Stderr)
	if err != nil {
		panic(err)
	}
	cp, err := controlplane.Start(context.Background(), controlplane.Config{Binaries: binaries, Dir: dir})
	if err != nil {
		panic(err)
	}
	companion := cp.NewServer(controlplane.ServerConfig{
		Name: "companion", Command: []string{"/bin/sh", "-c", "/bin/sleep 600; exit", dir}, // a shell waits for what is not its last word
		Ready: func(context.Context) error { return nil },
	})
	if err := companion.Start(context.Background()); err != nil {
		panic(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
		panic(err)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	panic(fmt.Sprintf("as the test wants (%v)", err))
}

func TestNothingIsLeftWhenTheProcessEndsBadly(t *testing.T) {
	signal := func(s os.Signal) func(*os.Process, io.Closer) error {
		return func(victim *os.Process, _ io.Closer) error { return victim.Signal(s) }
	}
	tests := map[string]struct {
		when      string // this file is there
		end       func(victim *os.Process, stdin io.Closer) error
		processes int // etcd, kube-apiserver, a companion and the leash
	}{
		"a panic":                          {"ready", func(_ *os.Process, stdin io.Closer) error { return stdin.Close() }, 4},
		"an interrupt":                     {"ready", signal(os.Interrupt), 4},
		"a kill":                           {"ready", signal(os.Kill), 4},
		"a kill at the moment etcd starts": {"etcd.log", signal(os.Kill), 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cp")
			victim := exec.CommandContext(t.Context(), os.Args[0])
			victim.Env = append(os.Environ(), victimDir+"="+dir)
			stdin, err := victim.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the victim does not come to "+test.when, func() bool {
				_, err := os.Stat(filepath.Join(dir, test.when))
				return err == nil
			})
			if alive := remains(t, dir); len(alive) < test.processes+1 {
				t.Errorf("only %q are there", alive)
			}
			if err := test.end(victim.Process, stdin); err != nil {
				t.Error(err)
			}
			if err := victim.Wait(); err == nil {
				t.Error("the victim ended well")
			}
			// The leash starts its work when the victim has ended.
			eventually(t, "something is left behind", func() bool { return len(remains(t, dir)) == 0 })
		})
	}
}

func eventually(t *testing.T, otherwise string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// remains is what there is of the control plane in a folder: the folder, and every process that mentions it.
func remains(t *testing.T, dir string) (found []string) {
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
