package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status/patch"
)

// maxConflicts is how many consecutive conflicts are answered with the newest resource version before the patch is sent
// without one. The patch states everything that the node owns, so that it is right on any version. The version only keeps an
// older request from being executed after it.
const maxConflicts = 5

// syncAttempt is one attempt to bring the API object up to date with the cached status.
type syncAttempt struct {
	entry    cacheEntry // a copy, taken under Manager.mu
	watched  *v1.Pod    // Config.Pods' copy of the API object, or nil
	target   target
	rewound  bool // the API server was restored from a backup: entry.object was void (F11)
	couldRun bool // a container may still run
	released bool // the pod is deleted and holds nothing on the node any more
}

// target is the API object that requests address: the pod itself or its mirror pod, in the newest known version.
type target struct {
	name              podid.FullName
	uid               types.UID
	resourceVersion   string        // "" if unknown
	status            *v1.PodStatus // nil if unknown
	deletionRequested bool
	isMirror          bool
}

// syncPod brings the API object up to date with the cached status: usually with one request, with a second to delete the
// object, and with one more to read an object that is not known yet.
func (m *Manager) syncPod(ctx context.Context, uid podid.UID) {
	attempt, ok := m.snapshot(uid)
	if !ok {
		m.progress.Set()
		return
	}
	action, merged := decide(attempt, time.Now())
	if action == actionRead || (action == actionNone && attempt.isUnsettled()) {
		isPending := attempt.entry.isPending() || attempt.entry.backoff.failures > 0
		if action == actionRead && !isPending { // the watch lost an object that is up to date
			return
		}
		if !m.readObject(ctx, &attempt) {
			return
		}
		action, merged = decide(attempt, time.Now())
	}
	if m.adoptStartTime(attempt) {
		m.requeue(uid)
		return
	}
	if action == actionPatch {
		if m.isRepairLimited(attempt) || !m.patchStatus(ctx, &attempt, merged) {
			return
		}
		action, merged = decide(attempt, time.Now())
	}
	if action == actionDelete {
		m.deleteObject(ctx, attempt)
		return
	}
	m.markSynced(attempt, merged)
}

// snapshot collects what a sync of the pod needs. It returns false if nothing can be sent now: the pod is unknown or backs
// off, its object does not exist, it is a static pod without a mirror pod (SM-49), or its status is that of an earlier
// process.
func (m *Manager) snapshot(uid podid.UID) (syncAttempt, bool) {
	m.mu.RLock()
	entry, found := m.entries[uid]
	if _, isDeleted := m.deleted[uid]; !found || isDeleted {
		m.mu.RUnlock()
		return syncAttempt{}, false
	}
	attempt := syncAttempt{entry: *entry}
	m.mu.RUnlock()

	if attempt.entry.isUnconfirmed() || !m.resolveTarget(&attempt) || attempt.entry.backoff.isActive(attempt.target.uid, time.Now()) {
		return syncAttempt{}, false
	}
	attempt.couldRun = m.config.Deletion.PodCouldHaveRunningContainers(uid)
	attempt.released = attempt.entry.finished && attempt.target.deletionRequested &&
		m.config.Deletion.PodResourcesAreReclaimed(attempt.fullPod(), attempt.entry.status)
	return attempt, true
}

// resolveTarget sets the attempt's target to the newer of the watched object and the last response. It returns false if
// there is no object.
func (m *Manager) resolveTarget(attempt *syncAttempt) bool {
	entry := &attempt.entry
	isStatic := podid.IsStatic(entry.pod)
	attempt.watched = m.watchedObject(entry.uid, entry.pod)
	if isStatic && attempt.watched == nil {
		return false
	}
	attempt.target = target{
		name: podid.FullNameOf(entry.pod), uid: types.UID(entry.uid), isMirror: isStatic,
		deletionRequested: entry.pod.DeletionTimestamp != nil && !isStatic,
	}
	target := &attempt.target
	if watched := attempt.watched; watched != nil {
		target.uid, target.resourceVersion, target.status = watched.UID, watched.ResourceVersion, &watched.Status
		target.deletionRequested = target.deletionRequested || watched.DeletionTimestamp != nil
	}
	attempt.rewound = attempt.isRewound()
	if entry.object.uid != target.uid || attempt.rewound {
		entry.object = objectState{uid: target.uid}
		return true
	}
	target.deletionRequested = target.deletionRequested || entry.object.deletionRequested
	if isNewer(target.resourceVersion, entry.object.resourceVersion) {
		return true
	}
	if entry.object.status != nil && target.resourceVersion != entry.object.resourceVersion {
		target.resourceVersion, target.status = entry.object.resourceVersion, entry.object.status
	}
	return !entry.object.notFound
}

