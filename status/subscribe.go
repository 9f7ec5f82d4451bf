package status

import (
	"context"
	"iter"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
)

// Change is a change of a pod's cached status.
type Change struct {
	UID podid.UID
	Pod *v1.Pod
	// Status is the new status. It is shared and must not be modified.
	Status *v1.PodStatus
	// Version rises with each change of the pod.
	Version uint64
	// First is set if the pod had no status before.
	First bool
	// Finished is set once TerminatePod was called for the pod.
	Finished bool
	// Removed is set if the status was removed from the cache. Status is then the last one.
	Removed bool
}

// Via is the way by which a version came about.
type Via string

// The ways.
const (
	ViaWorker    Via = "worker"    // SetPodStatus
	ViaProbe     Via = "probe"     // SetContainerReadiness, SetContainerStartup
	ViaTerminate Via = "terminate" // TerminatePod
	ViaAdopt     Via = "adopt"     // the API object had an earlier start time
	ViaRestore   Via = "restore"   // an earlier process left it in Config.State
	ViaRemove    Via = "remove"    // the status was removed
)

// Version is a version of a pod's status, or the removal of the status.
type Version struct {
	UID podid.UID
	Pod *v1.Pod
	// Before is nil if there was no status. After is the new one, or the last one if the status was removed. Both are shared
	// and must not be modified.
	Before, After *v1.PodStatus
	// Version identifies After, Previous identifies Before. They rise with each change of any pod; 0 means none.
	Version, Previous uint64
	Via               Via
	Time              time.Time
	Removed           bool
}

// Changes yields every change from this call on, once and in order for each pod, until ctx is done or the loop ends.
//
// A slow reader delays neither setters nor other subscribers: changes wait for it in memory. A reader that falls a thousand
// changes behind gets only the newest change of each pod, and none of pods that were added and removed in between.
func (m *Manager) Changes(ctx context.Context) iter.Seq[Change] {
	subscriber := m.subscribers.add()
	unsubscribe := func() { m.subscribers.remove(subscriber) }
	stop := context.AfterFunc(ctx, unsubscribe) // also if the sequence is never read
	return func(yield func(Change) bool) {
		defer unsubscribe()
		defer stop()
		for {
			select {
			case <-subscriber.pendingSignal:
			case <-ctx.Done():
				return
			}
			for _, change := range subscriber.take() {
				if !yield(change) {
					return
				}
			}
		}
	}
}

// subscribers passes each change to all subscribers.
type subscribers struct {
	mu  sync.Mutex // guards all below; taken after Manager.mu
	all map[*subscriber]struct{}
}

// subscriber buffers the changes that its reader has not read yet.
type subscriber struct {
	mu            sync.Mutex // guards pending
	pending       changeBuffer
	pendingSignal wakeup.Signal // set when pending is not empty
}

// publish must be called with Manager.mu held, which keeps the changes of a pod in order.
func (s *subscribers) publish(change Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subscriber := range s.all {
		subscriber.add(change)
	}
}

func (s *subscribers) add() *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &subscriber{pendingSignal: wakeup.New()}
	if s.all == nil {
		s.all = map[*subscriber]struct{}{}
	}
	s.all[added] = struct{}{}
	return added
}

func (s *subscribers) remove(removed *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, removed)
}

func (s *subscriber) add(change Change) {
	s.mu.Lock()
	s.pending.add(change)
	s.mu.Unlock()
	s.pendingSignal.Set()
}

func (s *subscriber) take() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.take()
}

// changeBuffer holds unread changes, oldest first. When they are so many that the reader may have stopped for good, it drops
// the intermediate changes of each pod, so that its size is bounded by the number of pods.
type changeBuffer struct {
	changes []Change
	limit   int // length at which the changes are compacted again
}

// minBufferLimit is the number of unread changes that are always buffered.
const minBufferLimit = 1000

func (b *changeBuffer) add(change Change) {
	b.changes = append(b.changes, change)
	if len(b.changes) > max(b.limit, minBufferLimit) {
		b.changes = compactChanges(b.changes)
		b.limit = 2 * len(b.changes)
	}
}

func (b *changeBuffer) take() []Change {
	changes := b.changes
	*b = changeBuffer{}
	return changes
}

// compactChanges keeps the newest change of each pod, in order, and none of a pod that was added and removed unread.
func compactChanges(changes []Change) []Change {
	newest, isNew := map[podid.UID]int{}, map[podid.UID]bool{}
	for i := range changes {
		uid := changes[i].UID
		if _, found := newest[uid]; !found {
			isNew[uid] = changes[i].First
		}
		newest[uid] = i
	}
	var compacted []Change
	for i, change := range changes {
		change.First = isNew[change.UID]
		addedAndRemoved := change.First && change.Removed
		if newest[change.UID] == i && !addedAndRemoved {
			compacted = append(compacted, change)
		}
	}
	return compacted
}
