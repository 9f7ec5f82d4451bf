package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/alert/state"
)

// ruleTable has the rules.
type ruleTable struct {
	ordered []*ruleState // those of the set
	// byID has also rules that were removed and of which there is a resolved alert.
	byID  map[ruleID]*ruleState
	isSet bool
}

// ruleID identifies a rule. Rules of different scopes have different objects.
type ruleID struct {
	id    string
	scope rule.Scope
}

// ruleState is a rule and what it knows about its objects.
type ruleState struct {
	id        ruleID
	rule      *rule.Rule // nil for a rule of an earlier run that is not in the set
	timing    state.Timing
	cells     map[recent.Object]*cell
	alerts    int
	isRemoved bool
}

// forget forgets a rule that was removed if nothing is left of it.
func (t *ruleTable) forget(r *ruleState) {
	if r.isRemoved && len(r.cells) == 0 {
		delete(t.byID, r.id)
	}
}

func (t *ruleTable) get(id ruleID) *ruleState {
	r := t.byID[id]
	if r == nil {
		r = &ruleState{id: id, cells: map[recent.Object]*cell{}, isRemoved: true}
		t.byID[id] = r
	}
	return r
}

// SetRules replaces the rules. Alerts of a rule that is not in the set any more are resolved. A rule with the same name, labels and scope
// continues its alerts: it is evaluated anew, and an alert that has not been active for a longer For is resolved and pending again.
func (e *Engine) SetRules(set *rule.Set, now time.Time) {
	e.Advance(now)
	isNew := map[*rule.Rule]bool{}
	e.rules.ordered, e.rules.isSet = make([]*ruleState, 0, len(set.Rules)), true
	isKept := map[ruleID]bool{}
	for _, r := range set.Rules {
		id := ruleID{r.ID(), r.Scope}
		s := e.rules.get(id)
		e.rules.ordered = append(e.rules.ordered, s)
		isKept[id] = true
		if s.rule != r || s.isRemoved {
			isNew[r] = true
			e.editRule(s, r, now)
		}
	}
	for _, s := range e.rules.sorted() {
		if !isKept[s.id] {
			e.removeRule(s, now)
		}
	}
	e.setInhibitions(set.Inhibit, now)
	e.evaluateAll(now, func(r *rule.Rule) bool { return isNew[r] })
}

func (t *ruleTable) sorted() []*ruleState {
	return slices.SortedFunc(maps.Values(t.byID), func(a, b *ruleState) int {
		return strings.Compare(a.id.id+string(a.id.scope), b.id.id+string(b.id.scope))
	})
}

func (s *ruleState) sortedCells() []*cell {
	return slices.SortedFunc(maps.Values(s.cells), func(a, b *cell) int { return a.name.Compare(b.name) })
}

// editRule replaces a rule by a newer version of it.
func (e *Engine) editRule(s *ruleState, r *rule.Rule, now time.Time) {
	before := s.timing
	s.rule, s.timing, s.isRemoved = r, timingOf(r), false
	for _, c := range s.sortedCells() {
		i := c.alert
		if i == nil {
			continue
		}
		i.condition = r.Condition
		if i.state.MustWaitAgain(before, s.timing, now) {
			e.change(i, i.state.Resolve(now, ReasonForLengthened), nil, now)
			e.change(i, i.state.WaitAgain(), nil, now)
		}
		if !i.isWaiting {
			e.change(i, i.state.Retime(s.timing, now), nil, now)
			e.elapse(c, now)
		}
		e.settle(c)
	}
}

// removeRule resolves the alerts of a rule.
func (e *Engine) removeRule(s *ruleState, now time.Time) {
	s.isRemoved = true
	for _, c := range s.sortedCells() {
		e.clear(c)
		if i := c.alert; i != nil {
			i.isWaiting = false
			e.change(i, i.state.Resolve(now, ReasonRuleRemoved), nil, now)
			e.elapse(c, now)
		}
		e.settle(c)
	}
	e.rules.forget(s)
}

// RuleState says how a rule does.
type RuleState struct {
	Rule *rule.Rule
	// Firing, Pending and Suppressed count alerts, Unknown objects for which the answer is not known.
	Firing, Pending, Suppressed, Unknown int
	// UnknownSince is when the first answer became unknown of those that are.
	UnknownSince time.Time
	// Err is an error of the last evaluations; nil if all succeeded.
	Err error
}

// Rules returns how the rules do, in the order of the set.
func (e *Engine) Rules() []RuleState {
	states := make([]RuleState, 0, len(e.rules.ordered))
	for _, s := range e.rules.ordered {
		states = append(states, s.health())
	}
	return states
}

func (s *ruleState) health() RuleState {
	h := RuleState{Rule: s.rule}
	for _, c := range s.sortedCells() {
		if c.alert != nil && c.alert.isFiring() {
			h.Firing++
		} else if c.alert != nil && c.alert.state.State == alert.Pending {
			h.Pending++
		}
		if c.isSuppressed {
			h.Suppressed++
		}
		if !c.unknownSince.IsZero() {
			if h.Unknown++; h.UnknownSince.IsZero() || c.unknownSince.Before(h.UnknownSince) {
				h.UnknownSince = c.unknownSince
			}
		}
		if h.Err == nil {
			h.Err = c.err
		}
	}
	return h
}

// Health counts what view.Alerting shows.
type Health struct {
	Rules int
	// RulesBroken counts rules whose last evaluation failed for an object, RulesUnknown those with an answer that has been unknown for
	// BlindAfter.
	RulesBroken, RulesUnknown int
	Firing, Pending           int
	// Suppressed counts the alerts that do not exist because there are too many.
	Suppressed int
}

// Health returns how the rules and alerts do.
func (e *Engine) Health() Health {
	h := Health{Rules: len(e.rules.ordered), Suppressed: e.suppressed}
	for _, i := range e.alerts {
		if i.isFiring() {
			h.Firing++
		} else if i.state.State == alert.Pending {
			h.Pending++
		}
	}
	for _, s := range e.rules.ordered {
		isBroken, isBlind := false, false
		for _, c := range s.cells {
			isBroken, isBlind = isBroken || c.err != nil, isBlind || c.isBlind
		}
		if isBroken {
			h.RulesBroken++
		}
		if isBlind {
			h.RulesUnknown++
		}
	}
	return h
}
