package status

import (
	"container/heap"
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// priority is how soon the cluster must know a change. Lower values come first (BUG-3).
type priority int

const (
	priorityTerminal  priority = iota // a terminal phase or a final delete: others wait for what the pod held
	priorityReadiness                 // the pod starts or stops to receive traffic
	priorityPhase                     // any other change of the phase
	priorityNormal                    // everything else
	priorities        = iota
)

// String returns the priority as metrics name it.
func (p priority) String() string {
	return [priorities]string{"terminal", "readiness", "phase", "normal"}[p]
}

// changePriority returns the priority of a change from the cached status to the new one.
func changePriority(cached, status *v1.PodStatus, finished bool) priority {
	switch {
	case finished || derive.IsTerminal(status.Phase):
		return priorityTerminal
	case readyCondition(cached) != readyCondition(status):
		return priorityReadiness
	case cached.Phase != status.Phase:
		return priorityPhase
	default:
		return priorityNormal
	}
}

func readyCondition(status *v1.PodStatus) v1.ConditionStatus {
	if ready := conditionOf(status.Conditions, v1.PodReady); ready != nil {
		return ready.Status
	}
	return v1.ConditionFalse
}

// mayWait reports whether a change may wait for the next one: nobody sends traffic or waits for resources because of it.
func (p priority) mayWait() bool { return p > priorityReadiness }

// enqueue schedules a sync of the pod.
func (m *Manager) enqueue(uid podid.UID, priority priority) {
	if m.config.API != nil {
		m.queue.add(uid, priority)
	}
}

// requeue schedules a sync of the pod with the priority of what it has to send.
func (m *Manager) requeue(uid podid.UID) {
	m.mu.RLock()
	entry, found := m.entries[uid]
	priority := priorityNormal
	if found {
		priority = entry.syncPriority()
	}
	m.mu.RUnlock()
	if found {
		m.enqueue(uid, priority)
	}
}

// queue holds the pods that wait for a sync, by priority, then by time of arrival. A pod waits at most once, and is never
// synced twice at a time: one that is added while it is being synced waits until that sync is done. The priority of a
// waiting pod only rises.
//
// Two limits keep the priorities from hurting each other. Every agingInterval-th sync goes to the pod that has waited
// longest, so that nothing starves. And the number of concurrent syncs of normal priority is bounded: more of them would
// finish sooner, but would load the API server so much that urgent requests are answered late. client-go's workqueue cannot
// hold back what it has (ADR 9).
type queue struct {
	mu           sync.Mutex // guards all below; nothing is called while it is held
	changed      *sync.Cond // on mu: get may have something to return
	waiting      [priorities]waitingHeap
	waitingByUID map[podid.UID]*waitingPod
	syncing      map[podid.UID]priority // pods between get and done
	again        map[podid.UID]priority // pods added while syncing
	held         map[podid.UID]*heldPod // pods with a change that waits for another one
	flushing     bool                   // no pod is held any more
	syncs        int                    // calls of get so far
	normalSyncs  int                    // pods of normal priority in syncing
	maxNormal    int
	closed       bool
}

// Every agingInterval-th sync goes to a pod that has waited longer than agingThreshold. Normal priority so keeps an eighth of
// the workers, and higher ones hardly notice.
const (
	agingInterval  = 8
	agingThreshold = time.Second
)

type waitingPod struct {
	uid      podid.UID
	priority priority
	since    time.Time
	index    int // in its heap
}

// heldPod is a pod that timer adds to those that wait for a sync.
type heldPod struct {
	priority  priority
	releaseAt time.Time
	timer     *time.Timer
}

// newQueue returns a queue for that many workers. At most a quarter of them sync pods of normal priority.
func newQueue(workers int) *queue {
	q := &queue{
		waitingByUID: map[podid.UID]*waitingPod{},
		syncing:      map[podid.UID]priority{},
		again:        map[podid.UID]priority{},
		held:         map[podid.UID]*heldPod{},
		maxNormal:    max(1, workers/4),
	}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// add schedules a sync of the pod, unless the queue is closed. A pod that is held stays so if the sync may wait.
func (q *queue) add(uid podid.UID, priority priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if held, isHeld := q.held[uid]; isHeld {
		held.priority = min(held.priority, priority)
		if priority.mayWait() {
			return
		}
		held.timer.Stop()
		delete(q.held, uid)
	}
	q.addNowLocked(uid, priority)
}

// addLater is add, except that the sync is held for the delay. A later call may shorten that, but not prolong it.
func (q *queue) addLater(uid podid.UID, priority priority, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushing || q.waitingByUID[uid] != nil {
		q.addNowLocked(uid, priority)
		return
	}
	releaseAt := time.Now().Add(delay)
	if held, isHeld := q.held[uid]; !isHeld {
		q.held[uid] = &heldPod{priority: priority, releaseAt: releaseAt, timer: time.AfterFunc(delay, func() { q.release(uid) })}
	} else if held.priority = min(held.priority, priority); releaseAt.Before(held.releaseAt) {
		held.releaseAt = releaseAt
		held.timer.Reset(delay)
	}
}

// postpone removes a pod that waits for a sync, if it may wait for longer: the caller adds it again.
func (q *queue) postpone(uid podid.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pod, isWaiting := q.waitingByUID[uid]; isWaiting && pod.priority.mayWait() {
		heap.Remove(&q.waiting[pod.priority], pod.index)
		delete(q.waitingByUID, uid)
	}
}

// release schedules the sync of a pod that is held.
func (q *queue) release(uid podid.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if held, isHeld := q.held[uid]; isHeld {
		held.timer.Stop()
		delete(q.held, uid)
		q.addNowLocked(uid, held.priority)
	}
}

// releaseAll schedules the syncs of all pods that are held. None is held from now on.
func (q *queue) releaseAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flushing = true
	for uid, held := range q.held {
		held.timer.Stop()
		q.addNowLocked(uid, held.priority)
	}
	clear(q.held)
}

func (q *queue) addNowLocked(uid podid.UID, priority priority) {
	if q.closed {
		return
	}
	if _, isSyncing := q.syncing[uid]; isSyncing {
		if current, found := q.again[uid]; !found || priority < current {
			q.again[uid] = priority
		}
		return
	}
	q.addLocked(uid, priority)
}

func (q *queue) addLocked(uid podid.UID, priority priority) {
	pod, isWaiting := q.waitingByUID[uid]
	if isWaiting && priority >= pod.priority {
		return
	}
	if isWaiting {
		heap.Remove(&q.waiting[pod.priority], pod.index)
		pod.priority = priority
	} else {
		pod = &waitingPod{uid: uid, priority: priority, since: time.Now()}
		q.waitingByUID[uid] = pod
	}
	heap.Push(&q.waiting[priority], pod)
	q.changed.Signal()
}

// get waits for the next pod. It returns false once the queue is closed and empty. The caller must call done afterwards.
func (q *queue) get() (podid.UID, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if next := q.nextLocked(); next != nil {
			return q.popLocked(next), true
		}
		if q.closed && len(q.waitingByUID)+len(q.again) == 0 {
			return "", false
		}
		q.changed.Wait()
	}
}