// watchedObject returns Config.Pods' copy of the pod's API object, or nil. The mirror pod of an earlier manifest does not
// belong to this static pod.
func (m *Manager) watchedObject(uid podid.UID, pod *v1.Pod) *v1.Pod {
	if !podid.IsStatic(pod) {
		watched, _ := m.config.Pods.GetPodByUID(uid)
		return watched
	}
	mirror, found := m.config.Pods.GetMirrorPodByPod(pod)
	if !found || !podid.IsMirrorOf(mirror, pod) {
		return nil
	}
	return mirror
}

// fullPod returns the pod with its spec, if known: an entry from the checkpoint has only metadata.
func (attempt *syncAttempt) fullPod() *v1.Pod {
	if attempt.watched != nil && !attempt.target.isMirror {
		return attempt.watched
	}
	return attempt.entry.pod
}

// isRewound reports whether the watch went back to an older version: the API server was restored from a backup, and its
// earlier responses are void (F11).
func (attempt *syncAttempt) isRewound() bool {
	watchedVersion := attempt.entry.object.watchedVersion
	return attempt.watched != nil && watchedVersion != "" && isNewer(watchedVersion, attempt.watched.ResourceVersion)
}

// isUnsettled reports whether a write may have changed the object since the target's version: its outcome is not known.
func (attempt *syncAttempt) isUnsettled() bool {
	object := &attempt.entry.object
	return object.unsettledWrite && !isNewer(attempt.target.resourceVersion, object.unsettledVersion)
}

