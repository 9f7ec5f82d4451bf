package remedy

import (
	"fmt"
	"time"
)

// Breaker suspends disruptive actions: if many pods fail at once, the node is the cause, not the pods. Its zero value suspends nothing.
type Breaker struct {
	// Reason is why disruptive actions are suspended; empty if they are not.
	Reason string `json:"reason,omitempty"`
	// Since is when the actions were suspended, Last when too many pods fired a rule last.
	Since Instant `json:"since,omitzero"`
	Last  Instant `json:"last,omitzero"`
	// Resumed is when somebody ended a suspension last: what fired before does not suspend again.
	Resumed time.Time `json:"resumed,omitzero"`
}

const (
	breakerPeriod = 5 * time.Minute
	breakerShare  = 0.3
	breakerPods   = 3
	breakerCalm   = 30 * time.Minute
)

// PodFiring is a pod with a firing alert.
type PodFiring struct {
	Rule, Namespace, Pod string
	// FiredAt is when the alert fired. Ended is set if it does not fire any more.
	FiredAt time.Time
	Ended   bool
}

// Step returns the breaker after looking at the alerts of pods, which must include those that fired in the last 5 minutes also if they
// were resolved since. pods is the number of pods on the node.
//
// The actions are suspended when 30 % of the pods, at least 3, fired the same rule within 5 minutes. They are resumed when that many pods
// have neither fired a rule within 5 minutes nor are firing one for 30 minutes.
func (b Breaker) Step(firings []PodFiring, pods int, now Instant) Breaker {
	rule, count := b.worst(firings, now.At)
	if float64(count) >= max(breakerPods, breakerShare*float64(pods)) {
		if b.Reason == "" {
			b.Since = now
		}
		b.Reason, b.Last = fmt.Sprintf("%d pods fired %s at once: the node may be the cause", count, rule), now
		return b
	}
	if b.Reason != "" && !now.At.Before(b.Until()) {
		return Breaker{Resumed: b.Resumed}
	}
	return b
}

// worst returns the rule with the most pods that fired it within the period; while suspended, also those that still fire it.
func (b Breaker) worst(firings []PodFiring, now time.Time) (rule string, count int) {
	type pod struct{ rule, namespace, name string }
	seen := map[pod]bool{}
	counts := map[string]int{}
	for _, f := range firings {
		recent := now.Sub(f.FiredAt) < breakerPeriod && f.FiredAt.After(b.Resumed)
		lasting := b.Reason != "" && !f.Ended
		key := pod{f.Rule, f.Namespace, f.Pod}
		if !recent && !lasting || seen[key] {
			continue
		}
		seen[key] = true
		if counts[f.Rule]++; counts[f.Rule] > count || counts[f.Rule] == count && f.Rule < rule {
			rule, count = f.Rule, counts[f.Rule]
		}
	}
	return rule, count
}

// Until returns when the suspension ends at the earliest; zero if there is none.
func (b Breaker) Until() time.Time {
	if b.Reason == "" {
		return time.Time{}
	}
	return b.Last.At.Add(breakerCalm)
}

// Suspend returns a breaker that suspends disruptive actions for another reason than alerts, until 30 minutes of calm.
func (b Breaker) Suspend(reason string, now Instant) Breaker {
	return Breaker{Reason: reason, Since: now, Last: now, Resumed: b.Resumed}
}

// Resume ends a suspension. Alerts that fired until now do not begin another one.
func (b Breaker) Resume(now time.Time) Breaker { return Breaker{Resumed: now} }