// nextLocked returns the heap of the next pod, or nil.
func (q *queue) nextLocked() *waitingHeap {
	var first, oldest *waitingHeap
	for p := range q.waiting {
		pods := &q.waiting[p]
		if len(*pods) == 0 || (priority(p) == priorityNormal && q.normalSyncs >= q.maxNormal) {
			continue
		}
		if first == nil {
			first, oldest = pods, pods
		}
		if pods.since().Before(oldest.since()) {
			oldest = pods
		}
	}
	if first != nil && (q.syncs+1)%agingInterval == 0 && time.Since(oldest.since()) > agingThreshold {
		return oldest
	}
	return first
}

func (q *queue) popLocked(pods *waitingHeap) podid.UID {
	pod := heap.Pop(pods).(*waitingPod)
	delete(q.waitingByUID, pod.uid)
	q.syncing[pod.uid] = pod.priority
	q.syncs++
	if pod.priority == priorityNormal {
		q.normalSyncs++
	}
	return pod.uid
}

// done ends the pod's sync.
func (q *queue) done(uid podid.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.syncing[uid] == priorityNormal {
		q.normalSyncs--
	}
	delete(q.syncing, uid)
	if priority, found := q.again[uid]; found {
		delete(q.again, uid)
		q.addLocked(uid, priority)
	}
	if q.closed {
		q.changed.Broadcast()
	} else {
		q.changed.Signal() // another pod of normal priority may be next
	}
}

// close lets get return false once no pod waits.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// depths returns the number of waiting pods by priority.
func (q *queue) depths() [priorities]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	var depths [priorities]int
	for p := range q.waiting {
		depths[p] = len(q.waiting[p])
	}
	return depths
}

// waitingHeap implements heap.Interface. Its first element is the pod that has waited longest.
type waitingHeap []*waitingPod

// since returns when the oldest pod was enqueued.
func (h waitingHeap) since() time.Time { return h[0].since }

func (h waitingHeap) Len() int           { return len(h) }
func (h waitingHeap) Less(i, j int) bool { return h[i].since.Before(h[j].since) }
func (h waitingHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waitingHeap) Push(x any) {
	pod := x.(*waitingPod)
	pod.index = len(*h)
	*h = append(*h, pod)
}

func (h *waitingHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// decreaseInterval is the least time between two decreases of the limit: requests that were in flight together are
// throttled together.
const decreaseInterval = time.Second

// limiter bounds the concurrent requests. The limit is halved when the API server throttles, and grows by one for as many
// successes as it allows requests, so that the node as a whole backs off, not only each pod (F4).
type limiter struct {
	max int

	mu          sync.Mutex // guards all below
	limit       int
	inFlight    int
	successes   int // since the limit last changed
	decreasedAt time.Time
	freed       chan struct{} // closed and replaced when a slot may be free
}

func newLimiter(limit int) *limiter {
	return &limiter{max: limit, limit: limit, freed: make(chan struct{})}
}

// acquire waits for a slot. It returns false if ctx is done first; otherwise the caller must call release.
func (l *limiter) acquire(ctx context.Context) bool {
	for {
		l.mu.Lock()
		if l.inFlight < l.limit {
			l.inFlight++
			l.mu.Unlock()
			return true
		}
		freed := l.freed
		l.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.wakeLocked()
}

// decrease halves the limit.
func (l *limiter) decrease() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.decreasedAt) < decreaseInterval {
		return
	}
	l.decreasedAt = now
	l.limit = max(1, l.limit/2)
	l.successes = 0
}

// countSuccess raises the limit after enough successes.
func (l *limiter) countSuccess() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == l.max {
		return
	}
	if l.successes++; l.successes >= l.limit {
		l.limit, l.successes = l.limit+1, 0
		l.wakeLocked()
	}
}

func (l *limiter) wakeLocked() {
	close(l.freed)
	l.freed = make(chan struct{})
}
