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

// failureFreshness is how long a failure to read serves others. Many pods that wait for one object ask for it once.
const failureFreshness = time.Second

// reader is for whom something is read.
type reader struct {
	pod podid.UID
	// since is what the answer must not be older than.
	since time.Time
}

// shelf keeps what was read from the API server, so that many pods that refer to one object cost one request now and then.
// There is one request at a time for an object. What nobody on the node refers to any more is not kept.
//
// When the server cannot be reached, what it said last is still taken for true.
type shelf[T any] struct {
	read   func(ctx context.Context, namespace, name string) (T, error)
	fresh  time.Duration
	logger *slog.Logger
	// lasting says that the object will not change; nil: any may.
	lasting func(T) bool

	mu      sync.Mutex // guards entries and what is in them
	entries map[types.NamespacedName]*entry[T]
}

type entry[T any] struct {
	users  map[podid.UID]struct{}
	asking chan struct{} // closed when the request that is under way has ended; nil: there is none

	answer *answer[T] // the last good one; nil: none yet
	failed *answer[T] // why there is no newer one; nil: there is
}

type answer[T any] struct {
	value        T
	err          error
	begun, ended time.Time
}

func newShelf[T any](config Config, read func(ctx context.Context, namespace, name string) (T, error)) *shelf[T] {
	return &shelf[T]{
		read: read, fresh: config.CacheTTL, logger: config.Logger, entries: map[types.NamespacedName]*entry[T]{},
	}
}

// get is the object, fresh enough for the reader.
func (s *shelf[T]) get(ctx context.Context, namespace, name string, by reader) (T, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	for {
		s.mu.Lock()
		e := s.entryLocked(key, by.pod)
		if found := s.usableLocked(e, by); found != nil {
			s.mu.Unlock()
			return found.value, found.err
		}
		asking := e.asking
		if asking == nil {
			e.asking = make(chan struct{})
		}
		s.mu.Unlock()
		if asking == nil {
			return s.ask(ctx, key, e, by)
		}
		select {
		case <-asking:
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		}
	}
}

func (s *shelf[T]) entryLocked(key types.NamespacedName, user podid.UID) *entry[T] {
	e := s.entries[key]
	if e == nil {
		e = &entry[T]{users: map[podid.UID]struct{}{}}
		s.entries[key] = e
	}
	e.users[user] = struct{}{}
	return e
}

func (s *shelf[T]) usableLocked(e *entry[T], by reader) *answer[T] {
	if good := e.answer; good != nil && !good.begun.Before(by.since) {
		if time.Since(good.ended) < s.fresh || s.lasting != nil && s.lasting(good.value) {
			return good
		}
	}
	if failed := e.failed; failed != nil && !failed.begun.Before(by.since) && time.Since(failed.ended) < failureFreshness {
		return e.fallback(failed, by)
	}
	return nil
}

// fallback is what to answer after a failure: what was known before, unless the server itself said no.
func (e *entry[T]) fallback(failed *answer[T], by reader) *answer[T] {
	isFinal := apierrors.IsNotFound(failed.err) || apierrors.IsForbidden(failed.err)
	if !isFinal && e.answer != nil && !e.answer.begun.Before(by.since) {
		return e.answer
	}
	return failed
}

// ask reads the object for its caller and for all who wait. The caller's context may end it; the others then ask
// themselves.
func (s *shelf[T]) ask(ctx context.Context, key types.NamespacedName, e *entry[T], by reader) (T, error) {
	got := &answer[T]{begun: time.Now()}
	got.value, got.err = s.read(ctx, key.Namespace, key.Name)
	got.ended = time.Now()
	chosen := s.keep(e, got, by, ctx.Err() != nil)
	if got.err != nil && chosen.err == nil {
		s.logger.Warn("what was read before is used, the API server does not answer", "object", key, "error", got.err)
	}
	return chosen.value, chosen.err
}

// keep puts the answer on the shelf and returns what to tell whoever asked. That they are gone says nothing of the object.
func (s *shelf[T]) keep(e *entry[T], got *answer[T], by reader, gone bool) *answer[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(e.asking)
	e.asking = nil
	switch {
	case got.err == nil:
		e.answer, e.failed = got, nil
		return got
	case gone:
		return got
	}
	e.failed = got
	return e.fallback(got, by)
}

// forget drops what only this pod referred to.
func (s *shelf[T]) forget(uid podid.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.entries {
		delete(e.users, uid)
		if len(e.users) == 0 {
			delete(s.entries, key)
		}
	}
}
