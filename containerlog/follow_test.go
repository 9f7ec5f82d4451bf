package containerlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/containerlog"
	"github.com/heraldnode/herald/observed"
)

// following is a log that is followed.
type following struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error

	mu      sync.Mutex
	changed *sync.Cond
	output  strings.Builder
	flushed string // what the client has seen
}

func (n *node) follow(options v1.PodLogOptions) *following {
	n.t.Helper()
	options.Follow = true
	stream, err := n.open(&options)
	if err != nil {
		n.t.Fatal(err)
	}
	f := &following{t: n.t, done: make(chan error, 1)}
	f.changed = sync.NewCond(&f.mu)
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(n.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stream.Close()
		f.done <- stream.Copy(ctx, f, f.flush)
	}()
	n.t.Cleanup(func() {
		f.cancel()
		<-ended
	})
	return f
}

func (f *following) Write(content []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.output.Write(content)
}

func (f *following) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushed = f.output.String()
	f.changed.Broadcast()
	return nil
}

// waitFor waits until the client has seen this.
func (f *following) waitFor(want string) {
	f.t.Helper()
	if got := f.waitUntil(func() bool { return len(f.flushed) >= len(want) }); got != want {
		f.t.Fatalf("got %q, want %q", got, want)
	}
}

func (f *following) waitUntil(isThere func() bool) string {
	stop := context.AfterFunc(f.t.Context(), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed.Broadcast()
	})
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !isThere() && f.t.Context().Err() == nil {
		f.changed.Wait()
	}
	return f.flushed
}

// end waits for the end of the stream.
func (f *following) end(want error) {
	f.t.Helper()
	if err := <-f.done; !errors.Is(err, want) {
		f.t.Fatalf("got %v, want %v", err, want)
	}
}

func TestLOG28_FollowUntilEnd(t *testing.T) {
	n := newNode(t)
	n.run()
	n.set("1", 0, observed.Running)
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F a"))
	f := n.follow(v1.PodLogOptions{})
	f.waitFor("a\n")
	n.write(path, entries("1 stdout F b")+at(2)+" stdout F c")
	f.waitFor("a\nb\n")
	n.write(path, "c\n")
	f.waitFor("a\nb\ncc\n")
	n.write(path, entries("3 stderr F last"))
	n.set("1", 0, observed.Exited)
	n.wake <- uid
	f.end(nil)
	f.waitFor("a\nb\ncc\nlast\n")
}

// TestLOG28_NotObserved follows a container that the node has not observed yet, as after a restart of the agent, and one that is gone.
func TestLOG28_NotObserved(t *testing.T) {
	n := newNode(t)
	n.run()
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F a"))
	f := n.follow(v1.PodLogOptions{})
	f.waitFor("a\n")
	n.write(path, entries("1 stdout F b"))
	f.waitFor("a\nb\n")
	n.set("2", 1, observed.Running)
	n.wake <- uid
	f.end(nil)
}

// TestLOG29_Rotation writes to the old file after a new one is there, as runtimes do.
func TestLOG29_Rotation(t *testing.T) {
	n := newNode(t)
	n.run()
	n.set("1", 0, observed.Running)
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F 0"))
	f := n.follow(v1.PodLogOptions{})
	want := "0\n"
	f.waitFor(want)
	for i := 1; i < 5; i++ {
		name := fmt.Sprintf("20260102-12000%d", i)
		n.rotate(path, name, false)
		n.write(path+"."+name, entries("1 stdout F renamed"))
		n.write(path, "")
		n.write(path+"."+name, entries("2 stdout F late"))
		n.write(path, entries(fmt.Sprintf("3 stdout F new %d", i)))
		want += fmt.Sprintf("renamed\nlate\nnew %d\n", i)
		f.waitFor(want)
	}
	n.set("1", 0, observed.Exited)
	f.end(nil)
}

