package status

import (
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// Manager is the source of truth for the statuses of this node's pods.
//
// Every method may be called from any goroutine, before, during and after Run. Setters never wait for the API server.
// Make one with New.
type Manager struct {
	config      Config
	metrics     *metrics
	subscribers subscribers
	queue       *queue
	throttle    *throttle
	kept        *kept
	silence     atomic.Int64  // requests in a row that the server did not answer, or failed to
	progress    chan struct{} // capacity 1: look again whether all is sent

	mu       sync.RWMutex // guards all below; never held across I/O or a call to the queue, Pods, Deletion or API
	entries  map[podid.UID]*entry
	versions uint64
	deleted  map[podid.UID]time.Time // when we deleted the object of that pod: nothing is written to it any more (I8)
}

// New makes a Manager. It reads what an earlier process left in Config.State, and does nothing else yet.
func New(config Config) (*Manager, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config:   config,
		queue:    newQueue(config.Workers),
		throttle: newThrottle(config.Workers),
		progress: make(chan struct{}, 1),
		entries:  map[podid.UID]*entry{},
		deleted:  map[podid.UID]time.Time{},
	}
	if m.kept, err = openKept(config.State); err != nil {
		return nil, err
	}
	if m.metrics, err = newMetrics(config.Metrics, m); err != nil {
		return nil, err
	}
	m.restore()
	return m, nil
}

// GetPodStatus is what the node says of the pod, by its own UID or its mirror's (SM-6). It may be kept, and must not be
// modified: its slices are shared with other readers (SM-8). An unknown UID gives false (SM-7).
func (m *Manager) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	own := m.config.Pods.TranslatePodUID(uid)
	m.mu.RLock()
	e, found := m.entries[own]
	if !found {
		m.mu.RUnlock()
		return v1.PodStatus{}, false
	}
	status := e.status
	m.mu.RUnlock()
	return *status, true
}

// RemoveOrphanedStatuses forgets the statuses and resize conditions of all pods but those named (SM-78, SM-94). The names
// are UIDs of pods, or of mirrors.
func (m *Manager) RemoveOrphanedStatuses(keep map[types.UID]bool) {
	own := make(map[podid.UID]bool, len(keep))
	for uid := range keep {
		own[m.config.Pods.TranslatePodUID(uid)] = true
	}
	var removed []podid.UID
	m.mu.Lock()
	for uid := range m.entries {
		if !own[uid] {
			m.dropLocked(uid)
			removed = append(removed, uid)
		}
	}
	m.mu.Unlock()
	for _, uid := range removed {
		m.config.Allocations.RemovePod(uid)
	}
}

// drop forgets all that is known of a pod whose object is gone.
func (m *Manager) drop(uid podid.UID) {
	m.mu.Lock()
	m.dropLocked(uid)
	m.mu.Unlock()
	m.config.Allocations.RemovePod(uid)
}

// dropLocked forgets the pod, but for its allocations, which have a lock of their own.
func (m *Manager) dropLocked(uid podid.UID) {
	e, found := m.entries[uid]
	if !found {
		return
	}
	e.pause.end()
	delete(m.entries, uid)
	m.kept.mark()
	lookAgain(m.progress)
	m.subscribers.publish(Change{
		UID: uid, Pod: e.pod, Status: e.status, Version: e.version, Finished: e.finished, Removed: true,
	})
}

// lookAgain wakes whoever waits for the channel, now or later.
func lookAgain(more chan struct{}) {
	select {
	case more <- struct{}{}:
	default:
	}
}
