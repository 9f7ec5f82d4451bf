package versus

import (
	"time"
)

// Event is something that happened, and what each side told about it.
type Event struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Began is when it happened, Ended when it was over. Alerts can be resolved after Ended plus Window at the earliest.
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	For    Seconds   `json:"for"`
	Window Seconds   `json:"window,omitempty"`
	// Gap is how long a container did not run.
	Gap *Seconds `json:"gap,omitempty"`
	// Continues says that the event was not over when the next one began: nothing was resolved.
	Continues bool `json:"continues,omitempty"`
	// FalseAlarm says that nothing happened to this object: an alert would be wrong.
	FalseAlarm bool `json:"falseAlarm,omitempty"`
	// Outcomes are what was told, by Usual, Fast and Herald.
	Outcomes map[string]*Outcome `json:"outcomes"`

	subject
}

// subject says which messages are about an event.
type subject struct {
	prometheus alertID
	herald     alertID
	prefix     string    // of the sides of Prometheus
	until      time.Time // what arrives later is about something else; zero: everything counts
	carried    bool      // the alert fires already when the event begins
}

// Outcome is what one side told about an event.
type Outcome struct {
	// Noticed is how long after Began a receiver was told first, Resolved how long after Ended it was told that it is over. nil: never.
	Noticed  *Seconds `json:"noticed,omitempty"`
	Resolved *Seconds `json:"resolved,omitempty"`
	// Expires is when Alertmanager ends an alert that is not resolved: how long after Ended the end that was told with it is over.
	Expires *Seconds `json:"expires,omitempty"`
	// Wrong counts how often the alert was resolved before it was over.
	Wrong int `json:"wrong,omitempty"`
	// Starts counts the different times at which the alert has started according to what was told.
	Starts int `json:"starts,omitempty"`
}

// Seconds is a duration.
type Seconds float64

func seconds(d time.Duration) *Seconds {
	s := Seconds(d.Round(10 * time.Millisecond).Seconds())
	return &s
}

// sideName returns the name under which the receiver knows a side.
func (e *Event) sideName(side string) string {
	if side == Herald {
		return side
	}
	return e.prefix + side
}

// messages returns what a side told about the event.
func (e *Event) messages(r *receiver, side string) (messages []Message) {
	id := e.prometheus
	if side == Herald {
		id = e.herald
	}
	for _, m := range r.about(e.sideName(side), id) {
		if m.At.Before(e.Began) && e.carried {
			messages = []Message{m}
		}
		if !m.At.Before(e.Began) && (e.until.IsZero() || m.At.Before(e.until)) {
			messages = append(messages, m)
		}
	}
	return messages
}

// told reports whether the last message of a side since a time says that the alert fires or is resolved.
func (e *Event) told(r *receiver, side string, firing bool, since time.Time) bool {
	messages := e.messages(r, side)
	if !firing && len(messages) == 0 {
		return true // nothing to resolve
	}
	last := len(messages) - 1
	return last >= 0 && messages[last].Firing == firing && !messages[last].At.Before(since)
}

// judge computes the outcomes.
func (e *Event) judge(r *receiver) {
	e.Outcomes = map[string]*Outcome{}
	for _, side := range []string{Usual, Fast, Herald} {
		e.Outcomes[side] = e.outcome(e.messages(r, side))
	}
}

func (e *Event) outcome(messages []Message) *Outcome {
	o := &Outcome{}
	starts := map[time.Time]bool{}
	firing := false
	for _, m := range messages {
		switch {
		case m.Firing:
			starts[m.StartsAt.Round(0).UTC()] = true
			if o.Noticed == nil && !e.carried {
				o.Noticed = seconds(m.At.Sub(e.Began))
			}
			o.Resolved = nil
		case firing && m.At.Before(e.Ended):
			o.Wrong++
		case firing:
			o.Resolved = seconds(m.At.Sub(e.Ended))
		}
		firing = m.Firing
	}
	if last := len(messages) - 1; firing && e.until.IsZero() && messages[last].EndsAt.After(e.Ended) {
		o.Expires = seconds(messages[last].EndsAt.Sub(e.Ended))
	}
	o.Starts = len(starts)
	return o
}
