package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/alert/state"
)

// BlindAfter is how long an answer is unknown until its rule counts as unknown in Health.
const BlindAfter = 10 * time.Minute

// minRetry is when a rule is evaluated again that named an instant in the past.
const minRetry = time.Second

// Reasons with which alerts are resolved.
const (
	ReasonObjectGone    = "object gone"
	ReasonRuleRemoved   = "rule removed"
	ReasonForLengthened = "the rule waits longer now"
)

// cell is a rule and an object of it about which there is something to remember: an alert, an instant, or an answer that is not known.
type cell struct {
	rule   *ruleState
	object *object
	name   recent.Object
	timer  timer
	// next is the instant that the last evaluation named.
	next time.Time
	// unknownSince is when the answer became unknown; zero if it is known. isBlind is set after BlindAfter.
	unknownSince time.Time
	isBlind      bool
	// err is that of the last evaluation.
	err error
	// isSuppressed is set if the answer is true and there is no alert because there are too many.
	isSuppressed bool
	alert        *instance
}

func (o *object) sortedCells() []*cell {
	return slices.SortedFunc(maps.Keys(o.cells), func(a, b *cell) int {
		return cmp.Or(a.name.Compare(b.name), strings.Compare(a.rule.id.id, b.rule.id.id))
	})
}

// outcome is the answer of a rule for an object, and the input that it is about.
type outcome struct {
	rule.Result
	in rule.Input
}

// evaluate evaluates a rule for an object.
func (e *Engine) evaluate(r *ruleState, o *object, name recent.Object, at time.Time) {
	out, found := e.ask(r, o, name, at)
	if !found {
		return
	}
	c := r.cells[name]
	if c == nil {
		if out.Truth == rule.False && out.Next.IsZero() {
			return
		}
		c = e.newCell(r, o, name)
	}
	e.noteAnswer(c, &out.Result, at)
	e.applyAnswer(c, &out, at)
	e.settle(c)
}

// ask evaluates a rule for all pods of a name: true if one is true, else unknown if one is unknown.
func (e *Engine) ask(r *ruleState, o *object, name recent.Object, at time.Time) (outcome, bool) {
	in := rule.Input{Now: at, Container: name.Container, Node: e.node, Recent: &e.recent}
	if r.rule.Scope == rule.Node {
		return e.eval(r.rule, in), true
	}
	var all outcome
	found := false
	for i := range o.versions {
		v := &o.versions[i]
		if name.Container != "" && !v.hasContainer(name.Container) {
			continue
		}
		in.Pod = v.view
		out := e.eval(r.rule, in)
		if !found {
			all, found = out, true
		} else {
			all = join(all, out)
		}
	}
	return all, found
}

func join(a, b outcome) outcome {
	if weight(b.Truth) > weight(a.Truth) {
		a, b = b, a
	}
	if a.Next.IsZero() || !b.Next.IsZero() && b.Next.Before(a.Next) {
		a.Next = b.Next
	}
	if a.Err == nil {
		a.Err = b.Err
	}
	return a
}

func weight(t rule.Truth) int {
	switch t {
	case rule.True:
		return 2
	case rule.Unknown:
		return 1
	default:
		return 0
	}
}

func (e *Engine) newCell(r *ruleState, o *object, name recent.Object) *cell {
	c := &cell{rule: r, object: o, name: name}
	c.timer = timer{index: -1, cell: c}
	r.cells[name] = c
	o.cells[c] = true
	return c
}

// noteAnswer notes what Health counts, and the instant at which the rule must be evaluated again.
func (e *Engine) noteAnswer(c *cell, result *rule.Result, at time.Time) {
	c.next = time.Time{}
	if !result.Next.IsZero() {
		if c.next = onClock(result.Next, at); !c.next.After(at) {
			c.next = at.Add(minRetry)
		}
	}
	c.err = result.Err
	switch {
	case result.Truth != rule.Unknown:
		c.unknownSince, c.isBlind = time.Time{}, false
	case c.unknownSince.IsZero():
		c.unknownSince = at
	}
}

// applyAnswer changes the alert, or creates it.
func (e *Engine) applyAnswer(c *cell, out *outcome, at time.Time) {
	if c.alert == nil {
		if out.Truth == rule.Unknown {
			return
		}
		if e.setSuppressed(c, out.Truth == rule.True && !e.createAlert(c)); c.alert == nil {
			return
		}
	}
	i, timing := c.alert, c.rule.timing
	if out.Truth != rule.True && i.isPartlySeen() {
		return
	}
	switch out.Truth {
	case rule.True:
		if i.state.State == alert.Pending {
			i.value = out.Value
		}
		e.change(i, i.state.True(timing, at), out, at)
	case rule.False:
		e.change(i, i.state.False(timing, at, ""), out, at)
	default:
		e.change(i, i.state.Unknown(at, out.Reason), out, at)
	}
	if i.isWaiting {
		i.isWaiting = false
		e.elapse(c, at)
	}
}

func (e *Engine) setSuppressed(c *cell, isSuppressed bool) {
	if c.isSuppressed != isSuppressed {
		c.isSuppressed = isSuppressed
		if isSuppressed {
			e.suppressed++
		} else {
			e.suppressed--
		}
	}
}

// elapse changes the alert by what became due.
func (e *Engine) elapse(c *cell, at time.Time) {
	for c.alert != nil {
		next, changed := c.alert.state.Elapse(c.rule.timing, at)
		if !changed {
			return
		}
		e.change(c.alert, next, nil, at)
	}
}

// runCell does what is due.
func (e *Engine) runCell(c *cell, at time.Time) {
	c.object.last = later(c.object.last, at)
	e.elapse(c, at)
	if !c.unknownSince.IsZero() && !c.unknownSince.Add(BlindAfter).After(at) {
		c.isBlind = true
	}
	if !c.next.IsZero() && !c.next.After(at) {
		c.next = time.Time{}
		e.evaluate(c.rule, c.object, c.name, at)
	}
	e.settle(c)
}

// dropCell forgets a rule for an object that is gone. Its alert is resolved, or recovers until then.
func (e *Engine) dropCell(c *cell, at time.Time) {
	e.clear(c)
	if i := c.alert; i != nil {
		e.change(i, i.state.False(c.rule.timing, at, ReasonObjectGone), nil, at)
		i.isWaiting = false
		e.elapse(c, at)
	}
	e.settle(c)
}

// clear forgets everything but the alert.
func (e *Engine) clear(c *cell) {
	c.next, c.unknownSince, c.isBlind, c.err = time.Time{}, time.Time{}, false, nil
	e.setSuppressed(c, false)
}

// settle sets the timer of a cell, or removes the cell if there is nothing to remember.
func (e *Engine) settle(c *cell) {
	due := c.next
	add := func(at time.Time) {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	if !c.unknownSince.IsZero() && !c.isBlind {
		add(c.unknownSince.Add(BlindAfter))
	}
	if c.alert != nil && (!c.alert.isWaiting || c.alert.state.State == alert.Resolved) {
		add(c.alert.state.Due(c.rule.timing))
	}
	e.schedule(&c.timer, due)
	if c.alert != nil || !c.next.IsZero() || !c.unknownSince.IsZero() || c.err != nil || c.isSuppressed {
		return
	}
	delete(c.rule.cells, c.name)
	delete(c.object.cells, c)
	e.forgetObject(c.object)
	e.rules.forget(c.rule)
}

// timingOf returns the durations of a rule.
func timingOf(r *rule.Rule) state.Timing { return state.Timing{For: r.For, Keep: r.KeepFiring} }
