package provision

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// failureTTL is how long a failed read is reused. Many pods that wait for one object cause one request.
const failureTTL = time.Second

// readFunc reads an object from the API server.
type readFunc[T any] func(ctx context.Context, namespace, name string) (T, error)

// objectCache caches objects of the API server, so that many pods that refer to one object share requests. There is at most
// one request for an object at a time. Objects are dropped when no pod on the node refers to them any more.
//
// While the server is unreachable, the last response is used.
type objectCache[T any] struct {
	read   readFunc[T]
	ttl    time.Duration
	logger *slog.Logger
	// isImmutable reports that an object cannot change. May be nil.
	isImmutable func(T) bool

	mu      sync.Mutex // guards entries and their fields
	entries map[types.NamespacedName]*cacheEntry[T]
}

type cacheEntry[T any] struct {
	readers  map[podid.UID]struct{}
	inFlight chan struct{} // closed when the current request ends; nil if there is none

	success *response[T] // the last successful one, or nil
	failure *response[T] // the failure since, or nil
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
}

func newObjectCache[T any](config Config, read readFunc[T]) *objectCache[T] {
	return &objectCache[T]{
		read: read, ttl: config.CacheTTL, logger: config.Logger, entries: map[types.NamespacedName]*cacheEntry[T]{},
	}
}

// get returns the object, as fresh as the reader requires.
func (c *objectCache[T]) get(ctx context.Context, namespace, name string, by reader) (T, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	for {
		c.mu.Lock()
		entry := c.entryLocked(key, by.pod)
		if cached := c.cachedLocked(entry, by); cached != nil {
			c.mu.Unlock()
			return cached.value, cached.err
		}
		inFlight := entry.inFlight
		if inFlight == nil {
			entry.inFlight = make(chan struct{})
		}
		c.mu.Unlock()
		if inFlight == nil {
			return c.fetch(ctx, key, entry, by)
		}
		select {
		case <-inFlight:
		case <-ctx.Done():
			var zero T
			return zero, context.Cause(ctx)
		}
	}
}

func (c *objectCache[T]) entryLocked(key types.NamespacedName, pod podid.UID) *cacheEntry[T] {
	entry := c.entries[key]
	if entry == nil {
		entry = &cacheEntry[T]{readers: map[podid.UID]struct{}{}}
		c.entries[key] = entry
	}
	entry.readers[pod] = struct{}{}
	return entry
}

// cachedLocked returns a response that is fresh enough for the reader, or nil.
func (c *objectCache[T]) cachedLocked(entry *cacheEntry[T], by reader) *response[T] {
	if success := entry.success; success != nil && !success.sent.Before(by.notBefore) {
		if time.Since(success.completed) < c.ttl || c.isImmutable != nil && c.isImmutable(success.value) {
			return success
		}
	}
	if failure := entry.failure; failure != nil && !failure.sent.Before(by.notBefore) && time.Since(failure.completed) < failureTTL {
		return entry.fallback(failure, by)
	}
	return nil
}

// fallback returns the last successful response after a failure, unless the server itself denied the request.
func (e *cacheEntry[T]) fallback(failure *response[T], by reader) *response[T] {
	isFinal := apierrors.IsNotFound(failure.err) || apierrors.IsForbidden(failure.err)
	if !isFinal && e.success != nil && !e.success.sent.Before(by.notBefore) {
		return e.success
	}
	return failure
}

// fetch reads the object for the caller and for all readers that wait for it. If the caller's context ends, one of the
// others reads the object.
func (c *objectCache[T]) fetch(ctx context.Context, key types.NamespacedName, entry *cacheEntry[T], by reader) (T, error) {
	fetched := &response[T]{sent: time.Now()}
	fetched.value, fetched.err = c.read(ctx, key.Namespace, key.Name)
	fetched.completed = time.Now()
	chosen := c.store(entry, fetched, by, ctx.Err() != nil)
	if fetched.err != nil && chosen.err == nil {
		c.logger.Warn("Failed to read object, using the cached one", "object", key.String(), "err", fetched.err)
	}
	return chosen.value, chosen.err
}

// store caches the response and returns the one to use. A cancelled request says nothing about the object.
func (c *objectCache[T]) store(entry *cacheEntry[T], fetched *response[T], by reader, cancelled bool) *response[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(entry.inFlight)
	entry.inFlight = nil
	switch {
	case fetched.err == nil:
		entry.success, entry.failure = fetched, nil
		return fetched
	case cancelled:
		return fetched
	}
	entry.failure = fetched
	return entry.fallback(fetched, by)
}

// removeReader drops the objects that only this pod referred to.
func (c *objectCache[T]) removeReader(pod podid.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, entry := range c.entries {
		delete(entry.readers, pod)
		if len(entry.readers) == 0 {
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
