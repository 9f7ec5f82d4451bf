package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
)

// TestLog_Oldest checks that the oldest time follows retention, and is the one of the first record that a query returns.
func TestLog_Oldest(t *testing.T) {
	n, disk := newTestNode(t, func(c *history.Config) { c.MaxAge = 24 * time.Hour })
	started, isRemoved := n.now, false
	for i := range 400 {
		n.set(fmt.Sprint("pod-", i), status(v1.PodRunning, waiting(fmt.Sprint("Reason", i*i)), 0))
		n.step(10 * time.Minute)
		if i%20 != 0 {
			continue
		}
		if err := n.log.SealAll(); err != nil {
			t.Fatal(err)
		}
		records := all(t, n.log)
		if got := n.log.Oldest(t.Context()); !got.Equal(records[0].Time) {
			t.Fatalf("after %d: got %v, want %v", i, got, records[0].Time)
		}
		isRemoved = isRemoved || n.log.Oldest(t.Context()).After(started.Add(time.Hour))
	}
	if !isRemoved {
		t.Error("no segment was removed")
	}
	n.restart(openOn(t, disk, nil))
	if got, want := n.log.Oldest(t.Context()), all(t, n.log)[0].Time; !got.Equal(want) {
		t.Errorf("after a restart: got %v, want %v", got, want)
	}
}

func TestLog_Problem(t *testing.T) {
	n, disk := newTestNode(t, nil)
	disk.Fail = func(op string) error {
		if op == "write" {
			return syscall.EIO
		}
		return nil
	}
	n.set("web", status(v1.PodRunning, running(), 0))
	n.step(time.Second)
	if got := n.log.Problem(); got != syscall.EIO.Error() {
		t.Errorf("got %q, want the error of the disk", got)
	}
	disk.Fail = nil
	n.set("web", status(v1.PodRunning, running(), 1))
	n.step(2 * time.Minute)
	if got := n.log.Problem(); got != "" {
		t.Errorf("got %q after the outage", got)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := history.Open(history.Config{Dir: file})
	if err != nil || log.Problem() == "" {
		t.Errorf("got %v, %q, want a problem of a directory that is a file", err, log.Problem())
	}
	if got := log.Oldest(t.Context()); !got.IsZero() {
		t.Errorf("got oldest record of %v without one", got)
	}
}
