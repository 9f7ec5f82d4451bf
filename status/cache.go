package status

import (
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// cacheEntry is what the manager knows about one pod. Manager.mu guards it. Pods and statuses are replaced, never modified,
// so that readers may keep them.
type cacheEntry struct {
	uid podid.UID
	pod *v1.Pod // as last passed to a setter
	// status is the newest status, with the newest probe results.
	status *v1.PodStatus
	// probes holds probe results by container ID. They are applied to every new status: one that was computed before a
	// result cannot undo it (SM-16, BUG-7).
	probes derive.ProbeResults
	// finished is set by TerminatePod.
	finished bool
	// restored is set while the status is that of an earlier process. The machine may have rebooted since.
	restored bool

	// version identifies the status. It comes from one counter for all pods, so that it also rises for a UID whose entry was
	// removed and created again (SM-79).
	version uint64
	// changedAt is when the newest version was cached.
	changedAt time.Time
	ackState
	// priority is that of the most urgent version that is not acknowledged.
	priority priority
	// phaseWithheld is set while the API server has the acknowledged version except for its terminal phase (SM-67).
	phaseWithheld bool

	object  objectState
	synced  syncedState
	backoff backoff
}

// ackState is what the API server has acknowledged of a pod's versions.
type ackState struct {
	// ackedVersion is the newest version that the API server is known to have, ackedAt is when it acknowledged it.
	ackedVersion uint64
	ackedAt      time.Time
	// unacked is the number of versions that are not acknowledged, unackedSince is when the oldest of them was cached.
	unacked      int
	unackedSince time.Time
	// unackedContent is what all of them say.
	unackedContent content
}

// objectState is what the manager's own requests revealed about a pod's API object.
type objectState struct {
	uid types.UID
	// resourceVersion, status and deletionRequested are from the last response. The watch may deliver newer ones. Older
	// ones are ignored (BUG-9).
	resourceVersion   string
	status            *v1.PodStatus
	deletionRequested bool
	// watchedVersion is the newest resource version that the watch delivered. If it delivers an older one, the API server
	// was restored from a backup, and its versions start over (F11).
	watchedVersion string
	// notFound is set after the API server answered that the object does not exist. It gets no more requests (F8) unless
	// the watch delivers a newer version.
	notFound bool
	// conflicts counts consecutive conflicts.
	conflicts int
	// hasAmbiguousWrite is set while an earlier request may still be executed: the next must carry a resource version (F9).
	hasAmbiguousWrite bool
	// unsettledWrite is set while the outcome of a write is not known: it is in flight, or was ambiguous. unsettledVersion is the
	// version that it was based on. Once a newer version is known, so is the outcome (Q3).
	unsettledWrite   bool
	unsettledVersion string
	// compaction is how much text was removed for the API server to accept the status (F32).
	compaction compaction
	// repairs counts writes since repairsSince that only restored what another writer had changed (F30).
	repairs       int
	repairsSince  time.Time
	repairsLogged bool
}

// syncedState identifies the last comparison that found nothing to do. The periodic sync skips the pod while both fields
// are unchanged.
type syncedState struct {
	watched *v1.Pod
	version uint64
}

// isUnacked reports whether the API server is not known to have the newest version.
func (entry *cacheEntry) isUnacked() bool { return entry.ackedVersion < entry.version }

// isPending reports whether the entry has something that the API server does not have yet.
func (entry *cacheEntry) isPending() bool {
	return entry.isUnacked() || entry.phaseWithheld || entry.awaitsDeletion()
}

// isUnconfirmed reports whether the status describes containers that this process has not observed. Only what has ended cannot
// have changed since an earlier process observed it.
func (entry *cacheEntry) isUnconfirmed() bool {
	return entry.restored && !entry.finished && !derive.IsTerminal(entry.status.Phase)
}

// isSendable reports whether the next response of the API server may acknowledge the entry.
func (entry *cacheEntry) isSendable() bool {
	return !entry.isUnconfirmed() && entry.backoff.class != apierror.Rejected && (entry.isUnacked() || entry.backoff.failures > 0)
}

// isUnsendable reports whether the status can never be sent: the object does not exist and will not be created again.
func (entry *cacheEntry) isUnsendable() bool {
	return entry.object.notFound && !podid.IsStatic(entry.pod)
}

// awaitsDeletion reports whether the object only waits for the manager to delete it.
func (entry *cacheEntry) awaitsDeletion() bool {
	return entry.finished && entry.pod.DeletionTimestamp != nil
}

// syncPriority returns the priority of the pod's next sync.
func (entry *cacheEntry) syncPriority() priority {
	switch {
	case entry.awaitsDeletion():
		return priorityTerminal
	case entry.isUnacked() || entry.phaseWithheld:
		return entry.priority
	default:
		return priorityNormal
	}
}

// statusUpdate is a change that a setter asks for.
type statusUpdate struct {
	via    Via
	pod    *v1.Pod
	status v1.PodStatus
	// force creates a new version even of an equal status, so that the pod is synced again (SM-10).
	force bool
	// terminate derives the status from the cached one and ignores status (SM-17).
	terminate bool
	// isPrivate is set if status was built from the cached one: no caller can modify what it refers to.
	isPrivate bool
	finished  bool
}

// updateCache is the only way into the cache. It returns the cached status and whether it is a new version.
func (m *Manager) updateCache(update statusUpdate) (*v1.PodStatus, bool) {
	uid := podid.UID(update.pod.UID)
	var published *v1.PodStatus
	m.mu.Lock()
	if _, found := m.entries[uid]; !found {
		m.mu.Unlock()
		published = m.publishedStatus(update.pod)
		m.mu.Lock()
	}
	status, change, err := m.updateCacheLocked(update, published)
	m.mu.Unlock()
	return status, m.finishUpdate(update.pod, change, err)
}

// finishUpdate schedules a write of the new version, or logs why there is none. It reports whether there is one.
func (m *Manager) finishUpdate(pod *v1.Pod, change change, err error) bool {
	switch {
	case err == nil:
		m.enqueueChange(podid.UID(pod.UID), change)
	case !errors.Is(err, errUnchanged):
		m.config.Logger.Error("Rejected pod status with an impossible container transition",
			"pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID, "err", err)
	}
	return err == nil
}

// errUnchanged is returned for an update that equals the cached status.
var errUnchanged = errors.New("status is unchanged")

// updateCacheLocked stores the update as a new version, and returns it with how to schedule its sync. On an error the cached status
// stays as it is, and is returned. published is what the status continues from if nothing is cached (SM-21).
func (m *Manager) updateCacheLocked(update statusUpdate, published *v1.PodStatus) (*v1.PodStatus, change, error) {
	uid := podid.UID(update.pod.UID)
	entry, found := m.entries[uid]
	if !found {
		entry = &cacheEntry{uid: uid, status: published}
	}
	cached := entry.status
	status, err := entry.resolve(&update)
	if err != nil {
		return cached, change{}, err
	}
	now := time.Now()
	status, _ = derive.Normalize(update.pod, derive.CarryOver(cached, status, now))
	m.metrics.countTerminated(cached, &status)
	if found && !update.force && !entry.isUnconfirmed() && derive.Equal(cached, &status) && update.finished == entry.finished {
		return cached, change{}, errUnchanged
	}
	switch {
	case !found:
		status = *status.DeepCopy()
		m.entries[uid] = entry
	case !update.isPrivate:
		status = copyOnWrite(&status, cached)
	}
	content := entry.contentOf(update.pod, cached, &status)
	m.storeLocked(entry, update, &status, now)
	entry.unackedContent = content
	m.publishLocked(entry, !found)
	return entry.status, change{entry.priority, content}, nil
}

// resolve returns the status that the update asks for, before history is applied to it. It sets update.finished.
func (entry *cacheEntry) resolve(update *statusUpdate) (v1.PodStatus, error) {
	if update.terminate {
		update.finished = true
		return derive.WithProbeResults(update.pod, derive.Terminate(update.pod, *entry.status), entry.probes), nil
	}
	update.finished = update.finished || (entry.finished && !podid.IsStatic(update.pod)) // SM-22
	if len(entry.probes) > 0 {
		update.status = derive.WithProbeResults(update.pod, update.status, entry.probes)
	}
	return update.status, derive.CheckTransition(update.pod, entry.status, &update.status)
}

func (m *Manager) storeLocked(entry *cacheEntry, update statusUpdate, status *v1.PodStatus, now time.Time) {
	priority := changePriority(entry.status, status, update.finished)
	if entry.isUnacked() {
		priority = min(priority, entry.priority)
	} else {
		entry.unackedSince = now
	}
	m.lastVersion++
	m.config.Journal.Accepted(Version{
		UID: entry.uid, Pod: update.pod, Before: entry.status, After: status, Version: m.lastVersion, Previous: entry.version,
		Via: update.via, Time: now,
	})
	entry.pod, entry.status, entry.finished = update.pod, status, update.finished
	entry.version, entry.changedAt, entry.priority = m.lastVersion, now, priority
	entry.unacked++
	entry.restored = entry.restored && update.isPrivate // a probe result confirms one container only
	maps.DeleteFunc(entry.probes, func(container observed.ContainerID, _ derive.ContainerProbeResults) bool {
		return !hasContainer(status, container)
	})
	m.shortenRejectedLocked(entry, now)
	m.checkpoint.dirty.Set()
}

func (m *Manager) publishLocked(entry *cacheEntry, first bool) {
	m.subscribers.publish(Change{
		UID: entry.uid, Pod: entry.pod, Status: entry.status, Version: entry.version, First: first, Finished: entry.finished,
	})
}

// publishedStatus returns the newest status of the API object that the node knows. Config.Pods may have a newer one than
// the caller. For a static pod it is in the mirror pod.
func (m *Manager) publishedStatus(pod *v1.Pod) *v1.PodStatus {
	if podid.IsStatic(pod) {
		if mirror := m.watchedObject(podid.UID(pod.UID), pod); mirror != nil { // not that of an earlier manifest
			return &mirror.Status
		}
	} else if watched, found := m.config.Pods.GetPodByUID(podid.UID(pod.UID)); found && isNewer(watched.ResourceVersion, pod.ResourceVersion) {
		return &watched.Status
	}
	return &pod.Status
}

// setProbeResult merges the result into the entry's probe results and updates the status if they changed.
func (m *Manager) setProbeResult(uid types.UID, container observed.ContainerID, result derive.ContainerProbeResults) {
	podUID := m.config.Pods.TranslatePodUID(uid)
	pod, found := m.config.Pods.GetPodByUID(podUID)
	if !found {
		return
	}
	m.mu.Lock()
	entry, found := m.entries[podUID]
	if !found || !hasContainer(entry.status, container) || !entry.mergeProbeResult(container, result) {
		m.mu.Unlock()
		return
	}
	update := statusUpdate{via: ViaProbe, pod: pod, status: *entry.status, isPrivate: true, finished: entry.finished}
	_, change, err := m.updateCacheLocked(update, nil)
	m.mu.Unlock()
	m.finishUpdate(pod, change, err)
}

// mergeProbeResult adds the result to those of the container, and reports whether that changed them.
func (entry *cacheEntry) mergeProbeResult(container observed.ContainerID, result derive.ContainerProbeResults) bool {
	merged := entry.probes[container]
	if result.Startup != derive.ProbeUnknown {
		merged.Startup = result.Startup
	}
	if result.Readiness != derive.ProbeUnknown {
		merged.Readiness = result.Readiness
	}
	if merged == entry.probes[container] {
		return false
	}
	if entry.probes == nil {
		entry.probes = derive.ProbeResults{}
	}
	entry.probes[container] = merged
	return true
}

// hasContainer reports whether a regular or init container has the ID. Ephemeral containers are never probed (SM-14).
func hasContainer(status *v1.PodStatus, container observed.ContainerID) bool {
	for _, statuses := range [...][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].ContainerID != "" && observed.ParseContainerID(statuses[i].ContainerID) == container {
				return true
			}
		}
	}
	return false
}

