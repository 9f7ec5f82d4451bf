package status

import (
	"context"
	"sync"
	"time"
)

// slowDownEvery is how often the bound halves at most: the requests that were in flight together hear the same.
const slowDownEvery = time.Second

// throttle bounds the requests in flight. The bound halves when the server asks for patience and grows back by one for
// each round of successes, so that a node as a whole backs off, not each pod alone (F4).
type throttle struct {
	max int

	mu       sync.Mutex // guards all below
	limit    int
	inFlight int
	earned   int // successes since the bound last moved
	slowed   time.Time
	room     chan struct{} // closed and replaced when there may be room again
}

func newThrottle(limit int) *throttle {
	return &throttle{max: limit, limit: limit, room: make(chan struct{})}
}

// enter waits for room. It returns false when ctx ended first; otherwise the caller must leave.
func (t *throttle) enter(ctx context.Context) bool {
	for {
		t.mu.Lock()
		if t.inFlight < t.limit {
			t.inFlight++
			t.mu.Unlock()
			return true
		}
		room := t.room
		t.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// leave gives the room back.
func (t *throttle) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight--
	t.announceLocked()
}

// slowDown halves the bound.
func (t *throttle) slowDown() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.slowed) < slowDownEvery {
		return
	}
	t.slowed = now
	t.limit = max(1, t.limit/2)
	t.earned = 0
}

// succeeded lets the bound grow.
func (t *throttle) succeeded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit == t.max {
		return
	}
	if t.earned++; t.earned >= t.limit {
		t.limit, t.earned = t.limit+1, 0
		t.announceLocked()
	}
}

func (t *throttle) announceLocked() {
	close(t.room)
	t.room = make(chan struct{})
}
