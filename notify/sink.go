package notify

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heraldnode/herald/internal/wakeup"
)

// sender sends messages to a receiver. An error means that none was acknowledged.
type sender interface {
	send(ctx context.Context, batch []message, truncated int) error
	close()
}

// sink is a receiver and the state of its delivery. Everything but its configuration is guarded by Notifier.mu.
type sink struct {
	index      int
	name, kind string
	sender     sender
	rhythm     rhythm
	isGrouped  bool          // messages are about one group
	spacing    time.Duration // between messages about the same unit
	wake       wakeup.Signal

	units  map[string]*unit
	bucket bucket
	health health
}

// health is how a sink does.
type health struct {
	gate         time.Time // nothing is sent before
	failures     int       // in a row
	failingSince time.Time
	lastSuccess  time.Time
	lastErr      error
	lastErrAt    time.Time
	isFailing    bool // as last reported
}

// failingAfter is how long a sink must have failed, with something to deliver, to be reported as failing.
const failingAfter = 10 * time.Minute

// candidate is an alert that a sink has to be told about now.
type candidate struct {
	item      *item
	unit      *unit
	status    status
	at        time.Time
	isRefresh bool
}

// scan is what a sink has to do.
type scan struct {
	ready   []candidate // can be sent now
	next    time.Time   // when more will be ready; zero: when something changes
	waiting int         // alerts of which the sink does not know the present state
	failing bool
}

func (s *sink) unitKey(i *item) string {
	if s.isGrouped {
		return i.group
	}
	return i.key
}

// scan looks at all alerts.
func (s *sink) scan(items map[string]*item, now time.Time) scan {
	var result scan
	for _, i := range items {
		next, at, isRefresh := s.rhythm.due(i, s.index)
		if next == nothing {
			continue
		}
		u := s.units[s.unitKey(i)]
		if u == nil {
			u = &unit{}
		}
		if !at.After(now) && (!isRefresh || u.failures > 0) {
			result.waiting++
			failing, from := isFailingSince(earlier(u.failingSince, s.health.failingSince), now)
			result.failing = result.failing || failing
			result.next = earlier(result.next, from)
		}
		if ready := later(at, later(u.retryAt, u.spacedUntil)); ready.After(now) {
			result.next = earlier(result.next, ready)
			continue
		}
		result.ready = append(result.ready, candidate{item: i, unit: u, status: next, at: at, isRefresh: isRefresh})
	}
	return result
}

// isFailingSince reports whether a failure has lasted for so long that it is reported, and otherwise from when on.
func isFailingSince(since, now time.Time) (bool, time.Time) {
	switch from := since.Add(failingAfter); {
	case since.IsZero():
		return false, time.Time{}
	case from.After(now):
		return false, from
	default:
		return true, time.Time{}
	}
}

// pick returns the next messages to send together, or when to look again.
func (s *sink) pick(items map[string]*item, now time.Time) (batch []message, truncated int, found scan) {
	found = s.scan(items, now)
	if len(found.ready) == 0 {
		return nil, 0, found
	}
	if wait := later(s.health.gate, s.bucket.ready(now)); wait.After(now) {
		found.next = earlier(found.next, wait)
		return nil, 0, found
	}
	slices.SortFunc(found.ready, func(a, b candidate) int {
		return cmp.Or(a.unit.attemptedAt.Compare(b.unit.attemptedAt), a.at.Compare(b.at), cmp.Compare(a.item.key, b.item.key))
	})
	first := found.ready[0]
	for _, c := range found.ready {
		if s.belongs(first, c) && len(batch) < maxAlertsPerBatch {
			batch = append(batch, s.newMessage(c.item, c.status, c.isRefresh))
		}
	}
	if s.isGrouped {
		batch, truncated = s.addContext(batch, items, first.item.group)
	}
	s.attempt(batch, items, now)
	return batch, truncated, found
}

// belongs reports whether an alert is part of the message that begins with first.
func (s *sink) belongs(first, c candidate) bool {
	if s.isGrouped {
		return c.item.group == first.item.group
	}
	return c.item == first.item || !first.unit.isAlone && !c.unit.isAlone
}

// addContext adds the alerts of the group that the sink knows to be firing, as Alertmanager does: a message describes its whole group, and
// is resolved only when all of it is.
func (s *sink) addContext(batch []message, items map[string]*item, group string) (_ []message, truncated int) {
	isIncluded := make(map[string]bool, len(batch))
	for i := range batch {
		isIncluded[batch[i].key] = true
	}
	for _, i := range items {
		if i.group != group || isIncluded[i.key] || i.told[s.index].Status != firing || !i.alert.IsFiring() {
			continue
		}
		if len(batch) == maxAlertsPerBatch {
			truncated++
			continue
		}
		batch = append(batch, s.newMessage(i, firing, true))
	}
	slices.SortFunc(batch, func(a, b message) int { return cmp.Compare(a.key, b.key) })
	return batch, truncated
}

// newMessage describes the alert to the sink. What the sink knows about a former episode, while the present one is muted, is continued as
// that episode.
func (s *sink) newMessage(i *item, next status, isRefresh bool) message {
	t := &i.told[s.index]
	m := message{key: i.key, alert: i.alert, status: next, episode: episodeOf(&i.alert), missed: t.Missed, isRefresh: isRefresh}
	if i.muted && t.Status == firing && !t.Episode.is(m.episode) && (isRefresh || next == resolved) {
		m.episode, m.alert.StartsAt = t.Episode, t.Episode.StartsAt
	}
	return m
}

// attempt notes that the messages are being sent.
func (s *sink) attempt(batch []message, items map[string]*item, now time.Time) {
	s.bucket.take(now)
	for i := range batch {
		key := s.unitKey(items[batch[i].key])
		u := s.units[key]
		if u == nil {
			u = &unit{}
			s.units[key] = u
		}
		u.attemptedAt = now
	}
}

// settleUnits notes the result of a request for its units, and for the sink.
func (s *sink) settleUnits(units []*unit, alerts int, err error, now time.Time) {
	var response *responseError
	isResponse := errors.As(err, &response)
	if err == nil {
		s.health = health{lastSuccess: now, lastErr: s.health.lastErr, lastErrAt: s.health.lastErrAt, isFailing: s.health.isFailing}
		for _, u := range units {
			*u = unit{attemptedAt: now, spacedUntil: now.Add(s.spacing)}
		}
		return
	}
	s.health.lastErr, s.health.lastErrAt = err, now
	s.health.failures++
	s.health.failingSince = earlier(s.health.failingSince, now)
	isRefused := isResponse && response.isRefusal()
	if !isRefused {
		s.health.gate = now.Add(jitter(backoff(s.health.failures)))
		if isResponse {
			s.health.gate = later(s.health.gate, now.Add(response.retryAfter))
		}
	}
	for _, u := range units {
		u.failures++
		u.failingSince = earlier(u.failingSince, now)
		switch {
		case isRefused && !s.isGrouped && alerts > 1 && response.isAboutContent():
			u.isAlone = true
		case isRefused:
			u.retryAt = now.Add(jitter(refusalDelay))
		default:
			u.retryAt = now.Add(jitter(backoff(u.failures)))
		}
	}
}

// sweep forgets the units of alerts that are gone.
func (s *sink) sweep(items map[string]*item, now time.Time) {
	isUsed := make(map[string]bool, len(items))
	for _, i := range items {
		isUsed[s.unitKey(i)] = true
	}
	for key, u := range s.units {
		if !isUsed[key] && !u.spacedUntil.After(now) {
			delete(s.units, key)
		}
	}
}
