package provision

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

const (
	// failureTTL is how long a failed read is reused. Many pods that wait for one object cause one request.
	failureTTL = time.Second
	// promptResponse is how long a reader that has something to fall back on waits for a response. Restarts and liveness
	// kills wait behind such readers.
	promptResponse = 250 * time.Millisecond
	// fetchTimeout ends a request that is not answered.
	fetchTimeout = time.Minute
)

// readFunc reads an object from the API server.
type readFunc[T any] func(ctx context.Context, namespace, name string) (T, error)

// objectCache caches objects of the API server, so that many pods that refer to one object share requests. There is at most
// one request for an object at a time. It continues in the background if its readers give up. Objects are dropped when no pod
// on the node refers to them any more. Those that are in use for longer are watched, so that pods at rest cost no requests.
//
// While the server is unreachable or slow, the last response is used.
type objectCache[T any] struct {
	read     readFunc[T]
	ttl      time.Duration
	logger   *slog.Logger
	requests *background
	kind     *objectKind[T] // nil for objects that are not watched

	mu      sync.Mutex // guards entries and their fields
	entries map[types.NamespacedName]*cacheEntry[T]
}

type cacheEntry[T any] struct {
	readers   map[podid.UID]struct{}
	firstRead time.Time
	lastRead  time.Time
	inFlight  *fetch[T]    // the current request, or nil
	watch     *objectWatch // nil if the object is not watched

	success *response[T] // the last successful one, or nil
	failure *response[T] // the failure since, or nil
}

// fetch is a request. Its response is set when done is closed.
type fetch[T any] struct {
	response[T]
	done chan struct{}
}

type response[T any] struct {
	value           T
	err             error
	sent, completed time.Time
}

// reader is a pod that reads objects.
type reader struct {
	pod podid.UID
	// notBefore is the earliest time at which a usable response was requested.
	notBefore time.Time
	// acceptsOlder allows a response that was requested before notBefore, if there is no prompt one.
	acceptsOlder bool
	// needsNone is set if the pod starts without the object, if there is no prompt response.
	needsNone bool
}

// errNoPromptResponse is returned to a reader that does not need the object.
var errNoPromptResponse = errors.New("the API server did not respond in time")

func newObjectCache[T any](config Config, requests *background, read readFunc[T], kind *objectKind[T]) *objectCache[T] {
	return &objectCache[T]{
		read: read, ttl: config.CacheTTL, logger: config.Logger, requests: requests, kind: kind,
		entries: map[types.NamespacedName]*cacheEntry[T]{},
	}
}

// get returns the object, as fresh as the reader requires. It waits for the server only as long as the reader has nothing else.
func (c *objectCache[T]) get(ctx context.Context, namespace, name string, by reader) (T, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	for {
		c.mu.Lock()
		entry := c.entryLocked(key, by.pod)
		if cached := c.cachedLocked(entry, by); cached != nil {
			c.mu.Unlock()
			return cached.value, cached.err
		}
		request := c.fetchLocked(key, entry)
		fallback := entry.fallbackLocked(by)
		timeout := entry.timeoutLocked(by, fallback)
		c.mu.Unlock()
		select {
		case <-request.done:
			if !request.sent.Before(by.notBefore) {
				chosen := c.choose(entry, &request.response, by)
				return chosen.value, chosen.err
			}
		case <-timeout:
			if fallback == nil {
				fallback = &response[T]{err: errNoPromptResponse}
			}
			return fallback.value, fallback.err
		case <-ctx.Done():
			var zero T
			return zero, context.Cause(ctx)
		}
	}
}

// prefetch requests an object that has never been read, and does not wait for the response.
func (c *objectCache[T]) prefetch(namespace, name string, by reader) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.entryLocked(key, by.pod); entry.success == nil && entry.failure == nil {
		c.fetchLocked(key, entry)
	}
}

func (c *objectCache[T]) entryLocked(key types.NamespacedName, pod podid.UID) *cacheEntry[T] {
	entry := c.entries[key]
	if entry == nil {
		entry = &cacheEntry[T]{readers: map[podid.UID]struct{}{}, firstRead: time.Now()}
		c.entries[key] = entry
	}
	entry.lastRead = time.Now()
	entry.readers[pod] = struct{}{}
	return entry
}

// cachedLocked returns a response that is fresh enough for the reader, or nil.
func (c *objectCache[T]) cachedLocked(entry *cacheEntry[T], by reader) *response[T] {
	if success := entry.success; success != nil && !success.sent.Before(by.notBefore) {
		if time.Since(success.completed) < c.ttl || entry.watch.isCurrent() || c.isImmutable(success.value) {
			return success
		}
	}
	if failure := entry.failure; failure != nil && !failure.sent.Before(by.notBefore) {
		if time.Since(failure.completed) < failureTTL || entry.watch.isCurrent() && apierrors.IsNotFound(failure.err) {
			return cmp.Or(entry.fallbackLocked(by), failure)
		}
	}
	return nil
}