// isNewer reports whether resource version a is newer than b. Of two that cannot be compared neither is: the manager's own
// responses are then the safer base, and the watch will deliver again (BUG-9).
func isNewer(a, b string) bool {
	if b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// action is the next step of a sync.
type action int

const (
	actionNone   action = iota
	actionRead          // the object is unknown and must be read first
	actionPatch         // send the merged status
	actionDelete        // delete the object
)

// decide compares the cached status with the API object. merged is the status that the object should have.
func decide(attempt syncAttempt, now time.Time) (action action, merged *v1.PodStatus) {
	base := attempt.target.status
	if base == nil {
		return actionRead, nil
	}
	status := derive.Merge(*base, *attempt.entry.status, attempt.couldRun, now)
	keepTransitionTimes(base.Conditions, status.Conditions, now)
	status = attempt.entry.object.compaction.apply(status)
	switch {
	case !derive.Equal(base, &status):
		return actionPatch, &status
	case attempt.released && !attempt.target.isMirror && !attempt.couldRun && derive.IsTerminal(base.Phase): // SM-72, SM-75
		return actionDelete, &status
	default:
		return actionNone, &status
	}
}

// isPhaseWithheld reports whether the merged status lacks the pod's terminal phase (SM-67).
func isPhaseWithheld(attempt syncAttempt, merged *v1.PodStatus) bool {
	return derive.IsTerminal(attempt.entry.status.Phase) && !derive.IsTerminal(merged.Phase)
}

// isStable reports whether only a new version or a new watched object can change the result of the comparison. A withheld
// phase and an object that waits for its deletion also depend on the node's clean-up, which sends no signal.
func isStable(attempt syncAttempt, merged *v1.PodStatus) bool {
	return !isPhaseWithheld(attempt, merged) && (!attempt.target.deletionRequested || attempt.target.isMirror)
}

// keepTransitionTimes makes the transition times in merged continue those of the object, of any writer. A time moves
// only with the condition's status, and never back (I6). It is when the status changed, not when it was sent. Resize
// conditions have times of their own (SM-88). merged is modified.
func keepTransitionTimes(base, merged []v1.PodCondition, now time.Time) {
	for i := range merged {
		condition := &merged[i]
		if !derive.IsOwnedCondition(condition.Type) || condition.Type == v1.PodResizePending || condition.Type == v1.PodResizeInProgress {
			continue
		}
		current := conditionOf(base, condition.Type)
		switch {
		case current == nil || current.LastTransitionTime.IsZero():
		case current.Status == condition.Status:
			condition.LastTransitionTime = current.LastTransitionTime
		case condition.LastTransitionTime.Before(&current.LastTransitionTime):
			condition.LastTransitionTime = latest(current.LastTransitionTime, now)
		}
	}
}

func latest(transition metav1.Time, now time.Time) metav1.Time {
	if transition.After(now) {
		return transition
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

func conditionOf(conditions []v1.PodCondition, conditionType v1.PodConditionType) *v1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// patchStatus sends the merged status. It returns true if the API server accepted it; the attempt's target is then the new
// version of the object.
func (m *Manager) patchStatus(ctx context.Context, attempt *syncAttempt, merged *v1.PodStatus) bool {
	body, err := patch.Build(newPatchRequest(attempt, merged))
	if err != nil {
		m.config.Logger.Error("Failed to build pod status patch", attempt.logValues(err)...)
		m.backOff(*attempt, apierror.Rejected, err)
		return false
	}
	m.checkpointBeforeSend(attempt.entry.uid, attempt.entry.version)
	m.updateObject(*attempt, func(object *objectState) {
		object.unsettledWrite, object.unsettledVersion = true, attempt.target.resourceVersion
	})
	response, err := m.sendPatch(ctx, attempt.target, body)
	if class := m.recordRequest("patch", err); class != apierror.None {
		m.handlePatchError(ctx, *attempt, class, err)
		return false
	}
	m.limiter.countSuccess()
	target := &attempt.target
	target.resourceVersion, target.status = response.ResourceVersion, merged
	target.deletionRequested = target.deletionRequested || response.DeletionTimestamp != nil
	m.acknowledge(*attempt)
	return true
}

func (m *Manager) sendPatch(ctx context.Context, target target, body []byte) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.RequestTimeout)
	defer cancel()
	response, err := m.config.API.PatchPodStatus(ctx, target.name.Namespace, target.name.Name, body)
	if err != nil {
		return nil, err
	}
	if response.UID != target.uid || response.ResourceVersion == "" {
		return nil, fmt.Errorf("patch status of pod %s: response has UID %q and version %q, want UID %q",
			target.name.Key(), response.UID, response.ResourceVersion, target.uid)
	}
	return response, nil
}

// newPatchRequest returns the content of the patch. It carries the object's resource version, so that an earlier request
// that is still in flight cannot be executed after it unnoticed (F9). It omits the version if other writers change the object
// so often that no version holds, and no earlier request is in flight.
func newPatchRequest(attempt *syncAttempt, merged *v1.PodStatus) patch.Request {
	request := patch.Request{UID: attempt.target.uid, ResourceVersion: attempt.target.resourceVersion}
	if attempt.entry.object.conflicts >= maxConflicts && !attempt.entry.object.hasAmbiguousWrite {
		request.ResourceVersion = ""
	}
	status := *merged
	status.Conditions, request.Absent = conditionsToSend(merged.Conditions, attempt.target.status)
	request.Status = &status
	return request
}

// conditionsToSend returns the owned conditions, the shared one if this write changes it, and the owned types that merged
// does not have.
func conditionsToSend(merged []v1.PodCondition, base *v1.PodStatus) (present []v1.PodCondition, absent []v1.PodConditionType) {
	isPresent := map[v1.PodConditionType]bool{}
	for _, condition := range merged {
		isNew := !slices.Contains(base.Conditions, condition)
		if derive.IsOwnedCondition(condition.Type) || (condition.Type == v1.DisruptionTarget && isNew) {
			present = append(present, condition)
			isPresent[condition.Type] = true
		}
	}
	for _, conditionType := range derive.OwnedConditions() {
		if !isPresent[conditionType] {
			absent = append(absent, conditionType)
		}
	}
	return present, absent
}

// deleteObject deletes the object of a terminated pod (SM-73). A conflict means that the name has another UID by now.
func (m *Manager) deleteObject(ctx context.Context, attempt syncAttempt) {
	ctx, cancel := context.WithTimeout(ctx, m.config.RequestTimeout)
	defer cancel()
	target := attempt.target
	err := m.config.API.DeletePod(ctx, target.name.Namespace, target.name.Name, target.uid)
	switch class := m.recordRequest("delete", err); class {
	case apierror.None, apierror.NotFound, apierror.Conflict, apierror.Replaced:
		m.config.Logger.Debug("Deleted terminated pod from the API server", "pod", target.name.Key(), "podUID", attempt.entry.uid)
		m.mu.Lock()
		m.deleted[attempt.entry.uid] = time.Now()
		m.mu.Unlock()
		m.removeEntry(attempt.entry.uid)
	default:
		m.retryLater(attempt, class, err)
	}
}

// readObject reads the object. It returns true if the attempt's target is the newest version now, and false if the object
// does not exist or the pod backs off.
func (m *Manager) readObject(ctx context.Context, attempt *syncAttempt) bool {
	class, err := m.fetchObject(ctx, attempt)
	switch class {
	case apierror.None:
		return true
	case apierror.NotFound:
		m.handleNotFound(*attempt)
	case apierror.Rejected: // the server judged the reader, not the status
		m.retryLater(*attempt, apierror.Failed, err)
	default:
		m.retryLater(*attempt, class, err)
	}
	return false
}

// fetchObject reads the object into the attempt's target. It returns NotFound if the object does not exist or is another one.
func (m *Manager) fetchObject(ctx context.Context, attempt *syncAttempt) (apierror.Class, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.RequestTimeout)
	defer cancel()
	target := &attempt.target
	pod, err := m.config.API.GetPod(ctx, target.name.Namespace, target.name.Name)
	class := m.recordRequest("get", err)
	switch {
	case class == apierror.Replaced || class == apierror.None && pod.UID != target.uid:
		return apierror.NotFound, err
	case attempt.watched == nil && apierror.IsUnrelated(err): // and it left the watch
		return apierror.NotFound, err
	case class != apierror.None:
		return class, err
	}
	m.updateObject(*attempt, func(object *objectState) {
		object.resourceVersion, object.status = pod.ResourceVersion, &pod.Status
		object.deletionRequested, object.unsettledWrite = pod.DeletionTimestamp != nil, false
	})
	attempt.entry.object.unsettledWrite = false
	target.resourceVersion, target.status = pod.ResourceVersion, &pod.Status
	target.deletionRequested = target.deletionRequested || pod.DeletionTimestamp != nil
	return apierror.None, nil
}

