package status

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Manager is the source of truth for the statuses of this node's pods.
//
// Every method may be called from any goroutine, before, during and after Run. Setters never wait for the API server.
// Create one with New.
type Manager struct {
	config      Config
	metrics     *metrics
	subscribers subscribers
	queue       *queue
	limiter     *limiter
	checkpoint  *checkpointer
	failures    atomic.Int64  // consecutive requests that the API server did not execute or answer
	progress    wakeup.Signal // set when an entry changes: flush checks again whether everything is sent

	mu          sync.RWMutex // guards all below; not held across I/O or calls to queue, Pods, Deletion, Allocations and API
	entries     map[podid.UID]*cacheEntry
	lastVersion uint64                  // one counter for all pods, see cacheEntry.version
	deleted     map[podid.UID]time.Time // pods whose object the manager deleted, and when: they get no more requests (I8)
}

// New returns a Manager with the statuses that an earlier process left in Config.State. It starts nothing; call Run.
func New(config Config) (*Manager, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config:   config,
		queue:    newQueue(config.Workers),
		limiter:  newLimiter(config.Workers),
		progress: wakeup.New(),
		entries:  map[podid.UID]*cacheEntry{},
		deleted:  map[podid.UID]time.Time{},
	}
	if m.checkpoint, err = newCheckpointer(config.State); err != nil {
		return nil, err
	}
	if m.metrics, err = newMetrics(config.Metrics, m); err != nil {
		return nil, err
	}
	m.restore()
	return m, nil
}

// SetPodStatus caches the status and schedules a write. It returns the cached status and whether it changed. The cached
// status differs from the argument where history decides, for example on transition times, and where a probe result is newer
// than the argument (SM-16).
//
// The status must be complete, as derive.Status computes it: an owned condition (derive.OwnedConditions) that is missing
// from it is removed from the API object (SM-64). Conditions of other writers stay as they are in the object (SM-63).
//
// A status that a container cannot reach from its cached state is rejected and logged (SM-23). An equal status is no change,
// except for a pod with a deletion timestamp: it always gets a new version (SM-10).
//
// The caller may modify status afterwards, but neither pod, which is retained, nor the result, which is shared.
func (m *Manager) SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	status.ObservedGeneration = pod.Generation // SM-38
	cached, changed := m.updateCache(statusUpdate{
		via: ViaWorker, pod: pod, status: status, force: pod.DeletionTimestamp != nil,
	})
	return *cached, changed
}

// TerminatePod records that the pod has terminated and holds nothing on the node any more. Containers without a known exit
// are reported as ContainerStatusUnknown, and a phase that is not terminal becomes Failed except for a static pod
// (SM-17..20). From then on the API object of a deleted pod may be deleted.
func (m *Manager) TerminatePod(pod *v1.Pod) {
	m.updateCache(statusUpdate{via: ViaTerminate, pod: pod, force: true, terminate: true})
}

// SetContainerReadiness records the result of a container's readiness probe. It is ignored if Config.Pods does not have the
// pod, if the pod has no status yet, or if its status has no container with that ID (SM-12).
func (m *Manager) SetContainerReadiness(uid types.UID, container observed.ContainerID, ready bool) {
	m.setProbeResult(uid, container, derive.ContainerProbeResults{Readiness: probeResult(ready)})
}

// SetContainerStartup records the result of a container's startup probe. It is ignored in the same cases as
// SetContainerReadiness (SM-15).
func (m *Manager) SetContainerStartup(uid types.UID, container observed.ContainerID, started bool) {
	m.setProbeResult(uid, container, derive.ContainerProbeResults{Startup: probeResult(started)})
}

func probeResult(passed bool) derive.ProbeResult {
	if passed {
		return derive.ProbeSuccess
	}
	return derive.ProbeFailure
}

// GetPodStatus returns the cached status of a pod, by its UID or that of its mirror pod (SM-6). The result is shared: the
// caller may keep it but must not modify it (SM-8). An unknown UID returns false (SM-7).
func (m *Manager) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	podUID := m.config.Pods.TranslatePodUID(uid)
	m.mu.RLock()
	entry, found := m.entries[podUID]
	if !found {
		m.mu.RUnlock()
		return v1.PodStatus{}, false
	}
	status := entry.status
	m.mu.RUnlock()
	return *status, true
}

// IsObserved reports whether this process has set the pod's status, or the pod has ended. Other statuses are those of an earlier
// process or of the API server, and the machine may have booted since.
func (m *Manager) IsObserved(uid types.UID) bool {
	podUID := m.config.Pods.TranslatePodUID(uid)
	m.mu.RLock()
	defer m.mu.RUnlock()
	entry, found := m.entries[podUID]
	return found && !entry.isUnconfirmed()
}

