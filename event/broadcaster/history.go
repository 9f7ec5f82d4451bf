package broadcaster

import (
	"container/list"

	v1 "k8s.io/api/core/v1"
)

// history keeps the newest events. One that happens again is counted instead of kept twice, so that a crash loop does
// not push everything else out. The zero value with a limit is empty.
type history struct {
	limit int
	order list.List // of *v1.Event, the one that happened last at the back
	by    map[happening]*list.Element
}

// happening tells events apart.
type happening struct {
	about                 v1.ObjectReference
	kind, reason, message string
}

func (h *history) add(event *v1.Event) {
	what := happening{about: event.InvolvedObject, kind: event.Type, reason: event.Reason, message: event.Message}
	what.about.ResourceVersion = ""
	if seen, again := h.by[what]; again {
		kept := seen.Value.(*v1.Event)
		kept.Count++
		kept.LastTimestamp = event.LastTimestamp
		h.order.MoveToBack(seen)
		return
	}
	if h.by == nil {
		h.by = map[happening]*list.Element{}
	}
	h.by[what] = h.order.PushBack(event.DeepCopy())
	if h.order.Len() > h.limit {
		h.forgetOldest()
	}
}

func (h *history) forgetOldest() {
	oldest := h.order.Remove(h.order.Front()).(*v1.Event)
	about := oldest.InvolvedObject
	about.ResourceVersion = ""
	delete(h.by, happening{about: about, kind: oldest.Type, reason: oldest.Reason, message: oldest.Message})
}

func (h *history) list() []v1.Event {
	events := make([]v1.Event, 0, h.order.Len())
	for at := h.order.Front(); at != nil; at = at.Next() {
		events = append(events, *at.Value.(*v1.Event).DeepCopy())
	}
	return events
}
