package status

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/podid"
)

// SyncState says how the API object of a pod compares with the cached status.
type SyncState string

// The states.
const (
	SyncSynced   SyncState = "synced"   // the API object has the cached status
	SyncSending  SyncState = "sending"  // a request is under way, or will be at once or after its delay (Config.Delays)
	SyncWaiting  SyncState = "waiting"  // a request failed or is limited, and is retried
	SyncWithheld SyncState = "withheld" // the phase is not sent, see Sync.Reason (SM-67, SM-68)
	SyncRefused  SyncState = "refused"  // the API server rejects the status; it is retried slowly
	SyncGone     SyncState = "gone"     // the API object does not exist
	SyncNoServer SyncState = "noServer" // there is no API server
)

// Sync compares the cached status of a pod with its API object, or that of its mirror pod, in the newest version that the
// manager knows: from the watch or from the response to one of its requests.
type Sync struct {
	// State is SyncSynced if and only if the fields that the node owns are equal in both, and no request is under way that could
	// change the object (Q3). Messages that were shortened for the API server (F32) count as equal.
	State SyncState
	// Version and At identify the cached status, SyncedVersion and SyncedAt the newest one that the API server acknowledged.
	Version, SyncedVersion uint64
	At, SyncedAt           time.Time
	// Synced is the status of the API object in the version ResourceVersion. It is shared and must not be modified. Nil if the
	// object is not known.
	Synced          *v1.PodStatus
	ResourceVersion string
	// Behind is the number of versions of this pod's status that the API object does not have. It is 0 if the state is SyncSynced
	// or SyncNoServer. Since is when the oldest of them was set; zero if another writer undid a version, at a time that is unknown.
	Behind int
	Since  time.Time
	// Reason says why the status is not synced, or why the object of a terminated pod could not be deleted. Failures counts the
	// requests that failed in a row. NextTry is when the next one is sent; zero if that is at once, or if nothing is planned.
	Reason   string
	Failures int
	NextTry  time.Time
	// Repairs counts the writes of the last minute that only restored what another writer had changed (F30, SM-53).
	Repairs int
	// Finalizers are those of the API object.
	Finalizers []string
}

// Sync compares the status of a pod with its API object. uid is the pod's or that of its mirror pod. It returns false if the pod
// has no status.
func (m *Manager) Sync(uid types.UID) (Sync, bool) {
	podUID := m.config.Pods.TranslatePodUID(uid)
	m.mu.RLock()
	entry, found := m.entries[podUID]
	if !found {
		m.mu.RUnlock()
		return Sync{}, false
	}
	attempt := syncAttempt{entry: *entry}
	_, isDeleted := m.deleted[podUID]
	m.mu.RUnlock()
	return m.compare(&attempt, isDeleted, time.Now()), true
}

// Syncs compares the statuses of all pods with their API objects.
func (m *Manager) Syncs() map[podid.UID]Sync {
	m.mu.RLock()
	attempts, isDeleted := make([]syncAttempt, 0, len(m.entries)), make([]bool, 0, len(m.entries))
	for uid, entry := range m.entries {
		_, deleted := m.deleted[uid]
		attempts, isDeleted = append(attempts, syncAttempt{entry: *entry}), append(isDeleted, deleted)
	}
	m.mu.RUnlock()
	now := time.Now()
	syncs := make(map[podid.UID]Sync, len(attempts))
	for i := range attempts {
		syncs[attempts[i].entry.uid] = m.compare(&attempts[i], isDeleted[i], now)
	}
	return syncs
}

// compare returns the state of a copied entry. It completes the attempt.
func (m *Manager) compare(attempt *syncAttempt, isDeleted bool, now time.Time) Sync {
	entry := &attempt.entry
	sync := Sync{Version: entry.version, At: entry.changedAt, SyncedVersion: entry.ackedVersion, SyncedAt: entry.ackedAt}
	if m.config.API == nil {
		sync.State = SyncNoServer
		return sync
	}
	exists := m.resolveTarget(attempt) && !isDeleted
	sync.Synced, sync.ResourceVersion = attempt.target.status, attempt.target.resourceVersion
	if attempt.watched != nil {
		sync.Finalizers = attempt.watched.Finalizers
	}
	if now.Sub(entry.object.repairsSince) < repairWindow {
		sync.Repairs = entry.object.repairs
	}
	if backoff := &entry.backoff; backoff.failures > 0 && (backoff.objectUID == attempt.target.uid || backoff.objectUID == "") {
		sync.Failures, sync.Reason = backoff.failures, apierror.Describe(backoff.err)
		if now.Before(backoff.until) {
			sync.NextTry = backoff.until
		}
	}
	equality := comparesEqual
	if exists {
		equality = m.compareStatus(attempt, now)
	}
	sync.setState(attempt, exists, equality)
	sync.setBehind(entry)
	return sync
}

