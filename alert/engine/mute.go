package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
)

// maxInhibitedBy is how many keys Mute.InhibitedBy has at most.
const maxInhibitedBy = 16

// mutes says which alerts are muted. It changes Alert.Mute, and nothing else.
type mutes struct {
	silences map[string]*silence
	inhibit  []rule.Inhibition
	// firing has the keys of the firing alerts that the source of each inhibition matches.
	firing []map[string]bool
}

// silence is a silence that has not ended. It follows the wall clock.
type silence struct {
	alert.Silence
	timer timer
}

// match notes the inhibitions that concern an alert.
func (m *mutes) match(i *instance) {
	i.sources, i.targets = nil, nil
	for index := range m.inhibit {
		if alert.MatchAll(m.inhibit[index].Source, i.labels) {
			i.sources = append(i.sources, index)
		}
		if alert.MatchAll(m.inhibit[index].Target, i.labels) {
			i.targets = append(i.targets, index)
		}
	}
}

// of returns what mutes an alert.
func (m *mutes) of(i *instance, at time.Time) alert.Mute {
	var mute alert.Mute
	for id, s := range m.silences {
		if s.Matches(i.labels, at) {
			mute.SilencedBy = append(mute.SilencedBy, id)
		}
	}
	slices.Sort(mute.SilencedBy)
	for _, index := range i.targets {
		for key := range m.firing[index] {
			if key != i.key {
				mute.InhibitedBy = append(mute.InhibitedBy, key)
			}
		}
	}
	slices.Sort(mute.InhibitedBy)
	mute.InhibitedBy = slices.Compact(mute.InhibitedBy)
	mute.InhibitedBy = mute.InhibitedBy[:min(len(mute.InhibitedBy), maxInhibitedBy):min(len(mute.InhibitedBy), maxInhibitedBy)]
	return mute
}

// noteFiring notes whether an alert can inhibit others, and mutes them or not.
func (e *Engine) noteFiring(i *instance, at time.Time) {
	hasChanged := false
	for _, index := range i.sources {
		if e.mutes.firing[index][i.key] != i.isFiring() {
			hasChanged = true
			if i.isFiring() {
				e.mutes.firing[index][i.key] = true
			} else {
				delete(e.mutes.firing[index], i.key)
			}
		}
	}
	if hasChanged {
		e.muteAll(at, func(target *instance) bool { return len(target.targets) > 0 })
	}
}

// muteAll computes anew what mutes the chosen alerts. A resolved alert keeps what muted it when it was resolved, so that an episode that
// was muted is not told afterwards.
func (e *Engine) muteAll(at time.Time, isChosen func(*instance) bool) {
	for _, key := range slices.Sorted(maps.Keys(e.alerts)) {
		i := e.alerts[key]
		if i.state.State == alert.Resolved || !isChosen(i) {
			continue
		}
		mute := e.mutes.of(i, at)
		if slices.Equal(mute.SilencedBy, i.mute.SilencedBy) && slices.Equal(mute.InhibitedBy, i.mute.InhibitedBy) {
			continue
		}
		if i.mute = mute; i.isFiring() {
			e.addEdge(i, i.state.State, at)
		}
	}
}

func all(*instance) bool { return true }

// setInhibitions replaces the inhibitions.
func (e *Engine) setInhibitions(inhibit []rule.Inhibition, now time.Time) {
	e.mutes.inhibit, e.mutes.firing = inhibit, make([]map[string]bool, len(inhibit))
	for index := range inhibit {
		e.mutes.firing[index] = map[string]bool{}
	}
	for _, i := range e.alerts {
		e.mutes.match(i)
		for _, index := range i.sources {
			if i.isFiring() {
				e.mutes.firing[index][i.key] = true
			}
		}
	}
	e.muteAll(now, all)
}

// AddSilence adds a silence, or replaces the one with its ID. If it starts after the latest time of any call, it takes effect when Advance
// reaches its start: a caller that adds one that starts now calls Advance now.
func (e *Engine) AddSilence(s alert.Silence) {
	s.StartsAt, s.EndsAt = s.StartsAt.Round(0), s.EndsAt.Round(0) // by the wall clock
	e.removeSilence(s.ID)
	added := &silence{Silence: s}
	added.timer = timer{index: -1, silence: added}
	e.mutes.silences[s.ID] = added
	e.saving.noteSilence(s.ID)
	now := e.clock
	if now.IsZero() {
		now = s.StartsAt
	}
	e.runSilence(added, now)
}

// ExpireSilence ends a silence.
func (e *Engine) ExpireSilence(id string, now time.Time) error {
	if e.mutes.silences[id] == nil {
		return fmt.Errorf("there is no silence %q", id)
	}
	e.Advance(now)
	e.removeSilence(id)
	e.muteAll(now, all)
	return nil
}

func (e *Engine) removeSilence(id string) {
	if s := e.mutes.silences[id]; s != nil {
		e.schedule(&s.timer, time.Time{})
		delete(e.mutes.silences, id)
		e.saving.noteSilence(id)
	}
}

// runSilence applies a silence that started, or ended.
func (e *Engine) runSilence(s *silence, at time.Time) {
	switch {
	case at.Before(s.StartsAt):
		e.schedule(&s.timer, onClock(s.StartsAt, at))
	case at.Before(s.EndsAt):
		e.schedule(&s.timer, onClock(s.EndsAt, at))
	default:
		e.removeSilence(s.ID)
	}
	e.muteAll(at, all)
}

// Silences returns the silences that have not ended, ordered by their start.
func (e *Engine) Silences() []alert.Silence {
	silences := make([]alert.Silence, 0, len(e.mutes.silences))
	for _, s := range e.mutes.silences {
		silences = append(silences, s.Silence)
	}
	slices.SortFunc(silences, func(a, b alert.Silence) int {
		if order := a.StartsAt.Compare(b.StartsAt); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	return silences
}
