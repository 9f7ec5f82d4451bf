package status

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/podid"
)

const (
	// outageThreshold is the number of consecutive failures after which the next success ends an outage.
	outageThreshold = 5
	// immediateRetries is the number of consecutive conflicts that are retried without a delay.
	immediateRetries = 2
	// maxRepairs is the number of writes per repairWindow that only restore what another writer changed (F30).
	maxRepairs   = 3
	repairWindow = time.Minute
)

// Delays after consecutive failures, and after rejections, which end only if the object or the status changes. Up to a
// quarter is added at random, so that the pods of a node do not retry together.
const (
	minRetryDelay, maxRetryDelay       = 100 * time.Millisecond, 10 * time.Second
	minRejectedDelay, maxRejectedDelay = time.Second, time.Minute
)

// recordRequest counts the request and returns the class of its error. It notices when the API server is reachable again:
// pods that back off because it was not are then retried together, by priority, with the first success (F1).
func (m *Manager) recordRequest(verb string, err error) apierror.Class {
	class := apierror.Classify(err)
	m.metrics.requests.WithLabelValues(verb, class.String()).Inc()
	if class == apierror.Failed || class == apierror.Ambiguous {
		if m.failures.Add(1) == outageThreshold {
			m.config.Logger.Warn("Requests to the API server keep failing, pod statuses are pending", "err", err)
		}
		return class
	}
	if m.failures.Swap(0) >= outageThreshold {
		m.config.Logger.Info("API server is reachable again")
		m.endBackoffs(func(b *backoff) bool { return b.class == apierror.Failed || b.class == apierror.Ambiguous })
	}
	return class
}

// handlePatchError handles a patch that the API server did not accept.
func (m *Manager) handlePatchError(ctx context.Context, attempt syncAttempt, class apierror.Class, err error) {
	if class != apierror.Ambiguous && class != apierror.Conflict { // a conflict may be with an earlier write of this manager
		m.restoreUnsettled(attempt)
	}
	switch class {
	case apierror.NotFound, apierror.Replaced:
		m.handleNotFound(attempt)
	case apierror.Conflict:
		m.handleConflict(ctx, attempt, err)
	case apierror.TooLarge:
		m.handleTooLarge(ctx, attempt, err)
	case apierror.Rejected:
		m.handleRejected(ctx, attempt, err)
	default:
		if class == apierror.Ambiguous {
			m.updateObject(attempt, func(object *objectState) { object.hasAmbiguousWrite = true })
		}
		m.retryLater(attempt, class, err)
	}
}

// handleNotFound records that the object does not exist. A pod that Config.Pods still has keeps its entry: the watch will
// deliver its removal or, for a static pod, its next mirror pod (SM-58, SM-59, BUG-8).
func (m *Manager) handleNotFound(attempt syncAttempt) {
	uid := attempt.entry.uid
	_, isKnown := m.config.Pods.GetPodByUID(uid)
	m.mu.Lock()
	entry, found := m.entries[uid]
	isRemoved := found && !isKnown && entry.version == attempt.entry.version
	if found && isKnown {
		entry.object = objectState{
			uid: attempt.target.uid, resourceVersion: attempt.target.resourceVersion, notFound: true,
		}
		entry.backoff.reset()
		m.progress.Set()
		m.config.OnSync(uid)
	}
	if isRemoved {
		m.removeEntryLocked(uid)
	}
	m.mu.Unlock()
	if isRemoved {
		m.config.Allocations.RemovePod(uid)
	}
}

// handleConflict obtains the newest version of the object: from the watch if it is ahead of the request, otherwise with the
// one GET that a conflict costs. The first conflicts are retried at once.
func (m *Manager) handleConflict(ctx context.Context, attempt syncAttempt, err error) {
	m.metrics.conflicts.Inc()
	m.updateObject(attempt, func(object *objectState) { object.conflicts++ })
	watched := m.watchedObject(attempt.entry.uid, attempt.entry.pod)
	isAhead := watched != nil &&
		(watched.UID != attempt.target.uid || isNewer(watched.ResourceVersion, attempt.target.resourceVersion))
	if !isAhead && !m.readObject(ctx, &attempt) {
		return
	}
	if attempt.entry.object.conflicts < immediateRetries {
		m.requeue(attempt.entry.uid)
		return
	}
	m.backOff(attempt, apierror.Conflict, err)
}

// handleTooLarge removes text from what is sent, until the API server accepts it or there is none left.
func (m *Manager) handleTooLarge(ctx context.Context, attempt syncAttempt, err error) {
	compaction, ok := attempt.entry.object.compaction.next()
	if !ok {
		m.handleRejected(ctx, attempt, err)
		return
	}
	m.config.Logger.Warn("Pod status is too large for the API server, sending it with shorter messages", attempt.logValues(err)...)
	m.updateObject(attempt, func(object *objectState) { object.compaction = compaction })
	m.requeue(attempt.entry.uid)
}

