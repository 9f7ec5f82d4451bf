package history_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/transition"
)

// checkChains checks H2: each record of a pod continues the previous one, which retention may have removed, or has a gap.
func checkChains(tb testing.TB, records []history.Record) {
	tb.Helper()
	last := map[string]history.Record{}
	for _, record := range ofKind(records, history.KindPod) {
		previous := last[record.UID]
		if isContinued := record.Prev == previous.Seq && record.Before == previous.After; !isContinued && !record.Gap &&
			record.Prev >= records[0].Seq {
			tb.Errorf("H2: %+v does not continue %+v", record, previous)
		}
		last[record.UID] = record
		if isRemoval(record) {
			delete(last, record.UID)
		}
	}
}

func isRemoval(record history.Record) bool {
	for _, change := range record.Changes {
		if change.Field == transition.FieldRemoved {
			return true
		}
	}
	return false
}

// fill accepts so many versions of other pods that what is in memory is dropped.
func fill(n *node) {
	for i := range 1000 {
		n.set(fmt.Sprint("other-", i%10), status(v1.PodRunning, running(), int32(i)))
		if i%100 == 0 {
			n.step(time.Second)
		}
	}
}

func TestH2_RemovalDropped(t *testing.T) {
	for name, restart := range map[string]bool{"same process": false, "killed after the outage": true} {
		t.Run(name, func(t *testing.T) {
			n, disk := newTestNode(t, nil)
			n.set("web", status(v1.PodRunning, running(), 0))
			n.step(2 * time.Second)
			disk.Fail = func(string) error { return syscall.EIO }
			n.remove("web")
			fill(n)
			disk.Fail = nil
			n.step(2 * time.Minute)
			if restart {
				n.restart(openOn(t, disk, nil))
			}
			n.step(2 * time.Second)
			records := ofKind(all(t, n.log), history.KindPod)
			var removals int
			for _, record := range records {
				if record.UID == "web" && isRemoval(record) && record.Gap {
					removals++
				}
			}
			if removals != 1 {
				t.Errorf("got %d records of the removal with a gap, want 1", removals)
			}
			n.set("web", status(v1.PodRunning, running(), 1))
			n.step(2 * time.Second)
			checkChains(t, all(t, n.log))
		})
	}
}

// TestH2_PodReturnsDuringOutage removes a pod and adds it again, and both records are dropped.
func TestH2_PodReturnsDuringOutage(t *testing.T) {
	n, disk := newTestNode(t, nil)
	n.set("web", status(v1.PodRunning, running(), 0))
	n.step(2 * time.Second)
	disk.Fail = func(string) error { return syscall.EIO }
	n.remove("web")
	n.step(time.Millisecond)
	n.set("web", status(v1.PodRunning, running(), 5))
	fill(n)
	disk.Fail = nil
	n.step(2 * time.Minute)
	n.step(2 * time.Second)
	records := all(t, n.log)
	checkChains(t, records)
	var last history.Record
	for _, record := range ofKind(records, history.KindPod) {
		if record.UID == "web" {
			last = record
		}
	}
	if last.After != "Running 1/1 (5 restarts)" || isRemoval(last) {
		t.Errorf("got %+v as the last record, want the present state", last)
	}
}

// TestH2_SyncFailed takes what a failed sync left to a power failure.
func TestH2_SyncFailed(t *testing.T) {
	n, disk := newTestNode(t, nil)
	n.set("web", status(v1.PodRunning, running(), 0))
	n.step(0)
	n.step(2 * time.Second)
	disk.Fail = func(op string) error {
		if op == "sync" {
			return syscall.EIO
		}
		return nil
	}
	n.set("web", status(v1.PodRunning, running(), 1))
	n.step(0)
	n.step(2 * time.Second)
	disk.Fail = nil
	n.set("web", status(v1.PodRunning, running(), 2))
	n.step(time.Minute)
	n.step(2 * time.Second)
	disk.PowerFailure(func(int) int { return 0 })
	n.restart(openOn(t, disk, nil))
	n.set("web", status(v1.PodRunning, running(), 3))
	n.step(2 * time.Second)
	records := all(t, n.log)
	checkChains(t, records)
	var unsynced int64
	for _, record := range ofKind(records, history.KindAgent) {
		if record.Agent.Event == history.EventUnsynced {
			unsynced += record.Agent.Count
		}
	}
	if unsynced == 0 {
		t.Error("no record says that a sync failed")
	}
}

// TestH2_PlainFileStays lets the removal of a sealed segment's plain file fail. It must not come back alone.
func TestH2_PlainFileStays(t *testing.T) {
	n, disk := newTestNode(t, func(c *history.Config) { c.MaxAge = 24 * time.Hour })
	fill(n)
	disk.Fail = func(op string) error {
		if op == "remove" {
			return syscall.EIO
		}
		return nil
	}
	if err := n.log.SealAll(); err != nil {
		t.Fatal(err)
	}
	sealed := disk.Names(".log.gz")
	if len(sealed) == 0 {
		t.Fatal("no segment was sealed")
	}
	disk.Fail = nil
	n.set("web", status(v1.PodRunning, running(), 1))
	n.step(25 * time.Hour)
	n.set("web", status(v1.PodRunning, running(), 2))
	n.step(25 * time.Hour)
	n.restart(openOn(t, disk, nil))
	checkChains(t, all(t, n.log))
	for _, name := range append(disk.Names(".log"), disk.Names(".log.gz")...) {
		for _, old := range sealed {
			if strings.HasPrefix(old, name) {
				t.Errorf("%s was not removed", name)
			}
		}
	}
}

// TestOpen_UnreadableSegment checks that the sequence numbers of a file that cannot be read are not used again.
func TestOpen_UnreadableSegment(t *testing.T) {
	n, disk := newTestNode(t, nil)
	fill(n)
	records := all(t, n.log)
	disk.Fail = func(op string) error {
		if op == "read" {
			return syscall.EIO
		}
		return nil
	}
	n.restart(openOn(t, disk, nil))
	n.step(2 * time.Second)
	disk.Fail = nil
	n.restart(openOn(t, disk, nil))
	seen := map[uint64]bool{}
	for _, record := range all(t, n.log) {
		if seen[record.Seq] {
			t.Errorf("sequence number %d twice", record.Seq)
		}
		seen[record.Seq] = true
	}
	for _, record := range records {
		if !seen[record.Seq] {
			t.Fatalf("record %d is missing", record.Seq)
		}
	}
}
