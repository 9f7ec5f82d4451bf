package status

import (
	"context"
	"iter"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// Change is one accepted change of a pod's status.
type Change struct {
	UID podid.UID
	Pod *v1.Pod
	// Status is what the node says now. It is shared and must not be modified.
	Status *v1.PodStatus
	// Version rises with each change of the pod.
	Version uint64
	// First tells that nothing was known of the pod before, Finished that all that it held on the node is released.
	First, Finished bool
	// Removed tells that the status was forgotten; Status is the last one.
	Removed bool
}

// subscribers hands each change to everyone who listens. Each has a list of its own that grows while it is slow, so that
// it never holds up a setter or another subscriber.
type subscribers struct {
	mu  sync.Mutex // guards all below
	all map[*subscriber]struct{}
}

type subscriber struct {
	mu      sync.Mutex // guards pending
	pending backlog
	more    chan struct{} // capacity 1: look again
}

// publish is called with the manager's lock held, which is what keeps the order of a pod's changes.
func (s *subscribers) publish(change Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all {
		one.add(change)
	}
}

func (s *subscribers) join() *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &subscriber{more: make(chan struct{}, 1)}
	if s.all == nil {
		s.all = map[*subscriber]struct{}{}
	}
	s.all[one] = struct{}{}
	return one
}

func (s *subscribers) leave(one *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, one)
}

func (s *subscriber) add(change Change) {
	s.mu.Lock()
	s.pending.add(change)
	s.mu.Unlock()
	lookAgain(s.more)
}

func (s *subscriber) take() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.take()
}

// Changes yields every change that is accepted from this call on, once, in order for each pod, until ctx ends or the loop
// is left. A slow loop delays nobody; what it has not read yet is kept for it. One that is a thousand changes behind gets
// only the newest of each pod, and hears nothing of pods that came and went meanwhile.
func (m *Manager) Changes(ctx context.Context) iter.Seq[Change] {
	one := m.subscribers.join()
	leave := func() { m.subscribers.leave(one) }
	unwatch := context.AfterFunc(ctx, leave) // also when nobody ever reads
	return func(yield func(Change) bool) {
		defer leave()
		defer unwatch()
		for {
			select {
			case <-one.more:
			case <-ctx.Done():
				return
			}
			for _, change := range one.take() {
				if !yield(change) {
					return
				}
			}
		}
	}
}
