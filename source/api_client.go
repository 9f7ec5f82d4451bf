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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/heraldnode/herald/internal/apierror"
)

var (
	// errStaleList rejects a list that is older than the requested version.
	errStaleList = errors.New("the API server returned a list that is older than what it returned before")
	// errNotAList rejects a body without a list, which decodes as no pods of no version.
	errNotAList = errors.New("the API server did not return a list: the response has no resource version")
	// errNoResponse is the cause of a request that was given up.
	errNoResponse = errors.New("the API server does not respond")
)

// apiClient is the reflector's ListerWatcher. It makes the first list consistent, rejects stale lists (F12) and responses
// that are no lists (F10), times out requests (F3), ends idle watches (F11) and reports errors.
type apiClient struct {
	server      cache.ListerWatcherWithContext
	idleTimeout time.Duration
	problems    *apiProblems

	// Owned by the reflector's goroutine.
	watchListUnsupported bool         // the server cannot stream a list as a watch
	streamBackoff        wait.Backoff // before the next streamed list; zero if the last one delivered something

	lists sync.WaitGroup // lists in progress: the reflector does not wait for them when it ends

	mu     sync.Mutex  // guards all below
	timer  *time.Timer // ends the current watch
	closed bool        // no more lists may start
}

func newAPIClient(server cache.ListerWatcher, idleTimeout time.Duration, problems *apiProblems) *apiClient {
	return &apiClient{
		server:               cache.ToListerWatcherWithContext(server),
		idleTimeout:          idleTimeout,
		problems:             problems,
		watchListUnsupported: watchlist.DoesClientNotSupportWatchListSemantics(server),
	}
}

// IsWatchListSemanticsUnSupported tells client-go whether lists can be streamed.
func (c *apiClient) IsWatchListSemanticsUnSupported() bool { return c.watchListUnsupported }

// List implements cache.Lister.
func (c *apiClient) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options)
}

// Watch implements cache.Watcher.
func (c *apiClient) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWithContext. The reflector starts with resource version 0, which allows a lagging
// server to return an old state. An empty version requests the newest state.
func (c *apiClient) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if !c.startList() {
		return nil, context.Canceled
	}
	defer c.lists.Done()
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.idleTimeout, errNoResponse)
	defer cancel()
	list, err := c.server.ListWithContext(ctx, options)
	switch {
	case err == nil:
		err = validateList(list, options.ResourceVersion)
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	}
	c.problems.setRequestResult("list", err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// validateList rejects a list without a version or with an older version than requested. Pods that are missing from a valid
// list are terminated.
func validateList(list runtime.Object, requested string) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	version := accessor.GetResourceVersion()
	got, gotErr := strconv.ParseUint(version, 10, 64)
	want, wantErr := strconv.ParseUint(requested, 10, 64)
	switch {
	case version == "":
		return errNotAList
	case gotErr == nil && wantErr == nil && got < want:
		return errStaleList
	default:
		return nil
	}
}

// WatchWithContext implements cache.WatcherWithContext. The watch ends after the idle timeout as if the server had ended
// it: the reflector starts the next one.
func (c *apiClient) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	stream, err := c.openWatch(ctx, options)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTimerLocked()
	c.timer = time.AfterFunc(c.idleTimeout, stream.Stop)
	return stream, nil
}

// openWatch opens a watch. It retries a streamed list itself if the server refuses the connection or is overloaded: the
// reflector would retry too, but sleeps for up to a minute even if ctx is done.
func (c *apiClient) openWatch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	streaming := options.SendInitialEvents != nil
	if streaming && !c.waitToStream(ctx) {
		return nil, newStoppingError()
	}
	for backoff := newBackoff(); ; {
		stream, err := c.startWatch(ctx, options)
		if !streaming || !apierrors.IsInvalid(err) {
			c.problems.setRequestResult("watch", err) // not if the server cannot stream: the reflector falls back to a list
		}
		if !streaming || (!utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err)) {
			return stream, err
		}
		select {
		case <-ctx.Done():
			return nil, newStoppingError()
		case <-time.After(max(backoff.Step(), apierror.RetryAfter(err))):
		}
	}
}

// newStoppingError returns the only error after which the reflector checks its context before it requests a list.
func newStoppingError() error { return apierrors.NewResourceExpired("the agent is stopping") }

// waitToStream delays a streamed list if the last one delivered nothing, and returns false if ctx is done. The reflector
// retries without delay if lists are interrupted or every version is rejected.
func (c *apiClient) waitToStream(ctx context.Context) bool {
	if c.streamBackoff == (wait.Backoff{}) {
		c.streamBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(c.streamBackoff.Step()):
		return true
	}
}

// startWatch requests a watch. It returns errNoResponse if the server does not respond within the idle timeout.
func (c *apiClient) startWatch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(c.idleTimeout, cancel)
	stream, err := c.server.WatchWithContext(ctx, options)
	inTime := timeout.Stop()
	switch {
	case err == nil && inTime:
		return &cancelingWatch{stream, cancel}, nil
	case err == nil:
		stream.Stop()
	}
	cancel()
	if !inTime {
		err = errNoResponse
	}
	return nil, err
}

// cancelingWatch cancels its request when it is stopped.
type cancelingWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (w *cancelingWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}

// resetIdleTimer is called after each event of the watch and each complete list.
func (c *apiClient) resetIdleTimer() {
	c.streamBackoff = wait.Backoff{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Reset(c.idleTimeout)
	}
}

// close waits for lists in progress and prevents new ones. The reflector lists in a goroutine that it does not wait for
// when it ends.
func (c *apiClient) close() {
	c.mu.Lock()
	c.stopTimerLocked()
	c.closed = true
	c.mu.Unlock()
	c.lists.Wait()
}

func (c *apiClient) startList() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.lists.Add(1)
	}
	return !c.closed
}

func (c *apiClient) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
