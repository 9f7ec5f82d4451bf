package fault

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
)

// Injector is the faults that are in force, and the memory of the requests that passed.
//
// All methods may be called by any goroutine at any time. No lock is held while a request is under way.
type Injector struct {
	trace recorder

	mu    sync.Mutex // guards what follows
	rules []*rule    // replaced, never changed in place
	open  map[*stream]struct{}
	held  int        // requests that were taken from their client and are not answered yet
	idle  *sync.Cond // on mu; held fell to zero
}

// NewInjector returns a script without faults.
func NewInjector() *Injector {
	s := &Injector{open: map[*stream]struct{}{}}
	s.idle = sync.NewCond(&s.mu)
	return s
}

// Add puts a rule in force, after those that are already there, until remove is called. Removing a rule ends a stall; it
// does not bring back what was already reset, cut or held. Remove may be called more than once.
func (s *Injector) Add(r *Rule) (remove func()) {
	added := &rule{Rule: r, removed: make(chan struct{})}
	s.mu.Lock()
	s.rules = append(slices.Clip(s.rules), added)
	streams := s.openInOrderLocked()
	s.mu.Unlock()
	if r.disturb != nil {
		for _, stream := range streams {
			stream.meet(added)
		}
	}
	return sync.OnceFunc(func() { s.remove(added) })
}

func (s *Injector) remove(removed *rule) {
	s.mu.Lock()
	s.rules = slices.DeleteFunc(slices.Clone(s.rules), func(r *rule) bool { return r == removed })
	s.mu.Unlock()
	close(removed.removed)
}

// Wait blocks until every request that [Selector.HoldUntil] or [Selector.HoldFor] took from its client was sent and
// answered.
func (s *Injector) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held > 0 {
		s.idle.Wait()
	}
}

func (s *Injector) inForce() []*rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules
}

// opened makes a stream known and has it meet the rules in force. Each pair of a stream and a rule meets once, here or in
// Add, because both look at the other's list in the same critical section in which they join their own.
func (s *Injector) opened(stream *stream) {
	s.mu.Lock()
	s.open[stream] = struct{}{}
	rules := s.rules
	s.mu.Unlock()
	for _, r := range rules {
		if r.disturb != nil {
			stream.meet(r)
		}
	}
}

func (s *Injector) closed(stream *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, stream)
}

// openInOrderLocked lists the open streams, oldest first: a rule that fires once hits the one that a reader expects.
func (s *Injector) openInOrderLocked() []*stream {
	streams := make([]*stream, 0, len(s.open))
	for stream := range s.open {
		streams = append(streams, stream)
	}
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.opened, b.opened) })
	return streams
}

// detach runs the rest of a request whose client may go away before it is done.
func (s *Injector) detach(rest func()) {
	s.mu.Lock()
	s.held++
	s.mu.Unlock()
	go func() {
		rest()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held--; s.held == 0 {
			s.idle.Broadcast()
		}
	}()
}

// Wrap returns a transport that does what next does, with the script's faults.
func (s *Injector) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{script: s, next: next}
}
