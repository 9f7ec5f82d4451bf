package source

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// errStale is a list that is older than the one that was asked for.
var errStale = errors.New("the API server answered with a list that is older than what it has already shown")

// apiConnection is the reflector's view of the API server. It makes the first list a consistent one, refuses lists that
// are older than promised (F12), ends watches that went silent (F11), and tells of every failure.
type apiConnection struct {
	server cache.ListerWatcherWithContext
	idle   time.Duration
	desk   *apiReports

	noStreaming bool // the server cannot send a list as a watch

	lists sync.WaitGroup // that are under way: the reflector does not wait for them when it ends

	mu    sync.Mutex  // guards timer
	timer *time.Timer // ends the current watch
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
	c.lists.Add(1)
	defer c.lists.Done()
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	list, err := c.server.ListWithContext(ctx, options)
	if err == nil && isOlder(list, options.ResourceVersion) {
		err = errStale
	}
	c.desk.requested("list", err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// isOlder reports whether a list is of an earlier time than the resource version that was asked for.
func isOlder(list runtime.Object, asked string) bool {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return false // the reflector complains about it
	}
	got, gotErr := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	want, wantErr := strconv.ParseUint(asked, 10, 64)
	return gotErr == nil && wantErr == nil && got < want
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

// open opens a watch. One that is to begin with a list is tried again here when the server does not answer or has too much
// to do: the reflector would do the same, but then sleeps for up to a minute whatever becomes of ctx.
func (c *apiConnection) open(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streaming := options.SendInitialEvents != nil
	for pause := retries(); ; {
		stream, err := c.server.WatchWithContext(ctx, options)
		if !streaming || !apierrors.IsInvalid(err) {
			c.desk.requested("watch", err) // a server that cannot stream a list is asked for an ordinary one
		}
		if !streaming || (!utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err)) {
			return stream, err
		}
		select {
		case <-ctx.Done():
			// The one answer after which the reflector looks whether it is to end, before it asks for a list.
			return nil, apierrors.NewResourceExpired("the agent ends")
		case <-time.After(pause.Step()):
		}
	}
}

// alive tells that something came over the watch.
func (c *apiConnection) alive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Reset(c.idle)
	}
}

func (c *apiConnection) close() {
	c.mu.Lock()
	c.stopTimerLocked()
	c.mu.Unlock()
	c.lists.Wait()
}

func (c *apiConnection) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
