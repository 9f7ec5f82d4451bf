package status

import (
	"container/heap"
	"sync"
	"time"

	"github.com/heraldnode/herald/podid"
)

// queue holds the pods that wait for a turn at the senders: the most urgent class first, and in a class the one that waited
// longest. A pod waits once, and never has two turns at a time: one that is added during its turn waits for it to end. Its
// urgency only rises while it waits.
//
// Two things keep the classes from hurting each other. One turn of every few goes to whoever waited longest of all, so that
// nothing starves. And only so many ordinary pods have their turn at once: more would be done sooner, but the server would be
// so busy with them that what is urgent is answered late. client-go's workqueue cannot hold back what it has (ADR 9).
type queue struct {
	mu      sync.Mutex // guards all below; nothing is called while it is held
	more    *sync.Cond // on mu: there may be a turn to take
	waiting [urgencies]waitingHeap
	place   map[podid.UID]*waitingPod
	turns   map[podid.UID]urgency // the pods that have their turn, and in which class
	again   map[podid.UID]urgency // those of them that are to wait for another
	taken   int                   // turns so far
	aside   int                   // ordinary pods that have their turn
	room    int                   // how many of them may
	ended   bool
}

// fairTurn is how many turns it takes for one to go by age alone, to a pod that waited longer than patience: often enough
// that the least urgent keeps an eighth of the senders, seldom enough that the most urgent hardly notices.
const (
	fairTurn = 8
	patience = time.Second
)

type waitingPod struct {
	uid     podid.UID
	urgency urgency
	since   time.Time
	index   int
}

// newQueue makes a queue for so many senders. A quarter of them may be busy with ordinary pods.
func newQueue(senders int) *queue {
	q := &queue{
		place: map[podid.UID]*waitingPod{}, turns: map[podid.UID]urgency{}, again: map[podid.UID]urgency{},
		room: max(1, senders/4),
	}
	q.more = sync.NewCond(&q.mu)
	return q
}

// add gives the pod a turn, unless the queue was ended.
func (q *queue) add(uid podid.UID, u urgency) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	if _, hasTurn := q.turns[uid]; hasTurn {
		if wanted, is := q.again[uid]; !is || u < wanted {
			q.again[uid] = u
		}
		return
	}
	q.waitLocked(uid, u)
}

func (q *queue) waitLocked(uid podid.UID, u urgency) {
	pod, waits := q.place[uid]
	if waits && u >= pod.urgency {
		return
	}
	if waits {
		heap.Remove(&q.waiting[pod.urgency], pod.index)
		pod.urgency = u
	} else {
		pod = &waitingPod{uid: uid, urgency: u, since: time.Now()}
		q.place[uid] = pod
	}
	heap.Push(&q.waiting[u], pod)
	q.more.Signal()
}

// take waits for the next turn. It returns false when the queue was ended and is empty. The pod's turn lasts until done.
func (q *queue) take() (podid.UID, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if lane := q.nextLocked(); lane != nil {
			return q.takeLocked(lane), true
		}
		if q.ended && len(q.place)+len(q.again) == 0 {
			return "", false
		}
		q.more.Wait()
	}
}

func (q *queue) takeLocked(lane *waitingHeap) podid.UID {
	pod := heap.Pop(lane).(*waitingPod)
	delete(q.place, pod.uid)
	q.turns[pod.uid] = pod.urgency
	q.taken++
	if pod.urgency == ordinary {
		q.aside++
	}
	return pod.uid
}

// nextLocked is where the next pod waits, or nil.
func (q *queue) nextLocked() *waitingHeap {
	var next, oldest *waitingHeap
	for u := range q.waiting {
		lane := &q.waiting[u]
		if len(*lane) == 0 || (urgency(u) == ordinary && q.aside >= q.room) {
			continue
		}
		if next == nil {
			next, oldest = lane, lane
		}
		if lane.since().Before(oldest.since()) {
			oldest = lane
		}
	}
	if next != nil && (q.taken+1)%fairTurn == 0 && time.Since(oldest.since()) > patience {
		return oldest
	}
	return next
}

// done ends the pod's turn.
func (q *queue) done(uid podid.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turns[uid] == ordinary {
		q.aside--
	}
	delete(q.turns, uid)
	if u, again := q.again[uid]; again {
		delete(q.again, uid)
		q.waitLocked(uid, u)
	}
	if q.ended {
		q.more.Broadcast()
	} else {
		q.more.Signal() // there is room for another ordinary one
	}
}

// end lets the senders go once nothing waits.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Broadcast()
}

// depths counts the pods that wait in each class.
func (q *queue) depths() [urgencies]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	var depths [urgencies]int
	for u := range q.waiting {
		depths[u] = len(q.waiting[u])
	}
	return depths
}

type waitingHeap []*waitingPod

// since is how long its first pod waits.
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