// removeEntry removes the pod after its object was deleted.
func (m *Manager) removeEntry(uid podid.UID) {
	m.mu.Lock()
	m.removeEntryLocked(uid)
	m.mu.Unlock()
	m.config.Allocations.RemovePod(uid)
}

// removeEntryLocked removes the pod. The caller must call Allocations.RemovePod once the lock is free.
func (m *Manager) removeEntryLocked(uid podid.UID) {
	entry, found := m.entries[uid]
	if !found {
		return
	}
	entry.backoff.reset()
	delete(m.entries, uid)
	m.config.Journal.Accepted(Version{
		UID: uid, Pod: entry.pod, Before: entry.status, After: entry.status, Version: entry.version, Previous: entry.version,
		Via: ViaRemove, Time: time.Now(), Removed: true,
	})
	m.checkpoint.dirty.Set()
	m.progress.Set()
	m.subscribers.publish(Change{
		UID: uid, Pod: entry.pod, Status: entry.status, Version: entry.version, Finished: entry.finished, Removed: true,
	})
}

// copyOnWrite returns a copy of status that shares no memory with the caller's (SM-9). Containers that are equal to their
// cached status share its memory instead: most changes affect one container, and copying all of them would be the main cost
// of an update.
func copyOnWrite(status, cached *v1.PodStatus) v1.PodStatus {
	copied := *status
	copied.InitContainerStatuses, copied.ContainerStatuses, copied.EphemeralContainerStatuses = nil, nil, nil
	copied = *copied.DeepCopy()
	copied.InitContainerStatuses = copyContainersOnWrite(status.InitContainerStatuses, cached.InitContainerStatuses)
	copied.ContainerStatuses = copyContainersOnWrite(status.ContainerStatuses, cached.ContainerStatuses)
	copied.EphemeralContainerStatuses = copyContainersOnWrite(status.EphemeralContainerStatuses, cached.EphemeralContainerStatuses)
	return copied
}

