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
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func all(podid.UID) bool  { return true }
func none(podid.UID) bool { return false }

// restart starts the container's next instance and waits until it has ended.
func restart(t *testing.T, r *cri.Runtime, pod *v1.Pod, sandbox string, count int) {
	t.Helper()
	start := plan.Start{Container: &pod.Spec.Containers[0], RestartCount: count}
	if err := r.StartContainer(t.Context(), pod, sandbox, start); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if c := inspect(t, r, pod).Containers[0]; c.State != observed.Exited || c.RestartCount != count {
			return fmt.Errorf("the newest container is %+v", c)
		}
		return nil
	})
}

func TestOfAPodThatCrashesOnlyItsLastEndIsKept(t *testing.T) {
	c := containerd.ForTest(t)
	links := t.TempDir()
	r, config := newRuntime(t, c, func(config *cri.Config) { config.ContainerLogDir = links })
	pod, alive := newPod("exit", "3", "--message", "why"), newPod("pause")
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	run(t, r, alive)
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
	if err := r.CollectGarbage(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	seen := inspect(t, r, pod)
	if len(seen.Containers) != 1 || len(seen.Sandboxes) != 2 || seen.Containers[0].RestartCount != 2 ||
		seen.Containers[0].Exit.Message != "why" {
		t.Errorf("after three ends: %+v", seen)
	}
	restart(t, r, pod, newer, 3)
	if err := r.CollectGarbage(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	seen = inspect(t, r, pod)
	if len(seen.Containers) != 1 || len(seen.Sandboxes) != 1 || seen.Sandboxes[0].ID != newer {
		t.Errorf("after an end in a new sandbox: %+v", seen)
	}
	logs, err := filepath.Glob(filepath.Join(config.LogDir, "*_"+string(pod.UID), "main", "*"))
	if err != nil || len(logs) != 1 || filepath.Base(logs[0]) != "3.log" {
		t.Errorf("logs: %v, %v", logs, err)
	}
	if left, err := os.ReadDir(links); err != nil || len(left) != 2 {
		t.Errorf("links: %v, %v", left, err)
	}
	// Nobody wants either, but all of it is new.
	if err := r.CollectGarbage(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	if seen := inspect(t, r, pod); len(seen.Containers) != 1 || len(seen.Sandboxes) != 1 {
		t.Errorf("what is new was taken: %+v", seen)
	}
	if seen := inspect(t, r, alive); !seen.Running() {
		t.Errorf("what runs was taken: %+v", seen)
	}
	remove(t, r, pod)
	remove(t, r, alive)
}

// readLog is the container's own words in a file of its log, compressed or not.
func readLog(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var from io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if from, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	content, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for line := range strings.Lines(string(content)) {
		words = append(words, strings.SplitN(strings.TrimSpace(line), " ", 4)[3])
	}
	return strings.Join(words, "\n")
}

func TestALogIsRotatedUnderARunningContainer(t *testing.T) {
	c := containerd.ForTest(t)
	r, config := newRuntime(t, c, func(config *cri.Config) { config.ContainerLogMaxSize = 10 })
	pod := newPod("serve")
	run(t, r, pod)
	log := filepath.Join(config.LogDir, "default_trial_"+string(pod.UID), "main", "0.log")
	eventually(t, func() error {
		if info, err := os.Stat(log); err != nil || info.Size() < 10 {
			return fmt.Errorf("the container has not logged yet: %w", err)
		}
		return nil
	})
	if err := r.RotateLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, err := filepath.Glob(log + ".*")
	if err != nil || len(old) != 1 || readLog(t, old[0]) != "serving on port 8080" {
		t.Fatalf("old logs: %v, %v", old, err)
	}
	if info, err := os.Stat(log); err != nil || info.Size() != 0 {
		t.Fatalf("the new log: %v, %v", info, err)
	}
	// A rotation that was cut off: the runtime writes into what has an old log's name now.
	cut := log + "." + time.Now().Add(time.Hour).UTC().Format("20060102-150405")
	if err := os.Rename(log, cut); err != nil {
		t.Fatal(err)
	}
	if err := r.RotateLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.StopContainer(t.Context(), pod, plan.Stop{ID: inspect(t, r, pod).Containers[0].ID, Grace: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if words := readLog(t, log); words != "terminated" {
			return fmt.Errorf("the new log has %q", words)
		}
		return nil
	})
	if err := r.RotateLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if readLog(t, log) != "terminated" {
		t.Error("the log of a container that has ended was rotated")
	}
	remove(t, r, pod)
}
