package status

import (
	"container/heap"
	"sync"
	"time"

	"github.com/heraldnode/herald/podid"
)

// lanes orders the pods that wait to be sent: earliest deadline first. It is the order of client-go's workqueue, which
// calls Touch, Push, Len and Pop under its own lock and guarantees that a pod waits once and is never in flight twice.
//
// A pod's urgency is set before it is added and only rises while it waits.
type lanes struct {
	mu      sync.Mutex // guards all below; taken inside the workqueue's lock, so nothing is called while it is held
	waiting waitingHeap
	place   map[podid.UID]*waitingPod
	wanted  map[podid.UID]urgency
}

type waitingPod struct {
	uid      podid.UID
	urgency  urgency
	since    time.Time
	deadline time.Time
	index    int
}

func newLanes() *lanes {
	return &lanes{place: map[podid.UID]*waitingPod{}, wanted: map[podid.UID]urgency{}}
}

// want notes how urgent the pod's next turn is. The most urgent wish since its last turn counts.
func (l *lanes) want(uid podid.UID, u urgency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now, wanted := l.wanted[uid]; !wanted || u < now {
		l.wanted[uid] = u
	}
}

// Push adds a pod that does not wait yet.
func (l *lanes) Push(uid podid.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, wanted := l.wanted[uid]
	if !wanted {
		u = ordinary
	}
	now := time.Now()
	pod := &waitingPod{uid: uid, urgency: u, since: now, deadline: now.Add(slack[u])}
	l.place[uid] = pod
	heap.Push(&l.waiting, pod)
}

// Touch moves a pod that waits already, if its next turn has become more urgent.
func (l *lanes) Touch(uid podid.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pod, waits := l.place[uid]
	u, wanted := l.wanted[uid]
	if !waits || !wanted || u >= pod.urgency {
		return
	}
	pod.urgency = u
	pod.deadline = pod.since.Add(slack[u])
	heap.Fix(&l.waiting, pod.index)
}

// Pop takes the pod with the earliest deadline.
func (l *lanes) Pop() podid.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	pod := heap.Pop(&l.waiting).(*waitingPod)
	delete(l.place, pod.uid)
	delete(l.wanted, pod.uid)
	return pod.uid
}

// Len counts the pods that wait.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// depths counts the pods that wait in each class.
func (l *lanes) depths() [urgencies]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var depths [urgencies]int
	for _, pod := range l.waiting {
		depths[pod.urgency]++
	}
	return depths
}

type waitingHeap []*waitingPod

func (h waitingHeap) Len() int           { return len(h) }
func (h waitingHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
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