// TestLOG29_SeveralRotations has a client that reads nothing while the log is rotated several times and the oldest is removed.
func TestLOG29_SeveralRotations(t *testing.T) {
	for _, isRemoved := range []bool{false, true} {
		n := newNode(t)
		n.run()
		n.set("1", 0, observed.Running)
		path := n.path("web", 0)
		n.write(path, entries("0 stdout F 0"))
		f := n.follow(v1.PodLogOptions{})
		f.waitFor("0\n")
		f.mu.Lock() // the client blocks the next write
		n.write(path, entries("1 stdout F 1"))
		n.rotate(path, "20260102-120001", true)
		n.write(path, entries("2 stdout F 2"))
		n.rotate(path, "20260102-120002", true)
		n.write(path, entries("3 stdout F 3"))
		n.rotate(path, "20260102-120003", false)
		n.write(path, entries("4 stdout F 4"))
		if isRemoved {
			if err := os.Remove(path + ".20260102-120001.gz"); err != nil {
				t.Fatal(err)
			}
		}
		f.mu.Unlock()
		f.waitFor("0\n1\n2\n3\n4\n")
		n.set("1", 0, observed.Exited)
		f.end(nil)
	}
}

// TestLOG29_RotatedBeforeEnd ends the container right after a rotation.
func TestLOG29_RotatedBeforeEnd(t *testing.T) {
	n := newNode(t)
	n.set("1", 0, observed.Running)
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F 0"))
	f := n.follow(v1.PodLogOptions{})
	f.waitFor("0\n")
	n.rotate(path, "20260102-120001", false)
	n.write(path, entries("1 stdout F 1"))
	n.set("1", 0, observed.Exited)
	f.end(nil)
	f.waitFor("0\n1\n")
}

func TestLOG29_Truncated(t *testing.T) {
	n := newNode(t)
	n.run()
	n.set("1", 0, observed.Running)
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F first"))
	f := n.follow(v1.PodLogOptions{})
	f.waitFor("first\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	n.write(path, entries("1 stdout F a"))
	f.waitFor("first\na\n")
	// In one step, and longer than before: only the beginning tells. What was read before that was seen may be repeated.
	if err := os.WriteFile(path, []byte(entries("2 stdout F b", "3 stdout F longer than before")), 0o644); err != nil {
		t.Fatal(err)
	}
	f.waitUntil(func() bool { return strings.HasSuffix(f.flushed, "b\nlonger than before\n") })
}

func TestLOG24_FollowTail(t *testing.T) {
	n := newNode(t)
	n.set("1", 0, observed.Running)
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F a", "1 stdout F b"))
	none, one := n.follow(v1.PodLogOptions{TailLines: new(int64(0))}), n.follow(v1.PodLogOptions{TailLines: new(int64(1))})
	one.waitFor("b\n")
	n.write(path, entries("2 stderr F c"))
	none.waitFor("c\n")
	one.waitFor("b\nc\n")
}

func TestLOG25_FollowLimit(t *testing.T) {
	n := newNode(t)
	n.set("1", 0, observed.Running)
	n.write(n.path("web", 0), entries("0 stdout F a"))
	f := n.follow(v1.PodLogOptions{LimitBytes: new(int64(3))})
	f.waitFor("a\n")
	n.write(n.path("web", 0), entries("1 stdout F bcd"))
	f.end(nil)
	f.waitFor("a\nb")
}

// TestLOG31_Stop ends followers with an error when the client goes or the agent stops.
func TestLOG31_Stop(t *testing.T) {
	n := newNode(t)
	stop := n.run()
	n.set("1", 0, observed.Running)
	n.write(n.path("web", 0), entries("0 stdout F a"))
	gone, stopped := n.follow(v1.PodLogOptions{}), n.follow(v1.PodLogOptions{})
	gone.waitFor("a\n")
	stopped.waitFor("a\n")
	gone.cancel()
	gone.end(context.Canceled)
	stop()
	stopped.end(containerlog.ErrStopped)
}
