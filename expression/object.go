package expression

import (
	"fmt"
	"reflect"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/view"
)

// moment is the time of an evaluation, and what the evaluation noted about it.
type moment struct {
	now time.Time
	// isRule is set for rules, for which a load that cannot exist is 0 instead of unknown.
	isRule bool
	recent Recent
	// next is the earliest instant at which a value that was read changes. Zero for never.
	next time.Time
	// missing is the first field that was read and is not known.
	missing string
}

// changesAt notes that a value that was read changes at t, unless that is in the past.
func (m *moment) changesAt(t time.Time) {
	if t.After(m.now) && (m.next.IsZero() || t.Before(m.next)) {
		m.next = t
	}
}

// target is an object that has fields.
type target interface{ moment() *moment }

// evaluation has the variables of one evaluation. It implements cel.Activation without allocations.
type evaluation struct {
	at        moment
	pod       pod
	container container
	node      node
	// getNode returns the node when the expression asks for it.
	getNode func() *view.NodeView
}

// ResolveName implements cel.Activation. A variable that has no object is unknown.
func (e *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case "pod":
		if e.pod.view != nil {
			return &e.pod.object, true
		}
	case "container":
		if e.container.spec != nil {
			return &e.container.object, true
		}
	case "node":
		if e.node.view == nil && e.getNode != nil {
			e.setNode(e.getNode())
		}
		if e.node.view != nil {
			return &e.node.object, true
		}
	default:
		return nil, false
	}
	if e.at.missing == "" {
		e.at.missing = name
	}
	return unknown, true
}

// Parent implements cel.Activation.
func (*evaluation) Parent() cel.Activation { return nil }

func (e *evaluation) setPod(v *view.PodView) {
	e.pod = pod{view: v, at: &e.at}
	e.pod.object = object{&e.pod, podType}
}

// setContainer sets the container of the pod with the given name, if there is one.
func (e *evaluation) setContainer(name string) {
	for i := range e.pod.view.Spec.Containers {
		if spec := &e.pod.view.Spec.Containers[i]; spec.Name == name {
			e.container.set(e.pod.view, spec, &e.at)
			return
		}
	}
}

func (e *evaluation) setNode(v *view.NodeView) {
	e.node = node{view: v, at: &e.at}
	e.node.object = object{&e.node, nodeType}
}

// pod is the variable pod.
type pod struct {
	object
	view *view.PodView
	at   *moment
}

func (p *pod) moment() *moment { return p.at }

// load returns the load of the pod. For rules, that of a pod in which nothing runs is 0.
func (p *pod) load() ref.Val {
	u := &usage{at: p.at, isIdle: p.at.isRule && !isAnyRunning(&p.view.Local.Status)}
	if p.view.Load != nil {
		u.load, u.pids = &p.view.Load.UsageLoad, p.view.Load.PIDs
	}
	u.object = object{u, usageType}
	return &u.object
}

func isAnyRunning(status *v1.PodStatus) bool {
	for _, statuses := range [...][]v1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if statuses[i].State.Running != nil {
				return true
			}
		}
	}
	return false
}

// container is the variable container, and an element of pod.containers. status is empty if the container has none.
type container struct {
	object
	pod    *view.PodView
	spec   *view.Container
	status *v1.ContainerStatus
	at     *moment
}

func (c *container) set(pod *view.PodView, spec *view.Container, at *moment) {
	c.pod, c.spec, c.status, c.at = pod, spec, findStatus(&pod.Local.Status, spec.Name), at
	c.object = object{c, containerType}
}

func (c *container) moment() *moment { return c.at }

// load returns the load of the container. For rules, that of a container that does not run is 0.
func (c *container) load() ref.Val {
	u := &usage{at: c.at, isIdle: c.at.isRule && c.status.State.Running == nil}
	if load := c.pod.Load; load != nil {
		for i := range load.Containers {
			if load.Containers[i].Name == c.spec.Name {
				u.load = &load.Containers[i].UsageLoad
			}
		}
	}
	u.object = object{u, usageType}
	return &u.object
}

// node is the variable node.
type node struct {
	object
	view *view.NodeView
	at   *moment
}

func (n *node) moment() *moment { return n.at }

func (n *node) load() ref.Val {
	l := &nodeLoad{load: n.view.Load, agent: &n.view.Agent, at: n.at}
	l.object = object{l, nodeLoadType}
	return &l.object
}

// object is a value of a type of the environment. Fields are read by provider.
type object struct {
	value any
	typ   *cel.Type
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(target reflect.Type) (any, error) {
	if reflect.TypeOf(o.value).AssignableTo(target) {
		return o.value, nil
	}
	return nil, fmt.Errorf("%s cannot be converted to %v", o.typ, target)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(target ref.Type) ref.Val {
	if target.TypeName() == o.typ.TypeName() {
		return o
	}
	return types.NewErr("%s cannot be converted to %s", o.typ, target.TypeName())
}

// Equal implements ref.Val: an object equals only itself.
func (o *object) Equal(other ref.Val) ref.Val { return types.Bool(other.Value() == o.value) }

// Type implements ref.Val.
func (o *object) Type() ref.Type { return o.typ }

// Value implements ref.Val.
func (o *object) Value() any { return o.value }
