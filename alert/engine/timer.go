package engine

import (
	"cmp"
	"container/heap"
	"strings"
	"time"
)

// timer is an instant at which a cell or a silence must be looked at. It is in the heap if index is not negative.
type timer struct {
	at    time.Time
	index int
	// One of these is set.
	cell    *cell
	silence *silence
}

// before orders timers. At the same instant silences come first, and then cells in the order of their names, so that the order in which
// objects became known changes nothing.
func (t *timer) before(other *timer) bool {
	if order := t.at.Compare(other.at); order != 0 {
		return order < 0
	}
	if t.silence != nil || other.silence != nil {
		return t.silence != nil && (other.silence == nil || t.silence.ID < other.silence.ID)
	}
	return cmp.Or(t.cell.name.Compare(other.cell.name), strings.Compare(t.cell.rule.id.id, other.cell.rule.id.id)) < 0
}

// schedule sets the instant of a timer. Zero means never.
func (e *Engine) schedule(t *timer, at time.Time) {
	switch {
	case at.IsZero() && t.index >= 0:
		heap.Remove(&e.timers, t.index)
	case at.IsZero():
	case t.index >= 0:
		if !t.at.Equal(at) {
			t.at = at
			heap.Fix(&e.timers, t.index)
		}
	default:
		t.at = at
		heap.Push(&e.timers, t)
	}
}

// timerHeap implements heap.Interface.
type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
