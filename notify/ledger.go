package notify

import (
	"time"

	"github.com/heraldnode/herald/alert"
)

// status is what a sink is told about an alert.
type status string

const (
	nothing  status = ""
	firing   status = "firing"
	resolved status = "resolved"
)

const (
	// resolveDelay is the least time between the acknowledgement of firing and resolved: receivers with a clock of seconds can order them.
	resolveDelay = time.Second
	// resolveTTL is how long a sink is tried to be told that an alert is resolved.
	resolveTTL = 24 * time.Hour
	// forgetAfter is how long a resolved alert is remembered that all sinks know about. It must be longer than the engine keeps resolved
	// alerts: otherwise they would seem to be new after a restart.
	forgetAfter = 30 * time.Minute
)

// episode identifies one firing of an alert.
type episode struct {
	Number   uint64    `json:"episode"`
	Flaps    int       `json:"flaps,omitempty"`
	StartsAt time.Time `json:"startsAt"`
}

func episodeOf(a *alert.Alert) episode {
	return episode{Number: a.Episode, Flaps: a.Flaps, StartsAt: a.StartsAt.Round(0)}
}

func (e episode) is(other episode) bool {
	return e.Number == other.Number && e.Flaps == other.Flaps && e.StartsAt.Equal(other.StartsAt)
}

// acknowledgement is what a sink has acknowledged last about an alert.
type acknowledgement struct {
	Status  status    `json:"status,omitempty"`
	Episode episode   `json:"of,omitzero"`
	At      time.Time `json:"at,omitzero"`
	// Missed counts the episodes before the present one that began and ended unheard.
	Missed int `json:"missed,omitempty"`
	// IsDoubtful says that the sink may have been told since that the alert fires: a request was not answered, or a crash may have lost the
	// acknowledgement.
	IsDoubtful bool `json:"doubtful,omitempty"`
}

// told is what a sink knows about an alert.
type told struct {
	acknowledgement
	sentAt time.Time // of the last acknowledged message in this run, also of one that repeats what is known
}

// item is an alert as it was described last. It is kept until all sinks know.
type item struct {
	key, group string
	alert      alert.Alert
	muted      bool      // while it fired
	changedAt  time.Time // when its status changed in this run
	endedAt    time.Time // when it was described as resolved first; zero if it fires
	told       []told    // by sink
	isRestored bool      // until it is described for the first time in this run
}

// describe takes over what the engine says about the alert and reports whether sinks have to be told about it. The run began at begin.
func (i *item) describe(a *alert.Alert, now, begin time.Time) (changed bool) {
	isNew := !episodeOf(&i.alert).is(episodeOf(a))
	wasFiring, wasMuted := i.alert.IsFiring(), i.muted
	if isNew {
		i.countMissed()
		i.muted = false
	}
	if i.isRestored && !i.muted && !a.StartsAt.After(begin) {
		i.doubt(episodeOf(a)) // the run before this one may have told it, and not have saved that any more
	}
	i.isRestored = false
	i.alert = *a
	if a.IsFiring() {
		i.endedAt = time.Time{}
		i.muted = a.Mute.IsMuted()
	} else {
		if i.endedAt.IsZero() || isNew {
			i.endedAt = now
		}
		i.muted = i.muted || a.Mute.IsMuted()
	}
	changed = isNew || wasFiring != a.IsFiring() || wasMuted != i.muted
	if changed {
		i.changedAt = now
	}
	return changed
}

// doubt notes that any sink may have been told of this episode.
func (i *item) doubt(e episode) {
	for s := range i.told {
		if t := &i.told[s]; t.Status == nothing || !t.Episode.is(e) {
			t.IsDoubtful = true
		}
	}
}

// attempt notes that a sink may be told by a message that is being sent, and reports whether that is news.
func (i *item) attempt(sink int, m *message) (changed bool) {
	t := &i.told[sink]
	isKnown := t.Status == m.status && t.Episode.is(m.episode)
	m.wasDoubtful = t.IsDoubtful
	t.IsDoubtful = t.IsDoubtful || m.status == firing && !isKnown
	return t.IsDoubtful != m.wasDoubtful
}

// fail notes that a message was certainly not accepted.
func (i *item) fail(sink int, m *message) { i.told[sink].IsDoubtful = m.wasDoubtful }

// countMissed is called when another episode begins.
func (i *item) countMissed() {
	for s := range i.told {
		if t := &i.told[s]; t.Episode.is(episodeOf(&i.alert)) {
			t.Missed = 0
		} else if !i.muted {
			t.Missed++
		}
	}
}

// acknowledge notes that a sink has accepted a message, and reports whether that is news.
func (i *item) acknowledge(sink int, m *message, now time.Time) (changed bool) {
	t := &i.told[sink]
	t.sentAt = now
	if t.Status == m.status && t.Episode.is(m.episode) {
		changed = t.IsDoubtful && !m.isRefresh
		t.IsDoubtful = t.IsDoubtful && m.isRefresh // a repetition says nothing about what is in doubt
		return changed
	}
	if !m.episode.is(episodeOf(&i.alert)) {
		t.Missed = max(0, t.Missed-m.missed-1) // another episode has begun meanwhile, when this one was counted as missed
	}
	t.Status, t.Episode, t.At, t.IsDoubtful = m.status, m.episode, now, false
	return true
}

// rhythm says how often a kind of sink is told the same.
type rhythm struct {
	refresh     time.Duration // how often what is known is repeated; 0: never
	resolvedFor time.Duration // how long that an alert is resolved is repeated
}

// due returns what a sink has to be told next about an alert, and from when on. It is the only place that decides that, and knows nothing
// about failures: firing is due before resolved, because an episode can only be resolved for a sink that has acknowledged its firing.
func (r rhythm) due(i *item, sink int) (next status, at time.Time, isRefresh bool) {
	t := &i.told[sink]
	isHeard := t.Status != nothing && t.Episode.is(episodeOf(&i.alert)) && !t.IsDoubtful
	switch {
	case i.alert.IsFiring():
		if t.Status == firing && (isHeard || i.muted) {
			return r.repeat(firing, t.sentAt)
		}
		if i.muted {
			return nothing, time.Time{}, false // also in doubt: that it fires is true
		}
		return firing, i.changedAt, false
	case isHeard && t.Status == resolved:
		if t.sentAt.Add(r.refresh).Sub(i.endedAt) > r.resolvedFor {
			return nothing, time.Time{}, false
		}
		return r.repeat(resolved, t.sentAt)
	case t.Status == firing && (isHeard || i.muted && !t.IsDoubtful):
		return resolved, later(t.At.Add(resolveDelay), i.changedAt), false
	case i.muted && !t.IsDoubtful:
		return nothing, time.Time{}, false
	default: // it began and ended unheard
		return firing, i.changedAt, false
	}
}

func (r rhythm) repeat(s status, sentAt time.Time) (status, time.Time, bool) {
	if r.refresh == 0 {
		return nothing, time.Time{}, false
	}
	if sentAt.IsZero() {
		return s, time.Time{}, true
	}
	return s, sentAt.Add(r.refresh), true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earlier returns the earlier of two times, of which the zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
