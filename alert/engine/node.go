package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// NodeChanged evaluates the rules that a change of the node concerns: those about the node with that trigger, and those about pods and
// containers that read the node. The engine keeps the view; nobody may modify it.
func (e *Engine) NodeChanged(v *view.NodeView, trigger rule.Trigger, at time.Time) {
	e.Advance(at)
	before := e.node
	e.node = v
	node := e.objects[podid.FullName{}]
	isFirst := !node.isSeen
	node.isSeen = true
	e.evaluateAll(at, func(r *rule.Rule) bool {
		switch {
		case isFirst || r.Scope == rule.Node:
			return isFirst || r.Triggers&trigger != 0
		case before.Runtime.Stale != v.Runtime.Stale && r.Triggers&rule.OnStatus != 0:
			return true
		default: // an OnLoad of the node does not concern those that read only the load of a pod
			return r.Triggers&trigger&(rule.OnNode|rule.OnSource) != 0 || r.Triggers&trigger != 0 && r.Triggers&rule.OnNode != 0
		}
	})
}

// KindClock is the kind of NodeEvent that says that the clock was set.
const KindClock = "clock"

// NodeEvent counts something that happened to the node, for node.count. After KindClock, whatever depends on the time of day is looked at.
func (e *Engine) NodeEvent(kind string, at time.Time) {
	e.Advance(at)
	e.recent.Add(recent.Object{}, kind, at)
	if kind == KindClock {
		e.restartTimers(at)
	}
	e.evaluateAll(at, func(r *rule.Rule) bool { return r.Triggers&rule.OnNode != 0 })
}

// restartTimers looks at everything that waits for an instant.
func (e *Engine) restartTimers(at time.Time) {
	for _, o := range e.sortedObjects() {
		for _, c := range o.sortedCells() {
			if !c.next.IsZero() {
				e.evaluate(c.rule, o, c.name, later(o.last, at))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.mutes.silences)) {
		e.runSilence(e.mutes.silences[id], at)
	}
}

// EndStartup says that every pod of the node has been seen: restored alerts of others are resolved.
func (e *Engine) EndStartup(now time.Time) {
	e.Advance(now)
	for _, o := range e.sortedObjects() {
		if o.isNode() {
			continue
		}
		for _, c := range o.sortedCells() {
			if !o.isSeen {
				e.dropCell(c, now)
			} else if i := c.alert; i != nil && i.isPartlySeen() {
				i.uids = nil
				e.evaluate(c.rule, o, c.name, later(o.last, now))
			}
		}
		e.forgetObject(o)
	}
}

// evaluateAll evaluates the chosen rules for all objects that were seen.
func (e *Engine) evaluateAll(at time.Time, isChosen func(*rule.Rule) bool) {
	chosen := make([]*ruleState, 0, len(e.rules.ordered))
	hasPods := false
	for _, r := range e.rules.ordered {
		if isChosen(r.rule) {
			chosen = append(chosen, r)
			hasPods = hasPods || r.rule.Scope != rule.Node
		}
	}
	objects := []*object{e.objects[podid.FullName{}]}
	if hasPods {
		objects = e.sortedObjects()
	}
	for _, o := range objects {
		if !o.isSeen {
			continue
		}
		o.last = later(o.last, at)
		for _, r := range chosen {
			e.evaluateRule(r, o, o.last)
		}
	}
}

func (e *Engine) sortedObjects() []*object {
	return slices.SortedFunc(maps.Values(e.objects), func(a, b *object) int {
		return cmp.Or(strings.Compare(a.name.Namespace, b.name.Namespace), strings.Compare(a.name.Name, b.name.Name))
	})
}