// fallbackLocked returns the last successful response, unless the server itself denied the request since. It may be nil.
func (e *cacheEntry[T]) fallbackLocked(by reader) *response[T] {
	isDenied := e.failure != nil && (apierrors.IsNotFound(e.failure.err) || apierrors.IsForbidden(e.failure.err))
	if isDenied || e.success == nil || e.success.sent.Before(by.notBefore) && !by.acceptsOlder {
		return nil
	}
	return e.success
}

// timeoutLocked returns a channel that ends the reader's wait for the current request, or nil if it must wait. A reader does
// not wait for a server that has just failed.
func (e *cacheEntry[T]) timeoutLocked(by reader, fallback *response[T]) <-chan time.Time {
	if fallback == nil && !by.needsNone {
		return nil
	}
	if e.failure != nil && time.Since(e.failure.completed) < fetchTimeout {
		return time.After(0)
	}
	return time.After(promptResponse - time.Since(e.inFlight.sent))
}

// fetchLocked returns the current request for the object, or starts one. It is not bound to a reader: the others need it too.
func (c *objectCache[T]) fetchLocked(key types.NamespacedName, entry *cacheEntry[T]) *fetch[T] {
	if entry.inFlight != nil {
		return entry.inFlight
	}
	request := &fetch[T]{response: response[T]{sent: time.Now()}, done: make(chan struct{})}
	entry.inFlight = request
	c.requests.start(func(ctx context.Context) {
		value, err := c.read(ctx, key.Namespace, key.Name)
		c.store(key, entry, value, err)
		if err != nil && c.choose(entry, &request.response, reader{}).err == nil {
			c.logger.Warn("Failed to read object, using the cached one", "object", key.String(), "err", err)
		}
	})
	return request
}

// store caches the response of the current request.
func (c *objectCache[T]) store(key types.NamespacedName, entry *cacheEntry[T], value T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := entry.inFlight
	if err == nil && entry.watch.isCurrent() && entry.success != nil && c.kind.isOlder(value, entry.success.value) {
		value = entry.success.value // the watch was faster
	}
	request.value, request.err, request.completed = value, err, time.Now()
	entry.inFlight, entry.failure = nil, nil
	if err == nil {
		entry.success = &request.response
	} else {
		entry.failure = &request.response
	}
	close(request.done)
	c.startWatchLocked(key, entry)
}

// choose returns the response that the reader uses after a request.
func (c *objectCache[T]) choose(entry *cacheEntry[T], fetched *response[T], by reader) *response[T] {
	if fetched.err == nil {
		return fetched
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(entry.fallbackLocked(by), fetched)
}

// removeReader drops the objects that only this pod referred to.
func (c *objectCache[T]) removeReader(pod podid.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, entry := range c.entries {
		delete(entry.readers, pod)
		if len(entry.readers) == 0 {
			entry.stopWatchLocked()
			delete(c.entries, key)
		}
	}
}

const (
	// forbiddenRetryTimeout is how long a Forbidden response is retried.
	forbiddenRetryTimeout = 3 * time.Second
	// forbiddenRetryInterval is the pause between retries.
	forbiddenRetryInterval = 100 * time.Millisecond
)

// retryForbidden retries a read that the server forbids. A node may read what its pods refer to, but it may see a pod before
// the Node authorizer does.
func retryForbidden[T any](read readFunc[T]) readFunc[T] {
	return func(ctx context.Context, namespace, name string) (T, error) {
		for start := time.Now(); ; {
			value, err := read(ctx, namespace, name)
			if !apierrors.IsForbidden(err) || time.Since(start) >= forbiddenRetryTimeout {
				return value, err
			}
			select {
			case <-time.After(forbiddenRetryInterval):
			case <-ctx.Done():
				return value, err
			}
		}
	}
}

// background runs requests that outlive their callers.
type background struct {
	start func(send func(context.Context)) // runs send in a goroutine, for at most fetchTimeout
	close func()                           // cancels everything and waits for it
	// watch runs run in a goroutine until stop is called.
	watch func(run func(context.Context)) (stop context.CancelFunc)
}

func newBackground() *background {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	return &background{
		start: func(send func(context.Context)) {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
				defer cancel()
				send(ctx)
			})
		},
		watch: func(run func(context.Context)) context.CancelFunc {
			ctx, cancel := context.WithCancel(ctx)
			running.Go(func() {
				defer cancel()
				run(ctx)
			})
			return cancel
		},
		close: func() {
			cancel()
			running.Wait()
		},
	}
}
