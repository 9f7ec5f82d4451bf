package provision

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// watchIdleTimeout ends the watch of an object that no pod has read for that long: one that is only part of an
	// environment, which is read when a container starts.
	watchIdleTimeout = 5 * time.Minute
	// minWatchDuration is what an accepted watch must last. If it does not, the object is polled for a while instead.
	minWatchDuration = 5 * time.Second
	// maxWatchPause spreads the watches that continue after a server has ended them all, because it shuts down.
	maxWatchPause = 10 * time.Second
)

// objectKind says how objects of one kind are watched.
type objectKind[T any] struct {
	resource    schema.GroupResource
	isImmutable func(T) bool
	// watch follows the object from the version on, or from its current state if there is none. Nil: objects are polled.
	watch func(ctx context.Context, namespace, name, resourceVersion string) (watch.Interface, error)
	slots chan struct{} // limits the watches of all kinds
}

// isOlder reports whether a is an earlier version of the object than b.
func (k *objectKind[T]) isOlder(a, b T) bool {
	order, err := resourceversion.CompareResourceVersion(versionOf(a), versionOf(b))
	return err == nil && order < 0
}

func versionOf(object any) string {
	if object, ok := object.(metav1.Object); ok {
		return object.GetResourceVersion()
	}
	return ""
}

func (c *objectCache[T]) isImmutable(object T) bool {
	return c.kind != nil && c.kind.isImmutable(object)
}

// objectWatch is the watch of an object. The cache's lock guards it.
type objectWatch struct {
	stop    context.CancelFunc
	current bool // the server sends every change
}

func (w *objectWatch) isCurrent() bool { return w != nil && w.current }

func (e *cacheEntry[T]) stopWatchLocked() {
	if e.watch != nil {
		e.watch.stop()
	}
}

// startWatchLocked watches an object that is still read c.ttl after it was first read. Most objects of short-lived pods are
// read once and need no watch, and a pod that starts does not wait behind one.
func (c *objectCache[T]) startWatchLocked(key types.NamespacedName, entry *cacheEntry[T]) {
	if c.kind == nil || c.kind.watch == nil || entry.watch != nil || time.Since(entry.firstRead) < c.ttl {
		return
	}
	version := ""
	switch {
	case entry.failure == nil && c.isImmutable(entry.success.value):
		return
	case entry.failure == nil:
		version = versionOf(entry.success.value)
	case !apierrors.IsNotFound(entry.failure.err):
		return
	}
	select {
	case c.kind.slots <- struct{}{}:
	default:
		return // too many: it is polled
	}
	entry.watch = &objectWatch{}
	entry.watch.stop = c.requests.watch(func(ctx context.Context) {
		defer func() { <-c.kind.slots }()
		c.runWatch(ctx, key, entry, version)
	})
}

// runWatch follows the object until no pod reads it any more, it cannot change, or the server does not let it be watched. In
// the last case it is polled; the next read after c.ttl tries again.
func (c *objectCache[T]) runWatch(ctx context.Context, key types.NamespacedName, entry *cacheEntry[T], version string) {
	version, err := c.watchOnce(ctx, key, entry, version)
	for err == nil {
		select {
		case <-time.After(rand.N(maxWatchPause)): //nolint:gosec // spreads load, not security-relevant
			version, err = c.watchOnce(ctx, key, entry, version)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if !errors.Is(err, errWatchEnded) && ctx.Err() == nil {
		c.logger.Debug("Failed to watch object, polling it", "object", key.String(), "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.watch = nil
}

// errWatchEnded reports that a watch is not needed any more.
var errWatchEnded = errors.New("watch is not needed any more")

// watchOnce follows the object for one request. It returns the version to continue from after the server has ended it.
func (c *objectCache[T]) watchOnce(
	ctx context.Context, key types.NamespacedName, entry *cacheEntry[T], version string,
) (string, error) {
	began := time.Now()
	stream, err := c.kind.watch(ctx, key.Namespace, key.Name, version)
	if err != nil {
		return "", err
	}
	defer stream.Stop()
	c.setCurrent(entry, true)
	defer c.setCurrent(entry, false)
	idle := time.NewTicker(watchIdleTimeout)
	defer idle.Stop()
	for {
		select {
		case event, ok := <-stream.ResultChan():
			if !ok && time.Since(began) < minWatchDuration {
				return "", errors.New("the server ended the watch at once")
			}
			if !ok {
				return version, nil
			}
			if version, err = c.handleEvent(key, entry, event); err != nil {
				return "", err
			}
		case <-idle.C:
			if c.isIdle(entry) {
				return "", errWatchEnded
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// setCurrent marks the responses as current. When the watch ends, they were current until now.
func (c *objectCache[T]) setCurrent(entry *cacheEntry[T], current bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.watch.current = current
	for _, known := range []**response[T]{&entry.success, &entry.failure} {
		if *known != nil && !current {
			updated := **known
			updated.completed = time.Now()
			*known = &updated
		}
	}
}

func (c *objectCache[T]) isIdle(entry *cacheEntry[T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(entry.lastRead) >= watchIdleTimeout
}

// handleEvent caches the object of an event and returns its version.
func (c *objectCache[T]) handleEvent(key types.NamespacedName, entry *cacheEntry[T], event watch.Event) (string, error) {
	object, ok := any(event.Object).(T)
	if event.Type == watch.Error || !ok {
		return "", fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
	}
	version := versionOf(object)
	if version == "" {
		return "", errors.New("watch: the object has no version")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry.success != nil && entry.failure == nil && c.kind.isOlder(object, entry.success.value) {
		return version, nil // a request was faster
	}
	updated := &response[T]{value: object, sent: entry.sentLocked(), completed: time.Now()}
	switch event.Type {
	case watch.Added, watch.Modified:
		entry.success, entry.failure = updated, nil
		if c.isImmutable(object) {
			return "", errWatchEnded
		}
	case watch.Deleted:
		var none T
		updated.value, updated.err = none, apierrors.NewNotFound(c.kind.resource, key.Name)
		entry.success, entry.failure = nil, updated
	}
	return version, nil
}

// sentLocked returns when the newest response was requested: what the watch sends is newer.
func (e *cacheEntry[T]) sentLocked() time.Time {
	var sent time.Time
	for _, known := range []*response[T]{e.success, e.failure} {
		if known != nil && known.sent.After(sent) {
			sent = known.sent
		}
	}
	return sent
}
