package runtime_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func keepAll(podid.UID) bool  { return true }
func keepNone(podid.UID) bool { return false }

// restart starts the next instance of the container and waits until it exits.
func restart(t *testing.T, r *cri.Runtime, pod *v1.Pod, sandbox string, count int) {
	t.Helper()
	start := plan.Start{Container: &pod.Spec.Containers[0], RestartCount: count}
	if err := r.StartContainer(t.Context(), pod, sandbox, start); err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error {
		if c := inspect(t, r, pod).Containers[0]; c.State != observed.Exited || c.RestartCount != count {
			return fmt.Errorf("newest container is %+v", c)
		}
		return nil
	})
}

// Garbage collection keeps the last exited container of a crashing pod.
func TestRuntime_CollectGarbage(t *testing.T) {
	c := containerd.ForTest(t)
	links := t.TempDir()
	r, config := newRuntime(t, c, func(config *cri.Config) { config.ContainerLogDir = links })
	pod, running := newPod("exit", "3", "--message", "why"), newPod("pause")
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	run(t, r, running)
	sandbox, err := r.StartSandbox(t.Context(), pod, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		restart(t, r, pod, sandbox, i)
	}
	if err := r.StopSandbox(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	newer, err := r.StartSandbox(t.Context(), pod, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CollectGarbage(t.Context(), keepAll); err != nil {
		t.Fatal(err)
	}
	got := inspect(t, r, pod)
	if len(got.Containers) != 1 || len(got.Sandboxes) != 2 || got.Containers[0].RestartCount != 2 ||
		got.Containers[0].Exit.Message != "why" {
		t.Errorf("after three crashes: got %+v", got)
	}
	restart(t, r, pod, newer, 3)
	if err := r.CollectGarbage(t.Context(), keepAll); err != nil {
		t.Fatal(err)
	}
	got = inspect(t, r, pod)
	if len(got.Containers) != 1 || len(got.Sandboxes) != 1 || got.Sandboxes[0].ID != newer {
		t.Errorf("after a crash in a new sandbox: got %+v", got)
	}
	logs, err := filepath.Glob(filepath.Join(config.LogDir, "*_"+string(pod.UID), "main", "*"))
	if err != nil || len(logs) != 1 || filepath.Base(logs[0]) != "3.log" {
		t.Errorf("got logs %v, %v; want 3.log", logs, err)
	}
	if left, err := os.ReadDir(links); err != nil || len(left) != 2 {
		t.Errorf("got links %v, %v; want two", left, err)
	}
	// Neither pod is wanted, but everything is too young to be removed.
	if err := r.CollectGarbage(t.Context(), keepNone); err != nil {
		t.Fatal(err)
	}
	if got := inspect(t, r, pod); len(got.Containers) != 1 || len(got.Sandboxes) != 1 {
		t.Errorf("young containers were removed: got %+v", got)
	}
	if got := inspect(t, r, running); !got.Running() {
		t.Errorf("running containers were removed: got %+v", got)
	}
	remove(t, r, pod)
	remove(t, r, running)
}

// readLog returns the container's output in a log file, compressed or not.
func readLog(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var reader io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if reader, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	var output []string
	for line := range strings.Lines(string(content)) {
		output = append(output, strings.SplitN(strings.TrimSpace(line), " ", 4)[3])
	}
	return strings.Join(output, "\n")
}

func TestRuntime_RotateLogs(t *testing.T) {
	c := containerd.ForTest(t)
	r, config := newRuntime(t, c, func(config *cri.Config) { config.ContainerLogMaxSize = 10 })
	pod := newPod("serve")
	run(t, r, pod)
	log := filepath.Join(config.LogDir, "default_test_"+string(pod.UID), "main", "0.log")
	heraldtest.Eventually(t, func() error {
		if info, err := os.Stat(log); err != nil || info.Size() < 10 {
			return fmt.Errorf("no log yet: %w", err)
		}
		return nil
	})
	if err := r.RotateLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, err := filepath.Glob(log + ".*")
	if err != nil || len(old) != 1 || readLog(t, old[0]) != "serving on port 8080" {
		t.Fatalf("got rotated logs %v, %v; want one", old, err)
	}
	if info, err := os.Stat(log); err != nil || info.Size() != 0 {
		t.Fatalf("got new log %v, %v; want an empty one", info, err)
	}
	// An interrupted rotation: the runtime still writes to the renamed log.
	interrupted := log + "." + time.Now().Add(time.Hour).UTC().Format("20060102-150405")
	if err := os.Rename(log, interrupted); err != nil {
		t.Fatal(err)
	}
	if err := r.RotateLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.StopContainer(t.Context(), pod, plan.Stop{ID: inspect(t, r, pod).Containers[0].ID, Grace: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error {
		if output := readLog(t, log); output != "terminated" {
			return fmt.Errorf("got new log %q, want terminated", output)
		}
		return nil
	})
	if err := r.RotateLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if readLog(t, log) != "terminated" {
		t.Error("the log of an exited container was rotated")
	}
	remove(t, r, pod)
}