// equality is the result of a comparison of the cached status with the API object.
type equality int

const (
	comparesEqual     equality = iota
	comparesDifferent          // a write is needed
	comparesWithheld           // only the terminal phase differs, which must not be sent yet
	comparesFinal              // only the phase differs, because the object's is terminal already
	comparesUnknown            // the object is not known, or a write is under way that may change it
)

// compareStatus compares the attempt's status with its target.
func (m *Manager) compareStatus(attempt *syncAttempt, now time.Time) equality {
	entry, base := &attempt.entry, attempt.target.status
	if base == nil || attempt.isUnsettled() {
		return comparesUnknown
	}
	isCompared := attempt.watched != nil && entry.synced == syncedState{watched: attempt.watched, version: entry.version} &&
		attempt.target.resourceVersion == attempt.watched.ResourceVersion
	if !isCompared {
		attempt.couldRun = derive.IsTerminal(entry.status.Phase) && m.config.Deletion.PodCouldHaveRunningContainers(entry.uid)
		if action, _ := decide(*attempt, now); action == actionPatch {
			return comparesDifferent
		}
	}
	switch {
	case base.Phase == entry.status.Phase:
		return comparesEqual
	case derive.IsTerminal(base.Phase):
		return comparesFinal
	default:
		return comparesWithheld
	}
}

// setState sets the state and, unless a failure is the reason, the reason.
func (s *Sync) setState(attempt *syncAttempt, exists bool, equality equality) {
	entry := &attempt.entry
	switch {
	case !exists && podid.IsStatic(entry.pod):
		s.State, s.Reason = SyncGone, "the mirror pod does not exist"
	case !exists, attempt.watched == nil && !entry.isPending() && s.Failures == 0:
		s.State, s.Reason = SyncGone, "the object does not exist in the API server"
	case equality == comparesEqual:
		s.State = SyncSynced
		if !entry.awaitsDeletion() {
			s.Reason, s.Failures, s.NextTry = "", 0, time.Time{} // of a status that was replaced
		}
	case entry.isUnconfirmed():
		s.State, s.Reason = SyncWaiting, "the status is that of an earlier run, and the containers have not been observed yet"
	case equality == comparesWithheld:
		s.State, s.Reason = SyncWithheld, "withheld until all containers have stopped"
	case equality == comparesFinal:
		s.State = SyncWithheld
		s.Reason = fmt.Sprintf("withheld: another writer has set the phase %s, which is final", attempt.target.status.Phase)
	case s.Failures > 0 && entry.backoff.class == apierror.Rejected:
		s.State = SyncRefused
	case s.Failures > 0:
		s.State = SyncWaiting
	case !entry.isUnacked() && s.Repairs >= maxRepairs:
		s.State, s.NextTry = SyncWaiting, entry.object.repairsSince.Add(repairWindow)
		s.Reason = fmt.Sprintf("limited: another writer keeps changing the status, which was restored %d times within %v",
			s.Repairs, repairWindow)
	default:
		s.State = SyncSending
	}
}

// setBehind sets how many versions the API object lacks. An equal status is not behind, even if no response acknowledged its version.
func (s *Sync) setBehind(entry *cacheEntry) {
	switch {
	case s.State == SyncSynced && entry.isUnacked():
		s.SyncedVersion, s.SyncedAt = entry.version, entry.changedAt
	case s.State == SyncSynced:
	case entry.isUnacked():
		s.Behind, s.Since = max(1, entry.unacked), entry.unackedSince
	case s.State == SyncWithheld && entry.phaseWithheld:
		s.Behind, s.Since = 1, entry.changedAt
	default:
		s.Behind = 1
	}
}
