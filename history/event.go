package history

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/transition"
)

// Event is the content of an event record: a Kubernetes event that the agent emitted.
type Event struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
	// Message is cut at transition.MaxMessage bytes. If Count is more than 1, it is the last one.
	Message string `json:"message,omitempty"`
	// Count is how often the event occurred since the record before, or once.
	Count int `json:"count"`
	// Container is the container of the pod that the event is about, if it is about one.
	Container string `json:"container,omitempty"`
	// Object is the kind and the name of an object that is not a pod, for example Node/n1.
	Object string `json:"object,omitempty"`
}

// Identical events share a record: the first one is recorded at once, and its repeats together after eventPeriod. An object with
// many different events has one record per eventRefill after a burst; the rest is counted by type and reason.
const (
	eventPeriod = time.Minute
	eventBurst  = 60
	eventRefill = 10 * time.Second
	// maxEvents bounds the events that wait for the writer.
	maxEvents = 1024
)

// occurrence is an event that is not written yet.
type occurrence struct {
	ref   PodRef
	event Event
	at    time.Time
}

// EventOccurred records an occurrence of an event. It does not block.
func (l *Log) EventOccurred(event *v1.Event) {
	o := occurrence{at: time.Now(), event: Event{
		Type: event.Type, Reason: event.Reason, Message: transition.Truncate(event.Message, transition.MaxMessage), Count: 1,
	}}
	object := &event.InvolvedObject
	if object.Kind == "Pod" {
		o.ref = PodRef{Namespace: object.Namespace, Name: object.Name, UID: string(object.UID)}
		o.event.Container = containerOf(object.FieldPath)
	} else {
		o.event.Object = object.Kind + "/" + object.Name
	}
	if !l.journal.addEvent(o) {
		l.metrics.dropped.Inc()
	}
}

// containerOf returns the container of a field path like spec.containers{web}.
func containerOf(fieldPath string) string {
	_, name, found := strings.Cut(fieldPath, "{")
	if !found {
		return ""
	}
	return strings.TrimSuffix(name, "}")
}

// eventObject identifies what events are about.
type eventObject struct {
	PodRef
	object string
}

// eventKey identifies occurrences of the same event. message is empty if the object has too many different ones.
type eventKey struct{ eventType, reason, message, container string }

// objectEvents are the recent events of an object.
type objectEvents struct {
	bucket tokenBucket
	folds  map[eventKey]*eventFold
}

// eventFold counts the repeats of an event.
type eventFold struct {
	due     time.Time // when the repeats are recorded, or the event is forgotten
	repeats occurrence
}

// addEvent records an event, or counts it if it was recorded a short time ago.
func (w *writer) addEvent(o *occurrence) {
	object := eventObject{o.ref, o.event.Object}
	state, found := w.events[object]
	if !found {
		state = &objectEvents{folds: map[eventKey]*eventFold{}}
		state.bucket = tokenBucket{tokens: eventBurst, refilled: o.at}
		w.events[object] = state
	}
	key := eventKey{o.event.Type, o.event.Reason, o.event.Message, o.event.Container}
	fold, found := state.folds[key]
	if !found && !state.bucket.takeAt(o.at, 1/eventRefill.Seconds(), eventBurst) {
		key.message = ""
		if fold, found = state.folds[key]; !found {
			fold = &eventFold{due: o.at.Add(eventPeriod)}
			state.folds[key] = fold
			w.scheduleEvents(fold.due)
		}
		found = true
	}
	if found {
		count := fold.repeats.event.Count + o.event.Count
		fold.repeats = *o
		fold.repeats.event.Count = count
		return
	}
	fold = &eventFold{due: o.at.Add(eventPeriod)}
	state.folds[key] = fold
	w.scheduleEvents(fold.due)
	w.writeEvent(o)
}

func (w *writer) writeEvent(o *occurrence) {
	w.add(o.at, &Record{Kind: KindEvent, PodRef: o.ref, Event: &o.event})
}

// flushEvents records the repeats whose period has ended, and forgets events without repeats. With all set, it records all.
func (w *writer) flushEvents(now time.Time, all bool) {
	if !all && (w.eventsDue.IsZero() || now.Before(w.eventsDue)) {
		return
	}
	w.eventsDue = time.Time{}
	for object, state := range w.events {
		for key, fold := range state.folds {
			switch isDue := all || !now.Before(fold.due); {
			case isDue && fold.repeats.event.Count == 0:
				delete(state.folds, key)
				continue
			case isDue:
				w.writeEvent(&fold.repeats)
				*fold = eventFold{due: now.Add(eventPeriod)}
			}
			w.scheduleEvents(fold.due)
		}
		if len(state.folds) == 0 {
			delete(w.events, object)
		}
	}
}

func (w *writer) scheduleEvents(due time.Time) {
	if w.eventsDue.IsZero() || due.Before(w.eventsDue) {
		w.eventsDue = due
	}
}
