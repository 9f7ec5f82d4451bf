package probe

import (
	"container/heap"
	"time"
)

// schedule has the probe that is due first at its top. It implements heap.Interface.
type schedule []*probe

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	added := x.(*probe)
	added.place = len(*s)
	*s = append(*s, added)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	taken := (*s)[last]
	(*s)[last], *s = nil, (*s)[:last]
	taken.place = -1
	return taken
}

// set has the probe looked at then.
func (s *schedule) set(p *probe, due time.Time) {
	p.due = due
	if p.place < 0 {
		heap.Push(s, p)
	} else {
		heap.Fix(s, p.place)
	}
}

func (s *schedule) remove(p *probe) {
	if p.place >= 0 {
		heap.Remove(s, p.place)
	}
}

// take removes and returns the first probe if it is due, else nil and when it will be; zero: there is none.
func (s *schedule) take(now time.Time) (*probe, time.Time) {
	switch {
	case len(*s) == 0:
		return nil, time.Time{}
	case (*s)[0].due.After(now):
		return nil, (*s)[0].due
	default:
		return heap.Pop(s).(*probe), time.Time{}
	}
}
