package ruletest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/engine"
)

// sinks is what a receiver would know: the newest state of each alert, and what it was told.
type sinks struct {
	alerts map[string]*seenAlert
	order  []string
}

// seenAlert is an alert that existed at some time.
type seenAlert struct {
	alert alert.Alert
	// isGone is set when the alert does not exist any more.
	isGone bool
	// isTold is set while a receiver believes that it fires. sent counts the messages.
	isTold bool
	sent   int
	past   []string
}

func newSinks() sinks { return sinks{alerts: map[string]*seenAlert{}} }

// take takes edges, and then the alerts as they are.
func (s *sinks) take(edges []engine.Edge, alerts []alert.Alert) {
	for i := range edges {
		edge := &edges[i]
		seen := s.find(&edge.Alert)
		if edge.Alert.State == "" { // it is forgotten
			seen.past = append(seen.past, formatOffset(edge.At)+" "+stateInactive)
			continue
		}
		if seen.alert = edge.Alert; edge.Alert.State != edge.Before {
			seen.past = append(seen.past, formatOffset(edge.At)+" "+string(edge.Alert.State))
		}
		seen.tell()
	}
	present := map[string]bool{}
	for i := range alerts {
		seen := s.find(&alerts[i])
		seen.alert, seen.isGone = alerts[i], false
		present[alerts[i].Key()] = true
	}
	for key, seen := range s.alerts {
		if !present[key] {
			seen.isGone = true
		}
	}
}

func (s *sinks) find(a *alert.Alert) *seenAlert {
	key := a.Key()
	seen := s.alerts[key]
	if seen == nil {
		seen = &seenAlert{}
		s.alerts[key] = seen
		s.order = append(s.order, key)
	}
	return seen
}

// tell counts the messages that the state causes, as package notify sends them: one when it fires and one when it is resolved. A muted
// alert is not told, but what was told is resolved.
func (a *seenAlert) tell() {
	switch {
	case a.alert.IsFiring() && !a.isTold && !a.alert.Mute.IsMuted():
		a.isTold = true
		a.sent++
	case !a.alert.IsFiring() && a.isTold:
		a.isTold = false
		a.sent++
	}
}

func (a *seenAlert) state() string {
	if a.isGone {
		return stateInactive
	}
	return string(a.alert.State)
}

// hasState reports whether the alert is in a state. One that was resolved some time ago is resolved and inactive.
func (a *seenAlert) hasState(state string) bool {
	return a.state() == state || state == string(alert.Resolved) && a.isGone && a.alert.State == alert.Resolved
}

// formatOffset returns a time since the beginning, like 10m9s.
func formatOffset(at time.Time) string { return at.Sub(epoch).String() }

// check compares the alerts with an expectation.
func (s *sinks) check(e *Expect) error {
	var matching, inState []*seenAlert
	sent := 0
	for _, key := range s.order {
		seen := s.alerts[key]
		if !e.matches(seen.alert.Labels) {
			continue
		}
		matching = append(matching, seen)
		sent += seen.sent
		if e.State == "" || seen.hasState(e.State) {
			inState = append(inState, seen)
		}
	}
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	isAbsent := e.State == stateInactive || e.State == string(alert.Resolved)
	switch {
	case e.Count != nil && *e.Count != len(inState):
		problem("%d alerts are %s, want %d", len(inState), e.State, *e.Count)
	case e.Count != nil:
	case e.State == stateInactive && len(inState) == len(matching):
	case isAbsent && len(inState) == len(matching) && len(matching) > 0:
	case !isAbsent && e.State != "" && len(inState) > 0:
	case e.State != "":
		problem("it is %s, want %s", describeStates(matching), e.State)
	}
	if e.Sent != nil && *e.Sent != sent {
		problem("%d messages were sent, want %d", sent, *e.Sent)
	}
	if len(inState) > 0 {
		e.checkAlert(&inState[0].alert, problem)
	}
	if len(problems) == 0 {
		return nil
	}
	text := fmt.Sprintf("at %s %s%s: %s", e.At, e.Alert, formatLabels(e.Labels), strings.Join(problems, "; "))
	for _, seen := range matching {
		text += "\n" + seen.alert.Key() + ": " + strings.Join(seen.past, ", ")
	}
	return fmt.Errorf("%s", text)
}

func (e *Expect) matches(labels alert.Labels) bool {
	if labels[alert.LabelName] != e.Alert {
		return false
	}
	for name, value := range e.Labels {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// checkAlert checks what is expected of the alert beside its state.
func (e *Expect) checkAlert(a *alert.Alert, problem func(format string, args ...any)) {
	if e.Value != nil && (a.Value == nil || *a.Value != *e.Value) {
		got := "none"
		if a.Value != nil {
			got = fmt.Sprint(*a.Value)
		}
		problem("its value is %s, want %v", got, *e.Value)
	}
	if e.Unknown != nil && (a.Freeze != nil) != *e.Unknown {
		problem("that its answer is unknown is %v, want %v", a.Freeze != nil, *e.Unknown)
	}
	if e.Muted != nil && a.Mute.IsMuted() != *e.Muted {
		problem("muted is %v, want %v", a.Mute.IsMuted(), *e.Muted)
	}
	for _, name := range sortedKeys(e.Annotations) {
		if got, want := a.Annotations[name], e.Annotations[name]; got != want {
			problem("annotation %s is %q, want %q", name, got, want)
		}
	}
}

func describeStates(alerts []*seenAlert) string {
	var states []string
	for _, a := range alerts {
		if state := a.state(); !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	if len(states) == 0 {
		return stateInactive
	}
	return strings.Join(states, " and ")
}

func formatLabels(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	return alert.Labels(labels).Key()
}
