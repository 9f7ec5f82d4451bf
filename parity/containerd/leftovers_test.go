package containerd_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/needs"
)

func TestCloseLeavesNothing(t *testing.T) {
	cases := map[string]func(*containerd.Containerd) error{
		"while it runs":      func(*containerd.Containerd) error { return nil },
		"when it was killed": (*containerd.Containerd).Kill,
		"while it is frozen": (*containerd.Containerd).Freeze,
	}
	for name, before := range cases {
		t.Run(name, func(t *testing.T) {
			c := containerd.ForTest(t)
			startPod(t, c)
			traces := tracesOf(t, c.Dir())
			traces.mustExist(t)

			if err := before(c); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			traces.mustBeGone(t)
			if err := c.Close(); err != nil {
				t.Errorf("closed again: %v", err)
			}
		})
	}
}

func TestAStartThatFailsLeavesNothing(t *testing.T) {
	needs.Containers(t)
	// A ctr that imports nothing, but says which bridge belongs to the socket that it is given.
	programs, ctr := t.TempDir(), "#!/bin/sh\ncat ${2%/*}/bridge; exit 1\n"
	if err := os.WriteFile(filepath.Join(programs, "ctr"), []byte(ctr), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	dir := t.TempDir()

	_, err := containerd.Start(t.Context(), containerd.Config{ParentDir: dir})
	if err == nil {
		t.Fatal("no error where images cannot be imported")
	}
	bridge := regexp.MustCompile(`herald\d+`).FindString(err.Error())
	if left := interfaces(t, bridge); bridge == "" || len(left) != 0 {
		t.Errorf("bridge %q: left behind %q; the error was %v", bridge, left, err)
	}
	if left := append(glob(t, dir+"/*"), processes(t, dir)...); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// victim marks the run of this test's binary that is to be killed.
const victim = "HERALD_CONTAINERD_VICTIM"

func TestAKilledTestLeavesNothing(t *testing.T) {
	if os.Getenv(victim) != "" {
		c := containerd.ForTest(t)
		startPod(t, c)
		fmt.Println("folder:", c.Dir())
		select {}
	}
	needs.Containers(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), victim+"=yes", "TMPDIR="+t.TempDir())
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	folder := ""
	for lines := bufio.NewScanner(output); folder == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "folder: "); ok {
			folder = rest
		}
	}
	traces := tracesOf(t, folder)
	traces.mustExist(t)

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	eventually(t, func() error {
		_, err := os.Stat(folder)
		if err == nil {
			return fmt.Errorf("%s is still there", folder)
		}
		return nil
	})
	traces.mustBeGone(t)
}

func startPod(t *testing.T, c *containerd.Containerd) {
	t.Helper()
	n := newNode(t, c)
	n.runContainer(n.runPod("leftover"), "serve", "serve", "--port", "8080")
}