// acknowledge records that the API server accepted the attempt's version.
func (m *Manager) acknowledge(attempt syncAttempt) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, found := m.entries[attempt.entry.uid]
	if !found {
		return
	}
	object, target := entry.objectFor(attempt), attempt.target
	if entry.ackedVersion >= attempt.entry.version && object.resourceVersion != "" { // the first write to a new mirror repairs nothing
		object.countRepair(now)
		m.metrics.repairs.Inc()
	}
	object.resourceVersion, object.status, object.deletionRequested = target.resourceVersion, target.status, target.deletionRequested
	object.conflicts, object.hasAmbiguousWrite, object.unsettledWrite = 0, false, false
	m.acknowledgeLocked(entry, attempt, target.status, now)
}

// markSynced records that there was nothing to send. The periodic sync skips the pod until something changes.
func (m *Manager) markSynced(attempt syncAttempt, merged *v1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, found := m.entries[attempt.entry.uid]
	if !found {
		return
	}
	object := entry.objectFor(attempt)
	object.conflicts = 0
	m.acknowledgeLocked(entry, attempt, merged, time.Now())
	if attempt.watched != nil {
		object.watchedVersion = attempt.watched.ResourceVersion
		entry.share(attempt.watched, attempt.target.isMirror)
	}
	if isStable(attempt, merged) {
		entry.synced = syncedState{watched: attempt.watched, version: attempt.entry.version}
	}
}

