package history_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/transition"
)

// newTestNode returns a node with a history on a new disk.
func newTestNode(tb testing.TB, change func(*history.Config)) (*node, *history.Disk) {
	tb.Helper()
	disk, n := history.NewDisk(), newNode()
	n.restart(openOn(tb, disk, change))
	return n, disk
}

func TestLog_Record(t *testing.T) {
	n, _ := newTestNode(t, nil)
	n.set("web", status(v1.PodRunning, running(), 0))
	n.log.Stopping("test://0", "LivenessProbe", "Container main failed liveness probe, will be restarted")
	n.set("web", status(v1.PodRunning, failed(0, 137), 0))
	n.log.Acknowledged("web", 2, n.now.Add(41*time.Millisecond))
	n.step(time.Second)
	n.step(time.Second)
	page, err := n.log.Query(t.Context(), history.Query{Namespace: "default", Name: "web", Kinds: []history.Kind{history.KindPod}})
	if err != nil || len(page.Records) != 2 {
		t.Fatalf("got %+v, %v, want 2 records", page, err)
	}
	got := page.Records[0]
	if got.SyncedMs == nil || *got.SyncedMs < 40 || *got.SyncedMs > 42 { // both times are rounded
		t.Errorf("got synced after %v ms, want 41", got.SyncedMs)
	}
	got.Time, got.UptimeMs, got.Run, got.SyncedMs = time.Time{}, 0, "", nil
	want := history.Record{
		Seq: 3, Kind: history.KindPod, PodRef: history.PodRef{Namespace: "default", Name: "web", UID: "web"},
		Transition: history.Transition{
			Prev: 2, Version: 2, Via: transition.ViaWorker, Cause: transition.CauseProbe, Before: "Running 1/1", After: "Error 0/1",
			Changes: []transition.Change{
				{
					Container: "main", Field: "state", From: "running", To: "terminated", Reason: "Error",
					Exit: &transition.Exit{Code: 137, RanMs: 1226, StoppedBy: "LivenessProbe"},
				},
				{Container: "main", Field: "ready", From: "true", To: "false"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if first := page.Records[1]; first.SyncedMs == nil || first.Before != "" || first.Prev != 0 {
		t.Errorf("got %+v, want the first record, acknowledged by the newer version", first)
	}
}

// The record of a stop that a user asked for says who and why.
func TestLog_StoppedByUser(t *testing.T) {
	n, _ := newTestNode(t, nil)
	n.set("web", status(v1.PodRunning, running(), 0))
	n.log.Stopping("test://0", "User", "Container main is stopped by a user (root: new cert), will be restarted")
	n.set("web", status(v1.PodRunning, failed(0, 143), 0))
	n.step(time.Second)
	page, err := n.log.Query(t.Context(), history.Query{Namespace: "default", Name: "web", Kinds: []history.Kind{history.KindPod}, Limit: 1})
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("got %+v, %v, want a record", page, err)
	}
	got := page.Records[0]
	if change := got.Changes[0]; got.Cause != transition.CauseUser || change.Exit.StoppedBy != "User" ||
		change.Message != "Container main is stopped by a user (root: new cert), will be restarted" {
		t.Fatalf("got cause %s, %+v; want the user's reason", got.Cause, change)
	}
}

func TestLog_Folding(t *testing.T) {
	n, _ := newTestNode(t, nil)
	const versions = 1000
	for i := range versions {
		n.set("web", status(v1.PodRunning, running(), int32(i)))
	}
	n.step(0)
	if got := len(ofKind(all(t, n.log), history.KindPod)); got != 601 {
		t.Errorf("got %d records, want the first version and a burst of 600", got)
	}
	n.step(11 * time.Second)
	records := ofKind(all(t, n.log), history.KindPod)
	last := records[len(records)-1]
	if last.Count != versions-601 || last.FirstVersion != 602 || last.Version != versions || last.Counts["main/restartCount"] != versions-601 {
		t.Errorf("got %+v, want a record of versions 602 to 1000", last)
	}
	n.set("web", status(v1.PodFailed, failed(1, 1), 1))
	n.step(0)
	if records := ofKind(all(t, n.log), history.KindPod); records[len(records)-1].After != "Error 0/1 (1 restart)" {
		t.Errorf("got %+v, want the end of the pod at once", records[len(records)-1])
	}
}

func TestLog_PendingIsBounded(t *testing.T) {
	n, _ := newTestNode(t, func(c *history.Config) { c.MaxDisk = 16 << 20 })
	const versions = 20_000
	for i := range versions {
		n.set(fmt.Sprint("pod-", i%10), status(v1.PodRunning, running(), int32(i)))
	}
	n.step(0)
	n.step(11 * time.Second)
	total := 0
	for _, record := range ofKind(all(t, n.log), history.KindPod) {
		total += max(1, record.Count)
		if record.Gap {
			t.Errorf("gap before %+v", record)
		}
	}
	if total != versions {
		t.Errorf("got %d versions, want %d", total, versions)
	}
}

func TestLog_Removed(t *testing.T) {
	n, disk := newTestNode(t, nil)
	n.set("web", status(v1.PodRunning, running(), 0))
	n.remove("web")
	n.step(0)
	n.restart(openOn(t, disk, nil))
	n.set("web", status(v1.PodRunning, running(), 0)) // a pod of the same name and UID, for example a static pod
	n.step(0)
	records := ofKind(all(t, n.log), history.KindPod)
	if len(records) != 3 || records[1].Changes[0].Field != transition.FieldRemoved || records[1].Version != 0 || records[2].Prev != 0 {
		t.Errorf("got %+v, want the status, its removal, and a new chain", records)
	}
}

func TestLog_Restart(t *testing.T) {
	for name, crash := range map[string]bool{"stop": false, "crash": true} {
		t.Run(name, func(t *testing.T) {
			n, disk := newTestNode(t, nil)
			n.set("web", status(v1.PodRunning, running(), 0))
			n.step(0)
			if !crash {
				if err := n.log.Stop(n.now); err != nil {
					t.Fatal(err)
				}
			}
			n.restart(openOn(t, disk, nil))
			n.set("web", status(v1.PodRunning, waiting("CrashLoopBackOff"), 3))
			n.step(0)
			records := all(t, n.log)
			last := records[len(records)-1]
			if last.Cause != transition.CauseRestart || last.Before != "Running 1/1" || last.Prev == 0 || last.Gap {
				t.Errorf("got %+v, want a record that continues the earlier run", last)
			}
			started := ofKind(records, history.KindAgent)
			if event := started[len(started)-1].Agent; event.Event != history.EventStarted || event.Unclean != crash {
				t.Errorf("got %+v, want a start with unclean %v", event, crash)
			}
		})
	}
}

func TestLog_DiskFails(t *testing.T) {
	for name, fault := range map[string]error{"full": syscall.ENOSPC, "broken": syscall.EIO, "read-only": syscall.EROFS} {
		t.Run(name, func(t *testing.T) {
			n, disk := newTestNode(t, nil)
			n.set("web", status(v1.PodRunning, running(), 0))
			n.step(0)
			disk.Fail = func(op string) error {
				if op == "read" {
					return nil
				}
				return fmt.Errorf("%s: %w", op, fault)
			}
			n.set("web", status(v1.PodRunning, waiting("CrashLoopBackOff"), 1))
			n.step(2 * time.Second)
			if got := len(ofKind(all(t, n.log), history.KindPod)); got != 2 {
				t.Errorf("got %d records while the disk fails, want 2", got)
			}
			disk.Fail = nil
			n.step(time.Minute)
			n.step(2 * time.Second)
			reopened := openOn(t, disk, nil)
			if got := len(ofKind(all(t, reopened), history.KindPod)); got != 2 {
				t.Errorf("got %d records on the disk, want 2", got)
			}
		})
	}
}

// TestLog_DiskFailsForLong checks that memory is bounded and that what was dropped is counted.
func TestLog_DiskFailsForLong(t *testing.T) {
	n, disk := newTestNode(t, nil)
	disk.Fail = func(string) error { return syscall.EIO }
	const versions = 2000
	for i := range versions {
		n.set(fmt.Sprint("pod-", i%100), status(v1.PodRunning, running(), int32(i)))
		if i%100 == 0 {
			n.step(time.Second)
		}
	}
	disk.Fail = nil
	n.step(2 * time.Minute)
	records := all(t, n.log)
	var dropped, gaps int
	for _, record := range records {
		if record.Agent != nil && record.Agent.Event == history.EventDropped {
			dropped += int(record.Agent.Count)
		}
		if record.Gap {
			gaps++
		}
	}
	if got := len(records); got+dropped < versions || dropped == 0 || gaps == 0 {
		t.Errorf("got %d records, %d dropped, %d gaps, want all records or their number", got, dropped, gaps)
	}
}

func TestH4_Retention(t *testing.T) {
	n, disk := newTestNode(t, func(c *history.Config) { c.MaxDisk = 1 << 20 })
	const bound = 1<<20 + 1<<17 + 1<<16 // and one segment, and a batch
	for i := range 30_000 {
		n.set(fmt.Sprintf("pod-%d", i%100), status(v1.PodRunning, waiting(fmt.Sprint("Reason", i*7919)), int32(i)))
		if i%100 == 0 {
			n.step(time.Second)
		}
		if i%1000 == 0 {
			if err := n.log.SealAll(); err != nil {
				t.Fatal(err)
			}
		}
		if size := disk.Size(); size > bound {
			t.Fatalf("got %d bytes, want at most %d", size, bound)
		}
	}
	records := all(t, n.log)
	if first := records[0].Seq; first < 1000 || len(records) < 1000 {
		t.Errorf("got %d records from %d, want the newest", len(records), first)
	}
	n.step(40 * 24 * time.Hour)
	n.step(7 * time.Hour)
	if records := all(t, n.log); len(records) > 2000 {
		t.Errorf("got %d records after 40 days, want those of the last segment", len(records))
	}
}

func TestLog_Syncs(t *testing.T) {
	n, disk := newTestNode(t, nil)
	n.step(time.Minute)
	n.step(time.Minute)
	before := disk.Syncs
	for range 100 {
		n.step(time.Second)
	}
	if disk.Syncs != before {
		t.Errorf("got %d syncs of an idle history, want 0", disk.Syncs-before)
	}
	for i := range 1000 {
		n.set("web", status(v1.PodRunning, running(), int32(i)))
		n.step(10 * time.Millisecond)
	}
	if got := disk.Syncs - before; got > 12 {
		t.Errorf("got %d syncs in 10 s, want one per second", got)
	}
}

func TestLog_Attachments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := make(chan history.LogRequest, 10)
		log := openOn(t, history.NewDisk(), func(c *history.Config) {
			c.LogLines = 2
			c.ReadLog = func(_ context.Context, request history.LogRequest) (string, error) {
				requests <- request
				return "one\ntwo\nopen /data: no such file\n", nil
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- log.Run(ctx) }()
		n := newNode()
		n.log = log
		for i := range int32(3) {
			n.set("web", status(v1.PodRunning, running(), i))
			n.set("web", status(v1.PodRunning, failed(i, 3), i))
			time.Sleep(20 * time.Second)
			synctest.Wait()
			n.now = time.Now()
		}
		page, err := log.Query(t.Context(), history.Query{Kinds: []history.Kind{history.KindLog}})
		if err != nil || len(page.Records) != 2 {
			t.Fatalf("got %+v, %v, want the lines of the first and third failure: at most one in 30 s", page.Records, err)
		}
		first, third := page.Records[1].Attachment, page.Records[0].Attachment
		if first.Lines != "two\nopen /data: no such file" || first.LineCount != 2 || first.Context.Code != 3 || first.Context.RanMs != 1226 {
			t.Errorf("got %+v, want the last two lines and the exit", first)
		}
		if third.Lines != "" || third.SameAs != page.Records[1].Seq || third.Attempt != 2 {
			t.Errorf("got %+v, want a reference to the same lines", third)
		}
		if request := <-requests; request.Container != "main" || request.Attempt != 0 || request.Lines != 2 {
			t.Errorf("got %+v, want the failed instance", request)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLog_Node(t *testing.T) {
	n, disk := newTestNode(t, nil)
	ready := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
	unready := ready.DeepCopy()
	unready.Status.Conditions[0].Status = v1.ConditionFalse
	n.log.NodeChanged(nil, ready)
	n.log.NodeChanged(ready, ready.DeepCopy())
	n.log.NodeChanged(ready, unready)
	n.step(0)
	n.restart(openOn(t, disk, nil))
	n.log.NodeChanged(nil, unready) // as the earlier agent knew it
	n.log.NodeChanged(unready, ready)
	n.step(0)
	records := ofKind(all(t, n.log), history.KindNode)
	var summaries []string
	for _, record := range records {
		summaries = append(summaries, record.Before+" -> "+record.After)
	}
	if diff := cmp.Diff([]string{" -> Ready", "Ready -> NotReady", "NotReady -> Ready"}, summaries); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLog_Memory(t *testing.T) {
	log, err := history.Open(history.Config{MaxDisk: -1})
	if err != nil {
		t.Fatal(err)
	}
	n := newNode()
	n.restart(log)
	n.set("web", status(v1.PodRunning, running(), 0))
	n.step(0)
	if got := len(ofKind(all(t, log), history.KindPod)); got != 1 {
		t.Errorf("got %d records, want 1", got)
	}
}

func TestOpen_Locked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	first, err := history.Open(history.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := history.Open(history.Config{Dir: dir}); !errors.Is(err, history.ErrLocked) {
		t.Errorf("got %v, want ErrLocked", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := history.Open(history.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
}

func TestConfig_Validation(t *testing.T) {
	_, err := history.Open(history.Config{MaxDisk: 1, MaxAge: -1, Sync: -1, LogBytes: -1})
	for _, field := range []string{"Dir", "MaxDisk", "MaxAge", "Sync", "LogBytes"} {
		if err == nil || !strings.Contains(err.Error(), "history.Config: "+field) {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

func TestLog_Follow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openOn(t, history.NewDisk(), nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- log.Run(ctx) }()
		n := newNode()
		n.log = log
		n.set("web", status(v1.PodRunning, running(), 0))
		n.set("other", status(v1.PodRunning, running(), 0))
		var got []string
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			for record := range log.Follow(ctx, history.Query{Namespace: "default", Name: "web"}, 0) {
				got = append(got, record.After)
			}
		}()
		time.Sleep(time.Second)
		n.set("web", status(v1.PodRunning, waiting("CrashLoopBackOff"), 1))
		time.Sleep(time.Second)
		stop()
		<-followed
		<-done
		if diff := cmp.Diff([]string{"Running 1/1", "CrashLoopBackOff 0/1 (1 restart)"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestQuery_Paging(t *testing.T) {
	n, _ := newTestNode(t, nil)
	const versions = 3000
	for i := range versions {
		n.set(fmt.Sprint("pod-", i%7), status(v1.PodRunning, running(), int32(i)))
		if i%500 == 0 {
			n.step(time.Second)
		}
	}
	n.step(time.Second)
	if err := n.log.SealAll(); err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]history.Query{
		"by name": {Namespace: "default", Name: "pod-3"}, "by UID": {UID: "pod-3"}, "all": {Kinds: []history.Kind{history.KindPod}},
		"since": {Namespace: "default", Name: "pod-3", Since: n.now.Add(-2 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got []uint64
			for _, record := range all(t, n.log) {
				if record.Kind == history.KindPod && (query.Name+query.UID == "" || record.UID == "pod-3") && !record.Time.Before(query.Since) {
					want = append([]uint64{record.Seq}, want...)
				}
			}
			query.Limit = 100
			for {
				page, err := n.log.Query(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				for _, record := range page.Records {
					got = append(got, record.Seq)
				}
				if page.Next == 0 {
					break
				}
				query.Before = page.Next
			}
			if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRecord_RoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "web", "\"quoted\"\n\t\x00\\", "é\u2028\x1b[31m"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		record := history.Record{
			Seq: rapid.Uint64Min(1).Draw(t, "seq"), Time: time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "time")).UTC(),
			UptimeMs: rapid.Int64Min(0).Draw(t, "uptime"), Run: text.Draw(t, "run"), Kind: history.Kind(text.Draw(t, "kind")),
			PodRef: history.PodRef{Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name"), UID: text.Draw(t, "uid")},
			Transition: history.Transition{
				Prev: rapid.Uint64().Draw(t, "prev"), Version: rapid.Uint64().Draw(t, "version"), Before: text.Draw(t, "before"),
				After: text.Draw(t, "after"), Gap: rapid.Bool().Draw(t, "gap"),
				Changes: []transition.Change{{
					Container: text.Draw(t, "container"), Field: "state", Message: text.Draw(t, "message"),
					Exit: &transition.Exit{Code: rapid.Int32().Draw(t, "code"), StoppedBy: text.Draw(t, "stop")},
				}},
				Counts: map[string]int{text.Draw(t, "field"): 3},
			},
			Acks:       []history.Ack{{UID: text.Draw(t, "ack"), Version: 3}},
			Attachment: &history.Attachment{Lines: text.Draw(t, "lines")},
		}
		payload := history.Encode(&record)
		got, err := history.Decode(payload)
		if err != nil {
			t.Fatalf("%v in %s", err, payload)
		}
		if diff := cmp.Diff(record, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if seq := history.HeadSeq(payload); seq != record.Seq {
			t.Errorf("the head has sequence number %d, want %d", seq, record.Seq)
		}
	})
}

func TestLastLines(t *testing.T) {
	for _, test := range []struct {
		text         string
		lines, bytes int
		want         string
	}{
		{"", 2, 100, ""}, {"a\nb\nc\n", 2, 100, "b\nc"}, {"a\nb\nc", 5, 100, "a\nb\nc"}, {"aé", 2, 1, ""}, {"a\n\n\n", 3, 100, "a"},
		{"abc\ndef", 5, 5, "c\ndef"}, {"\xff", 1, 10, "\ufffd"},
	} {
		if got := history.LastLines(test.text, test.lines, test.bytes); got != test.want {
			t.Errorf("%q, %d lines, %d bytes: got %q, want %q", test.text, test.lines, test.bytes, got, test.want)
		}
	}
}
