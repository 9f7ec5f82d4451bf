package source

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

var (
	// errStale is a list that is older than the one that was asked for.
	errStale = errors.New("the API server answered with a list that is older than what it has already shown")
	// errNoList is what a body without a list is read as: no pods, of no version.
	errNoList = errors.New("the API server's answer is no list: it has no resource version")
	// errSilent is a request that was given up.
	errSilent = errors.New("the API server does not answer")
)

// apiConnection is the reflector's view of the API server. It makes the first list a consistent one, refuses lists that
// are older than promised (F12) or none (F10), gives up requests that are not answered (F3), ends watches that went
// silent (F11), and tells of every failure.
type apiConnection struct {
	server cache.ListerWatcherWithContext
	idle   time.Duration
	desk   *apiReports

	// The reflector's goroutine owns both.
	noStreaming bool         // the server cannot send a list as a watch
	again       wait.Backoff // before a list is streamed again; zero when something came of the last one

	lists sync.WaitGroup // that are under way: the reflector does not wait for them when it ends

	mu     sync.Mutex  // guards all below
	timer  *time.Timer // ends the current watch
	closed bool        // no list begins any more
}

func newAPIConnection(server cache.ListerWatcher, idle time.Duration, desk *apiReports) *apiConnection {
	return &apiConnection{
		server:      cache.ToListerWatcherWithContext(server),
		idle:        idle,
		desk:        desk,
		noStreaming: watchlist.DoesClientNotSupportWatchListSemantics(server),
	}
}

// IsWatchListSemanticsUnSupported is how client-go asks whether lists can be streamed.
func (c *apiConnection) IsWatchListSemanticsUnSupported() bool { return c.noStreaming }

// List implements cache.Lister for callers without a context.
func (c *apiConnection) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options)
}

// Watch implements cache.Watcher for callers without a context.
func (c *apiConnection) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWithContext. The reflector begins with resource version 0, "whatever you
// have": a lagging server may then show a past in which pods of ours did not exist, or still did. Asking for none means
// the newest.
func (c *apiConnection) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if !c.beginList() {
		return nil, context.Canceled
	}
	defer c.lists.Done()
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.idle, errSilent)
	defer cancel()
	list, err := c.server.ListWithContext(ctx, options)
	switch {
	case err == nil:
		err = examine(list, options.ResourceVersion)
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	}
	c.desk.requested("list", err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// examine says why a list must not be believed: it is of an earlier time than the resource version that was asked for, or
// of none. What is not in a list that is believed must end.
func examine(list runtime.Object, asked string) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	version := accessor.GetResourceVersion()
	got, gotErr := strconv.ParseUint(version, 10, 64)
	want, wantErr := strconv.ParseUint(asked, 10, 64)
	switch {
	case version == "":
		return errNoList
	case gotErr == nil && wantErr == nil && got < want:
		return errStale
	default:
		return nil
	}
}

// WatchWithContext implements cache.WatcherWithContext.
func (c *apiConnection) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	stream, err := c.open(ctx, options)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTimerLocked()
	c.timer = time.AfterFunc(c.idle, stream.Stop) // ends it as if the server had: the reflector opens the next one
	return stream, nil
}

// alive tells that something came over the watch, or a whole list.
func (c *apiConnection) alive() {
	c.again = wait.Backoff{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Reset(c.idle)
	}
}

// close waits for the lists that have begun, and lets no other begin: the reflector starts each in a goroutine that it leaves
// behind when it ends.
func (c *apiConnection) close() {
	c.mu.Lock()
	c.stopTimerLocked()
	c.closed = true
	c.mu.Unlock()
	c.lists.Wait()
}

func (c *apiConnection) beginList() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.lists.Add(1)
	}
	return !c.closed
}

func (c *apiConnection) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