// acknowledgeLocked records that the API server has the attempt's version. The latency has one sample for each (BUG-5).
func (m *Manager) acknowledgeLocked(entry *cacheEntry, attempt syncAttempt, merged *v1.PodStatus, now time.Time) {
	isChanged := entry.backoff.failures > 0
	entry.backoff.reset()
	m.progress.Set()
	if entry.ackedVersion < attempt.entry.version {
		m.metrics.latency.Observe(now.Sub(entry.unackedSince).Seconds())
		m.metrics.recent.Observe(now, now.Sub(entry.unackedSince))
		entry.ackedVersion, entry.ackedAt = attempt.entry.version, now
		entry.unacked = max(0, entry.unacked-attempt.entry.unacked)
		m.config.Journal.Acknowledged(entry.uid, entry.ackedVersion, now)
		entry.unackedSince = entry.changedAt
		m.checkpoint.dirty.Set()
	}
	if withheld := isPhaseWithheld(attempt, merged); entry.version == attempt.entry.version && entry.phaseWithheld != withheld {
		entry.phaseWithheld, isChanged = withheld, true
		m.checkpoint.dirty.Set()
	}
	if isChanged {
		m.config.OnSync(entry.uid)
	}
}

// adoptStartTime caches the object's start time if it is earlier than the cached one, and reports whether it was. An agent
// that started while the API server was unreachable did not know it, and a start time never moves (SM-25, I4).
func (m *Manager) adoptStartTime(attempt syncAttempt) bool {
	startTime := attempt.target.status.StartTime
	if startTime.IsZero() || !startTime.Before(attempt.entry.status.StartTime) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, found := m.entries[attempt.entry.uid]
	if !found {
		return true
	}
	status := *entry.status
	status.StartTime = startTime
	m.storeLocked(entry, statusUpdate{via: ViaAdopt, pod: entry.pod, finished: entry.finished}, &status, time.Now())
	m.publishLocked(entry, false)
	return true
}

// objectFor returns the state of the attempt's object. It starts over if the entry's is about another object, or about a
// history that was rewound.
func (entry *cacheEntry) objectFor(attempt syncAttempt) *objectState {
	if entry.object.uid != attempt.target.uid || attempt.rewound {
		entry.object = objectState{uid: attempt.target.uid}
	}
	return &entry.object
}

// updateObject changes the state of the attempt's object.
func (m *Manager) updateObject(attempt syncAttempt, change func(*objectState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if entry, found := m.entries[attempt.entry.uid]; found {
		change(entry.objectFor(attempt))
	}
}

// restoreUnsettled records that the attempt's write was not executed. The outcome of an earlier one may still be unknown.
func (m *Manager) restoreUnsettled(attempt syncAttempt) {
	m.updateObject(attempt, func(object *objectState) {
		object.unsettledWrite, object.unsettledVersion = attempt.entry.object.unsettledWrite, attempt.entry.object.unsettledVersion
	})
}

// deletedRetention is how long a pod is remembered whose object was deleted. A worker may set a status that late.
const deletedRetention = 10 * time.Minute

// runPeriodicSync compares all pods with the API server once per Config.SyncPeriod, until ctx is done.
func (m *Manager) runPeriodicSync(ctx context.Context) {
	ticker := time.NewTicker(m.config.SyncPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.forgetDeleted(time.Now())
			m.enqueueUnsynced()
		}
	}
}

func (m *Manager) forgetDeleted(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.deleted, func(_ podid.UID, deletedAt time.Time) bool { return now.Sub(deletedAt) > deletedRetention })
}

// enqueueUnsynced schedules a sync of every pod that may have changed since its last one (SM-52, SM-53). Pods that back off
// have a timer of their own.
func (m *Manager) enqueueUnsynced() {
	type syncedPod struct {
		uid    podid.UID
		pod    *v1.Pod
		synced syncedState
		// version is the newest, synced.version that of the last comparison.
		version uint64
	}
	now := time.Now()
	m.mu.RLock()
	pods := make([]syncedPod, 0, len(m.entries))
	for uid, entry := range m.entries {
		if !now.Before(entry.backoff.until) {
			pods = append(pods, syncedPod{uid: uid, pod: entry.pod, synced: entry.synced, version: entry.version})
		}
	}
	m.mu.RUnlock()
	for _, pod := range pods {
		if pod.synced != (syncedState{watched: m.watchedObject(pod.uid, pod.pod), version: pod.version}) {
			m.requeue(pod.uid)
		}
	}
}
