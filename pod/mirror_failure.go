package pod

import (
	"context"
	"errors"
	"time"

	"github.com/heraldnode/herald/podid"
)

// heldBack is how long the name must not send a request: the server asked for quiet, or the last attempt failed and
// nothing has changed since. A wake-up does not shorten it; a changed cause does.
func (m *Mirrors) heldBack(v visit) time.Duration {
	m.mu.Lock()
	pause := time.Until(m.pauseUntil)
	m.mu.Unlock()
	if v.known.retryAt.IsZero() {
		return pause
	}
	if v.known.failedOn != v.cause {
		m.patience.forget(v.name)
		v.known.retryAt, v.known.failedOn = time.Time{}, cause{}
		return pause
	}
	return max(pause, time.Until(v.known.retryAt))
}

// failed handles the error of a step, here and nowhere else, and returns when to try again.
func (m *Mirrors) failed(ctx context.Context, v visit, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	var node *nodeUnreadyError
	if errors.As(err, &node) {
		return node.after
	}
	var conflict *conflictError
	if errors.As(err, &conflict) {
		m.conflicts.report(v.Static, conflict)
	} else {
		m.config.Logger.Warn("Upkeep of mirror pod failed", "pod", v.name, "err", err)
	}
	m.keepQuiet(suggestedDelay(err))
	delay := m.patience.after(v.name, err)
	v.known.retryAt, v.known.failedOn = time.Now().Add(delay), v.cause
	return delay
}

// keepQuiet obeys a Retry-After for all names: the server is short of breath, not of patience with one pod (F4).
func (m *Mirrors) keepQuiet(delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if until := time.Now().Add(delay); until.After(m.pauseUntil) {
		m.pauseUntil = until
	}
}

// recall returns what is remembered of the name. It belongs to the caller until retain.
func (m *Mirrors) recall(name podid.FullName) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, found := m.memories[name]; found {
		return known
	}
	return &memory{}
}

// retain keeps the memory of a name only while there is something to remember.
func (m *Mirrors) retain(name podid.FullName, known *memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *known == (memory{}) {
		delete(m.memories, name)
	} else {
		m.memories[name] = known
	}
}