// Reconcile compares the pod with its API object, of which Config.Pods has a new version. It restores what another writer
// changed, and gives a new mirror pod its status. pod is the API object: the pod itself or its mirror pod.
func (m *Manager) Reconcile(pod *v1.Pod) {
	uid := m.config.Pods.TranslatePodUID(pod.UID)
	m.mu.RLock()
	entry, found := m.entries[uid]
	priority := priorityNormal
	if found {
		priority = entry.syncPriority()
		if entry.finished && pod.DeletionTimestamp != nil {
			priority = priorityTerminal
		}
	}
	m.mu.RUnlock()
	if found {
		m.enqueue(uid, priority)
	}
}

// RemoveOrphanedStatuses removes the statuses of all pods that are not in remaining (SM-78). remaining holds UIDs of pods or
// of their mirror pods.
func (m *Manager) RemoveOrphanedStatuses(remaining map[types.UID]bool) {
	remainingPods := make(map[podid.UID]bool, len(remaining))
	for uid := range remaining {
		remainingPods[m.config.Pods.TranslatePodUID(uid)] = true
	}
	var orphans []podid.UID
	m.mu.Lock()
	for uid := range m.entries {
		if !remainingPods[uid] {
			m.removeEntryLocked(uid)
			orphans = append(orphans, uid)
		}
	}
	m.mu.Unlock()
	for _, uid := range orphans {
		m.config.Allocations.RemovePod(uid)
	}
}

// Run sends statuses to the API server until ctx is done. Then it continues for at most Config.FlushTimeout to send what is
// pending, by priority, checkpoints the rest (BUG-10), and returns. It must be called at most once.
//
// Without an API server it only writes the checkpoint.
func (m *Manager) Run(ctx context.Context) error {
	var checkpoints sync.WaitGroup
	checkpoints.Go(func() { m.runCheckpoints(ctx) })
	if m.config.API == nil {
		m.config.Logger.Info("Running without an API server, pod statuses are not sent")
		<-ctx.Done()
	} else {
		m.runWorkers(ctx)
	}
	checkpoints.Wait()
	return m.saveCheckpoint(0)
}

// runWorkers runs the sync workers until ctx is done and everything that can be sent is sent.
func (m *Manager) runWorkers(ctx context.Context) {
	workerCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var workers sync.WaitGroup
	for range m.config.Workers {
		workers.Go(func() { m.runWorker(workerCtx) })
	}
	m.runPeriodicSync(ctx)
	deadline := time.AfterFunc(m.config.FlushTimeout, stop)
	defer deadline.Stop()
	m.flush(workerCtx)
	m.queue.close()
	workers.Wait()
	m.stopTimers()
}

// runWorker syncs one pod at a time until the queue is closed and empty, or ctx is done.
func (m *Manager) runWorker(ctx context.Context) {
	for m.limiter.acquire(ctx) {
		uid, ok := m.queue.get()
		if !ok {
			m.limiter.release()
			return
		}
		if ctx.Err() == nil {
			m.syncPodRecovered(ctx, uid)
		}
		m.queue.done(uid)
		m.limiter.release()
	}
}

// syncPodRecovered keeps a panic on one pod from ending the reports of all others (SM-3).
func (m *Manager) syncPodRecovered(ctx context.Context, uid podid.UID) {
	defer func() {
		if panicked := recover(); panicked != nil {
			m.config.Logger.Error("Panic while syncing pod status, will retry", "podUID", uid, "panic", panicked,
				"stack", string(debug.Stack()))
			m.backOff(syncAttempt{entry: cacheEntry{uid: uid}}, apierror.Failed, fmt.Errorf("sync pod status: panic: %v", panicked))
		}
	}()
	m.syncPod(ctx, uid)
}

// flush waits until the workers have sent everything that can be sent, or ctx is done.
func (m *Manager) flush(ctx context.Context) {
	m.queue.releaseAll()
	m.endBackoffs(func(b *backoff) bool { return b.class != apierror.Rejected && b.class != apierror.Throttled })
	for _, entry := range m.copyEntries((*cacheEntry).isPending) {
		m.enqueue(entry.uid, entry.syncPriority())
	}
	for ctx.Err() == nil && m.isSending() {
		select {
		case <-m.progress:
		case <-ctx.Done():
		}
	}
}

// isSending reports whether a pending status can still be sent.
func (m *Manager) isSending() bool {
	isSendable := func(entry *cacheEntry) bool {
		_, isDeleted := m.deleted[entry.uid]
		return entry.isSendable() && !isDeleted
	}
	for _, entry := range m.copyEntries(isSendable) {
		if m.resolveTarget(&syncAttempt{entry: entry}) {
			return true
		}
	}
	return false
}

// copyEntries returns copies of the entries that match, for use without the lock. match is called with the lock held.
func (m *Manager) copyEntries(match func(*cacheEntry) bool) []cacheEntry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var entries []cacheEntry
	for _, entry := range m.entries {
		if match(entry) {
			entries = append(entries, *entry)
		}
	}
	return entries
}

func (m *Manager) stopTimers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, entry := range m.entries {
		entry.backoff.reset()
	}
}