// handleRejected reads the object, which may explain the rejection, and retries slowly.
func (m *Manager) handleRejected(ctx context.Context, attempt syncAttempt, err error) {
	if attempt.entry.backoff.class != apierror.Rejected {
		m.config.Logger.Warn("API server rejected pod status, will retry", attempt.logValues(err)...)
	}
	if class, _ := m.fetchObject(ctx, &attempt); class == apierror.NotFound {
		m.handleNotFound(attempt)
		return
	}
	m.backOff(attempt, apierror.Rejected, err)
}

// retryLater backs off.
func (m *Manager) retryLater(attempt syncAttempt, class apierror.Class, err error) {
	if class == apierror.Throttled {
		m.limiter.decrease()
	}
	m.config.Logger.Debug("Failed to sync pod status, will retry", append(attempt.logValues(err), "class", class.String())...)
	m.backOff(attempt, class, err)
}

func (attempt *syncAttempt) logValues(err error) []any {
	return []any{"pod", attempt.target.name.Key(), "podUID", attempt.entry.uid, "err", err}
}

// isRepairLimited reports whether a write would only restore, once too often, what another writer keeps changing. The
// periodic sync tries again.
func (m *Manager) isRepairLimited(attempt syncAttempt) bool {
	object := &attempt.entry.object
	if attempt.entry.isUnacked() || object.repairs < maxRepairs || time.Since(object.repairsSince) >= repairWindow {
		return false
	}
	if !object.repairsLogged {
		m.updateObject(attempt, func(current *objectState) { current.repairsLogged = true })
		m.config.Logger.Warn("Another writer keeps changing the pod status, restoring it less often",
			"pod", attempt.target.name.Key(), "podUID", attempt.entry.uid, "repairs", maxRepairs, "window", repairWindow)
	}
	return true
}

func (object *objectState) countRepair(now time.Time) {
	if now.Sub(object.repairsSince) >= repairWindow {
		object.repairs, object.repairsSince, object.repairsLogged = 0, now, false
	}
	object.repairs++
}

// backoff delays the syncs of a pod after failures, whatever causes them: an API server in trouble gets no more requests
// because statuses keep changing, and one that asked to wait gets none.
type backoff struct {
	objectUID types.UID      // the object that failed; "" matches any. A new mirror pod is not delayed by the last one.
	class     apierror.Class // of the last error
	err       error          // the last error
	failures  int            // consecutive
	until     time.Time
	timer     *time.Timer // schedules the next sync
}

// isActive reports whether requests for the object are delayed.
func (b *backoff) isActive(objectUID types.UID, now time.Time) bool {
	return (b.objectUID == objectUID || b.objectUID == "") && now.Before(b.until)
}

func (b *backoff) reset() {
	if b.timer != nil {
		b.timer.Stop()
	}
	*b = backoff{}
}

// backOff schedules another sync of the attempt's pod after an error. It waits at least as long as the API server asked for.
func (m *Manager) backOff(attempt syncAttempt, class apierror.Class, err error) {
	m.metrics.retries.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, found := m.entries[attempt.entry.uid]
	if !found {
		return
	}
	b := &entry.backoff
	if b.objectUID != attempt.target.uid || (b.class == apierror.Rejected) != (class == apierror.Rejected) {
		b.reset() // earlier failures were of another kind
	}
	isFirst := b.failures == 0
	b.objectUID, b.class, b.err = attempt.target.uid, class, err
	m.startBackoffLocked(entry, withJitter(max(apierror.RetryAfter(err), backoffDelay(class, b.failures))))
	b.failures++
	m.progress.Set()
	if isFirst {
		m.config.OnSync(entry.uid)
	}
}

func (m *Manager) startBackoffLocked(entry *cacheEntry, delay time.Duration) {
	if entry.backoff.timer != nil {
		entry.backoff.timer.Stop()
	}
	uid := entry.uid
	entry.backoff.until = time.Now().Add(delay)
	entry.backoff.timer = time.AfterFunc(delay, func() { m.requeue(uid) })
}

// shortenRejectedLocked shortens the backoff after a rejection: the API server may accept the changed status.
func (m *Manager) shortenRejectedLocked(entry *cacheEntry, now time.Time) {
	if entry.backoff.class == apierror.Rejected && entry.backoff.until.Sub(now) > minRejectedDelay {
		m.startBackoffLocked(entry, minRejectedDelay)
	}
}

// endBackoffs schedules a sync of the pods whose backoff matches. match is called with the lock held.
func (m *Manager) endBackoffs(match func(*backoff) bool) {
	var uids []podid.UID
	m.mu.Lock()
	for uid, entry := range m.entries {
		if entry.backoff.timer != nil && match(&entry.backoff) {
			entry.backoff.timer.Stop()
			entry.backoff.until = time.Time{}
			uids = append(uids, uid)
		}
	}
	m.mu.Unlock()
	for _, uid := range uids {
		m.requeue(uid)
	}
}

func backoffDelay(class apierror.Class, failures int) time.Duration {
	if class == apierror.Rejected {
		return min(maxRejectedDelay, minRejectedDelay<<min(failures, 10))
	}
	return min(maxRetryDelay, minRetryDelay<<min(failures, 10))
}

func withJitter(delay time.Duration) time.Duration {
	return delay + time.Duration(rand.Int64N(int64(delay)/4+1))
}
