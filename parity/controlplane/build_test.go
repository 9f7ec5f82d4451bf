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

func TestBuild_UpToDate(t *testing.T) {
	var progress bytes.Buffer
	binaries, err := controlplane.Build(testContext(t), &progress)
	if err != nil || progress.Len() != 0 {
		t.Fatalf("got %v and progress %q, want neither", err, progress.String())
	}
	if !strings.Contains(binaries.APIServer, "v1.36.3") {
		t.Errorf("got path %s, want the version in it", binaries.APIServer)
	}
}

func TestBuild_EmptyCache(t *testing.T) {
	compiled, err := exec.CommandContext(testContext(t), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(compiled))) // it defaults to a directory below XDG_CACHE_HOME
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var progress bytes.Buffer
	binaries, err := controlplane.Build(t.Context(), &progress)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"kube-apiserver v1.36.3", "etcd v3.6.8", "6 minutes", "built in"} {
		if !strings.Contains(progress.String(), text) {
			t.Errorf("got progress %q, want %q in it", progress.String(), text)
		}
	}
	version, err := exec.CommandContext(testContext(t), binaries.APIServer, "--version").CombinedOutput()
	if err != nil || string(version) != "Kubernetes v1.36.3\n" {
		t.Errorf("kube-apiserver --version: got %q, %v", version, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(binaries.Supervisor), "new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary directory exists: %v", err)
	}
}

func TestBuild_OutsideModule(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := controlplane.Build(testContext(t), os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "inside") {
		t.Fatalf("got %v, want an error that names the module", err)
	}
}

func TestBuild_ConcurrentProcess(t *testing.T) {
	binaries, err := controlplane.Build(testContext(t), os.Stderr)
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
		t.Fatalf("got %v, progress %q; want DeadlineExceeded and a message", err, progress.String())
	}
}
