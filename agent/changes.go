package agent

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// ChangedPods yields the UIDs of pods that LocalPods returns differently: a pod came or went, or its spec or local status changed. The
// subscription begins with the call and lasts until ctx ends or the loop does.
//
// A reader that is slow gets each UID once, however often the pod changed: it reads the newest state with LocalPodByUID. What waits for
// it is bounded by the number of pods. A UID may be yielded although nothing changed.
func (a *Agent) ChangedPods(ctx context.Context) iter.Seq[[]types.UID] {
	subscriber := a.changes.subscribe()
	unsubscribe := func() { a.changes.unsubscribe(subscriber) }
	stop := context.AfterFunc(ctx, unsubscribe) // also if the sequence is never read
	return func(yield func([]types.UID) bool) {
		defer unsubscribe()
		defer stop()
		for {
			select {
			case <-subscriber.changed:
			case <-ctx.Done():
				return
			}
			if uids := a.changes.take(subscriber); len(uids) > 0 && !yield(uids) {
				return
			}
		}
	}
}

// podChanges knows which pods changed since each subscriber last asked.
type podChanges struct {
	mu          sync.Mutex // guards all below; taken after the status manager's lock
	subscribers map[*changeSubscriber]struct{}
	// announced holds the pods that may be on the node. A pod without a status disappears without another sign.
	announced map[types.UID]struct{}
}

type changeSubscriber struct {
	uids    map[types.UID]struct{} // guarded by podChanges.mu
	changed wakeup.Signal          // set when uids is not empty
}

func newPodChanges() *podChanges {
	return &podChanges{subscribers: map[*changeSubscriber]struct{}{}, announced: map[types.UID]struct{}{}}
}

func (c *podChanges) subscribe() *changeSubscriber {
	subscriber := &changeSubscriber{uids: map[types.UID]struct{}{}, changed: wakeup.New()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers[subscriber] = struct{}{}
	return subscriber
}

func (c *podChanges) unsubscribe(subscriber *changeSubscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subscribers, subscriber)
}

// announce tells all subscribers that the pod changed. It must be called after the change.
func (c *podChanges) announce(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced[uid] = struct{}{}
	c.announceLocked(uid)
}

func (c *podChanges) announceLocked(uid types.UID) {
	for subscriber := range c.subscribers {
		subscriber.uids[uid] = struct{}{}
		subscriber.changed.Set()
	}
}

// retain tells all subscribers of pods that are not known any more.
func (c *podChanges) retain(known map[types.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.announced {
		if !known[uid] {
			delete(c.announced, uid)
			c.announceLocked(uid)
		}
	}
}

// take returns the pods that changed since the last call, sorted.
func (c *podChanges) take(subscriber *changeSubscriber) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	uids := slices.Sorted(maps.Keys(subscriber.uids))
	clear(subscriber.uids)
	return uids
}

// changeJournal announces every version of a status. The status manager holds its lock: whoever is told waits for the new version.
type changeJournal struct {
	changes *podChanges
	next    status.Journal // may be nil
}

func (j changeJournal) Accepted(version status.Version) {
	j.changes.announce(types.UID(version.UID))
	if j.next != nil {
		j.next.Accepted(version)
	}
}

func (j changeJournal) Acknowledged(uid podid.UID, version uint64, at time.Time) {
	if j.next != nil {
		j.next.Acknowledged(uid, version, at)
	}
}
