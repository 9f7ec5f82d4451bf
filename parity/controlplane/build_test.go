package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/parity/controlplane"
)

func TestBuildSaysNothingWhenThereIsNothingToDo(t *testing.T) {
	var progress bytes.Buffer
	binaries, err := controlplane.Build(soon(t), &progress)
	if err != nil || progress.Len() != 0 {
		t.Fatalf("%v, %q", err, progress.String())
	}
	if !strings.Contains(binaries.APIServer, "v1.36.3") {
		t.Errorf("the version is not in the path %s", binaries.APIServer)
	}
}

func TestBuildMakesEverythingInAnEmptyCacheAndSaysHowLongItTakes(t *testing.T) {
	compiled, err := exec.CommandContext(soon(t), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(compiled))) // else it would be in the folder of the next line
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var progress bytes.Buffer
	binaries, err := controlplane.Build(t.Context(), &progress)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"kube-apiserver v1.36.3", "etcd v3.6.8", "6 minutes", "built in"} {
		if !strings.Contains(progress.String(), words) {
			t.Errorf("the progress has no %q:\n%s", words, progress.String())
		}
	}
	version, err := exec.CommandContext(soon(t), binaries.APIServer, "--version").CombinedOutput()
	if err != nil || string(version) != "Kubernetes v1.36.3\n" {
		t.Errorf("%q, %v", version, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(binaries.Supervisor), "new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left over: %v", err)
	}
}

func TestBuildSaysFromWhereItCanBeCalled(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := controlplane.Build(soon(t), os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "inside") {
		t.Fatalf("have %v", err)
	}
}

func TestBuildWaitsForAnotherProcessThatBuilds(t *testing.T) {
	binaries, err := controlplane.Build(soon(t), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(filepath.Join(filepath.Dir(binaries.Supervisor), "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var progress bytes.Buffer
	_, err = controlplane.Build(ctx, &progress)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(progress.String(), "waiting for another process") {
		t.Fatalf("%v, %q", err, progress.String())
	}
}