func copyContainersOnWrite(statuses, cached []v1.ContainerStatus) []v1.ContainerStatus {
	if statuses == nil {
		return nil
	}
	copied := make([]v1.ContainerStatus, len(statuses))
	for i := range statuses {
		if i < len(cached) && derive.EqualContainerStatus(&statuses[i], &cached[i]) {
			copied[i] = cached[i]
		} else {
			statuses[i].DeepCopyInto(&copied[i])
		}
	}
	return copied
}

// share releases memory that the watched object holds as well. That object is in memory anyway and usually equals the
// entry, so that an idle pod costs little.
func (entry *cacheEntry) share(watched *v1.Pod, isMirror bool) {
	if !isNewer(entry.object.resourceVersion, watched.ResourceVersion) {
		entry.object.status = nil
	}
	if !isMirror && isNewer(watched.ResourceVersion, entry.pod.ResourceVersion) {
		entry.pod = watched
	}
	if !entry.isUnacked() {
		shared := shareStatus(entry.status, &watched.Status)
		entry.status = &shared
	}
}

// shareStatus returns status with each list that equals the watched one replaced by it. Neither is ever modified.
func shareStatus(status, watched *v1.PodStatus) v1.PodStatus {
	shared := *status
	shared.Conditions = shareList(status.Conditions, watched.Conditions, equalCondition)
	shared.InitContainerStatuses = shareList(status.InitContainerStatuses, watched.InitContainerStatuses, derive.EqualContainerStatus)
	shared.ContainerStatuses = shareList(status.ContainerStatuses, watched.ContainerStatuses, derive.EqualContainerStatus)
	shared.EphemeralContainerStatuses = shareList(
		status.EphemeralContainerStatuses, watched.EphemeralContainerStatuses, derive.EqualContainerStatus)
	shared.PodIPs = shareList(status.PodIPs, watched.PodIPs, func(a, b *v1.PodIP) bool { return *a == *b })
	shared.HostIPs = shareList(status.HostIPs, watched.HostIPs, func(a, b *v1.HostIP) bool { return *a == *b })
	if status.StartTime.Equal(watched.StartTime) {
		shared.StartTime = watched.StartTime
	}
	return shared
}

func shareList[T any](list, watched []T, equal func(a, b *T) bool) []T {
	if len(list) == 0 || len(list) != len(watched) {
		return list
	}
	for i := range list {
		if !equal(&list[i], &watched[i]) {
			return list
		}
	}
	return watched
}

func equalCondition(a, b *v1.PodCondition) bool {
	x, y := *a, *b
	equalTimes := x.LastProbeTime.Equal(&y.LastProbeTime) && x.LastTransitionTime.Equal(&y.LastTransitionTime)
	x.LastProbeTime, x.LastTransitionTime = y.LastProbeTime, y.LastTransitionTime
	return equalTimes && x == y
}
