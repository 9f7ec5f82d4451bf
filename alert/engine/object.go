package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
	"github.com/heraldnode/herald/view"
)

// object is the node or everything that has the full name of a pod.
type object struct {
	name podid.FullName
	// versions are the pods of that name, ordered by UID: more than one while a static pod is replaced.
	versions []version
	// pod and containers are the names of what rules are about.
	pod, containers []recent.Object
	cells           map[*cell]bool
	// last is the time of the last change.
	last time.Time
	// isSeen is set if it was seen in this run.
	isSeen bool
}

// version is a pod.
type version struct {
	uid  podid.UID
	view *view.PodView
}

func newObject(name podid.FullName) *object {
	o := &object{name: name, cells: map[*cell]bool{}}
	o.setNames()
	return o
}

func (o *object) isNode() bool { return o.name == podid.FullName{} }

// hasContainer reports whether one of the pods has the container.
func (o *object) hasContainer(name string) bool {
	return slices.ContainsFunc(o.versions, func(v version) bool { return v.hasContainer(name) })
}

func (v *version) hasContainer(name string) bool {
	return slices.ContainsFunc(v.view.Spec.Containers, func(c view.Container) bool { return c.Name == name })
}

// names returns the objects that rules of a scope are about.
func (o *object) names(scope rule.Scope) []recent.Object {
	switch {
	case scope == rule.Container:
		return o.containers
	case (scope == rule.Node) == o.isNode():
		return o.pod
	default:
		return nil
	}
}

// setNames computes the names from the versions.
func (o *object) setNames() {
	o.pod, o.containers = nil, nil
	if len(o.versions) > 0 || o.isNode() {
		o.pod = []recent.Object{{Namespace: o.name.Namespace, Pod: o.name.Name}}
	}
	for i := range o.versions {
		for _, container := range o.versions[i].view.Spec.Containers {
			name := recent.Object{Namespace: o.name.Namespace, Pod: o.name.Name, Container: container.Name}
			if !slices.Contains(o.containers, name) {
				o.containers = append(o.containers, name)
			}
		}
	}
}

func (o *object) find(uid podid.UID) int {
	return slices.IndexFunc(o.versions, func(v version) bool { return v.uid == uid })
}

// PodChange says that a pod changed.
type PodChange struct {
	UID podid.UID
	// View is the pod after the change. The engine keeps it; nobody may modify it.
	View *view.PodView
	// Changes are those of the status, with OnStatus.
	Changes []transition.Change
	// Trigger is what changed: OnStatus for a version of its status, or OnProbe, OnSync, OnLoad.
	Trigger rule.Trigger
	At      time.Time
}

// PodChanged evaluates the rules that a change of a pod concerns. Changes before the first one with OnStatus are ignored.
func (e *Engine) PodChanged(change PodChange) {
	name := podid.FullName{Namespace: change.View.Metadata.Namespace, Name: change.View.Metadata.Name}
	o := e.objects[name]
	isFirst := o == nil || o.find(change.UID) < 0
	if isFirst && change.Trigger&rule.OnStatus == 0 {
		return
	}
	if o == nil {
		o = newObject(name)
	}
	at := e.beginChange(o, change.At)
	e.objects[name] = o // a timer may have ended its last alert
	haveContainersChanged := isFirst
	if isFirst {
		e.names[change.UID] = name
		o.versions = append(o.versions, version{uid: change.UID, view: change.View})
		slices.SortFunc(o.versions, func(a, b version) int { return strings.Compare(string(a.uid), string(b.uid)) })
	} else {
		v := &o.versions[o.find(change.UID)]
		haveContainersChanged = !slices.EqualFunc(v.view.Spec.Containers, change.View.Spec.Containers,
			func(a, b view.Container) bool { return a.Name == b.Name })
		v.view = change.View
	}
	o.isSeen = true
	e.recent.Observe(name.Namespace, name.Name, string(change.UID), change.Changes, at)
	if haveContainersChanged {
		e.evaluateAnew(o, at)
		return
	}
	e.evaluateObject(o, change.Trigger, at)
}

// evaluateAnew evaluates all rules after pods of the name, or containers, came or went.
func (e *Engine) evaluateAnew(o *object, at time.Time) {
	o.setNames()
	for c := range o.cells {
		if c.alert != nil {
			e.saving.note(c.alert.key) // the UIDs are saved with it
		}
	}
	e.dropContainers(o, at)
	e.evaluateObject(o, allTriggers, at)
}

// PodRemoved says that a pod is gone. If no other pod has its name, its alerts are resolved, after KeepFiring if the rule has it. A pod
// that gets the name until then continues them.
func (e *Engine) PodRemoved(uid podid.UID, at time.Time) {
	name, found := e.names[uid]
	if !found {
		return
	}
	o := e.objects[name]
	at = e.beginChange(o, at)
	delete(e.names, uid)
	e.recent.Removed(name.Namespace, name.Name, string(uid))
	index := o.find(uid)
	o.versions = slices.Delete(o.versions, index, index+1)
	if len(o.versions) > 0 {
		e.evaluateAnew(o, at)
		return
	}
	o.setNames()
	for _, c := range o.sortedCells() {
		e.dropCell(c, at)
	}
	e.forgetObject(o)
}

// beginChange runs the timers of an object until a time, and returns that time, or that of the object's last change if it is later.
func (e *Engine) beginChange(o *object, at time.Time) time.Time {
	e.note(at)
	at = later(o.last, at)
	for {
		var first *timer
		for c := range o.cells {
			if t := &c.timer; t.index >= 0 && !t.at.After(at) && (first == nil || t.before(first)) {
				first = t
			}
		}
		if first == nil {
			o.last = at
			return at
		}
		e.runTimer(first, onClock(first.at, at))
	}
}

// dropContainers drops the cells of containers that the pod does not have any more.
func (e *Engine) dropContainers(o *object, at time.Time) {
	for _, c := range o.sortedCells() {
		if c.name.Container != "" && !o.hasContainer(c.name.Container) {
			e.dropCell(c, at)
		}
	}
}

// forgetObject forgets a pod of which nothing is left.
func (e *Engine) forgetObject(o *object) {
	if !o.isNode() && len(o.versions) == 0 && len(o.cells) == 0 {
		delete(e.objects, o.name)
	}
}

// evaluateObject evaluates all rules that the triggers concern.
func (e *Engine) evaluateObject(o *object, triggers rule.Trigger, at time.Time) {
	for _, r := range e.rules.ordered {
		if r.rule.Triggers&triggers != 0 || triggers == allTriggers {
			e.evaluateRule(r, o, at)
		}
	}
}

func (e *Engine) evaluateRule(r *ruleState, o *object, at time.Time) {
	for _, name := range o.names(r.rule.Scope) {
		e.evaluate(r, o, name, at)
	}
}

// allTriggers evaluates every rule, whatever its triggers.
const allTriggers rule.Trigger = 0xff
