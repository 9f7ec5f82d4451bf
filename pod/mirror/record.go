package mirror

import (
	"hash/fnv"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/heraldnode/herald/podid"
)

// record is what is known about one name beyond the watch. The responses to own writes are newer than the watch; acting on
// the watch alone would repeat writes that it has not shown yet (BUG-30).
//
//	           create succeeded             the watch shows its UID
//	settled ---------------------> created ---------------------------> settled
//	   |                           ^     |
//	   | delete        create      |     | ConfirmAfter elapsed: the result of a GET counts
//	   | succeeded     succeeded   |     +------------------------------> created, deleted or settled
//	   +---------> deleted --------+
//	                |   the watch shows another state
//	                +---------------------------------> settled
//
// The worker that processes the name owns the record. Most names only ever have the zero record, which is not stored.
type record struct {
	created    *v1.Pod   // exists in the API server, but the watch has not shown it
	deletedUID types.UID // deleted in the API server, but the watch may still show it

	checkAt time.Time // when to read the pod, if the watch has not confirmed the write by then
	checks  int       // reads since the last confirmation

	retryAt      time.Time // no retry before, unless the inputs change
	failedInputs inputs
}

// inputs identify what an attempt is based on. When they differ from those of a failed attempt, a retry is due at once.
type inputs struct {
	static, mirror, sameName types.UID
	hash                     string
	isTerminating            bool
}

func newInputs(static, watched, sameName *v1.Pod) (in inputs) {
	if static != nil {
		in.static, in.hash = static.UID, podid.HashOf(static)
	}
	if watched != nil {
		in.mirror, in.isTerminating = watched.UID, watched.DeletionTimestamp != nil
	}
	if sameName != nil {
		in.sameName = sameName.UID
	}
	return in
}

// maxCheckDoublings limits the growth of the interval between two reads.
const maxCheckDoublings = 5

// resolve returns the newest known mirror pod, given the one that the watch shows. It clears a confirmed write.
func (r *record) resolve(watched *v1.Pod) *v1.Pod {
	switch {
	case r.created != nil && (watched == nil || watched.UID != r.created.UID):
		return r.created
	case r.created == nil && r.deletedUID != "" && watched != nil && watched.UID == r.deletedUID:
		return nil
	default:
		r.created, r.deletedUID, r.checkAt, r.checks = nil, "", time.Time{}, 0
		return watched
	}
}

// setCreated records that the pod exists in the API server.
func (r *record) setCreated(pod *v1.Pod, confirmAfter time.Duration) {
	r.created = pod
	r.scheduleCheck(confirmAfter)
}

// setDeleted records that the pod with this UID does not exist any more.
func (r *record) setDeleted(uid types.UID, confirmAfter time.Duration) {
	r.created, r.deletedUID = nil, uid
	r.scheduleCheck(confirmAfter)
}

// setAbsent records that no mirror pod of this node has the name.
func (r *record) setAbsent(confirmAfter time.Duration) {
	r.created = nil
	r.scheduleCheck(confirmAfter)
}

func (r *record) scheduleCheck(confirmAfter time.Duration) {
	r.checkAt = time.Now().Add(confirmAfter << r.checks)
}

func (r *record) countCheck() { r.checks = min(r.checks+1, maxCheckDoublings) }

func (r *record) isOverdue(now time.Time) bool { return !r.checkAt.IsZero() && !now.Before(r.checkAt) }

func (r *record) clearFailure() { r.retryAt, r.failedInputs = time.Time{}, inputs{} }

// backoff computes retry delays per name. Conflicts are retried at a low rate, because an operator must act first, but
// forever, so that they resolve without a restart. It is safe for concurrent use.
type backoff struct {
	transient, conflict workqueue.TypedRateLimiter[podid.FullName]
}

func newBackoff() backoff {
	return backoff{
		transient: workqueue.NewTypedItemExponentialFailureRateLimiter[podid.FullName](250*time.Millisecond, 30*time.Second),
		conflict:  workqueue.NewTypedItemExponentialFailureRateLimiter[podid.FullName](5*time.Second, 2*time.Minute),
	}
}

// next counts a failure of the name and returns the delay before the next attempt.
func (b backoff) next(name podid.FullName, err error) time.Duration {
	limiter := b.transient
	if isConflict(err) {
		limiter = b.conflict
	}
	attempt := limiter.NumRequeues(name)
	return addJitter(limiter.When(name), name.String(), attempt)
}

// reset clears the failures of the name.
func (b backoff) reset(name podid.FullName) {
	b.transient.Forget(name)
	b.conflict.Forget(name)
}

// addJitter adds up to a quarter of the delay. The jitter is a hash of key and attempt: pod names differ between pods and,
// because static pods carry the node name, between nodes, so retries spread out; and a run is reproducible.
func addJitter(delay time.Duration, key string, attempt int) time.Duration {
	hash := fnv.New32a()
	hash.Write([]byte(key + "/" + strconv.Itoa(attempt)))
	return delay + delay/4*time.Duration(hash.Sum32()%1024)/1024
}
