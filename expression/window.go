package expression

import (
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/heraldnode/herald/alert/recent"
)

// Limits of the functions that count.
const (
	// MaxWindow is the longest window.
	MaxWindow = recent.MaxWindow
	// MaxCount is the largest count.
	MaxCount = recent.MaxCount
	// maxAge is the longest age that older compares with.
	maxAge = 365 * day
)

// NodeEvents are the kinds that node.count knows.
var NodeEvents = []string{"boot", "clock", "lease", "load", "runtime"}

// windowFunctions returns the functions that depend on the time. Only rules have them.
func windowFunctions() []cel.EnvOption {
	counts := func(name, overload string, object *cel.Type, count func(args []ref.Val) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{object, cel.StringType, cel.StringType}, cel.IntType,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val { return count(args) })))
	}
	return []cel.EnvOption{
		counts("ended", "container_ended", containerType, func(args []ref.Val) ref.Val {
			return countContainer(args[0], recent.Ended(text(args[1])), args[2])
		}),
		cel.Function("restarted", cel.MemberOverload("container_restarted", []*cel.Type{containerType, cel.StringType}, cel.IntType,
			cel.BinaryBinding(func(object, window ref.Val) ref.Val { return countContainer(object, recent.Restart, window) }))),
		counts("flipped", "pod_flipped", podType, func(args []ref.Val) ref.Val {
			p, isPod := args[0].Value().(*pod)
			if !isPod {
				return types.MaybeNoSuchOverloadErr(args[0])
			}
			object := recent.Object{Namespace: p.view.Metadata.Namespace, Pod: p.view.Metadata.Name}
			return p.at.count(object, recent.Flip(text(args[1])), args[2])
		}),
		counts("count", "node_count", nodeType, func(args []ref.Val) ref.Val {
			n, isNode := args[0].Value().(*node)
			if !isNode {
				return types.MaybeNoSuchOverloadErr(args[0])
			}
			return n.at.count(recent.Object{}, text(args[1]), args[2])
		}),
		cel.Function("older", cel.Overload("older_pod", []*cel.Type{podType, cel.StringType}, cel.BoolType, cel.BinaryBinding(isOlder))),
	}
}

func text(value ref.Val) string {
	s, _ := value.(types.String)
	return string(s)
}

func countContainer(object ref.Val, kind string, window ref.Val) ref.Val {
	c, isContainer := object.Value().(*container)
	if !isContainer {
		return types.MaybeNoSuchOverloadErr(object)
	}
	metadata := &c.pod.Metadata
	return c.at.count(recent.Object{Namespace: metadata.Namespace, Pod: metadata.Name, Container: c.spec.Name}, kind, window)
}

// count counts what happened in a window, which was checked when the expression was compiled.
func (m *moment) count(object recent.Object, kind string, window ref.Val) ref.Val {
	if m.recent == nil {
		if m.missing == "" {
			m.missing = "what happened recently"
		}
		return unknown
	}
	duration, err := ParseDuration(text(window))
	if err != nil {
		return types.WrapErr(err)
	}
	count, next := m.recent.Count(object, kind, duration, m.now)
	m.changesAt(next)
	return types.Int(min(count, MaxCount))
}

// isOlder reports whether the node has known the pod for some time: since its start time, or since its creation if it has none.
func isOlder(object, age ref.Val) ref.Val {
	p, isPod := object.Value().(*pod)
	if !isPod {
		return types.MaybeNoSuchOverloadErr(object)
	}
	duration, err := ParseDuration(text(age))
	if err != nil {
		return types.WrapErr(err)
	}
	var since time.Time
	switch {
	case p.view.Local.Status.StartTime != nil:
		since = p.view.Local.Status.StartTime.Time
	case p.view.Metadata.CreationTimestamp != nil:
		since = p.view.Metadata.CreationTimestamp.Time
	default:
		return types.False // it has not been started
	}
	at := since.Add(duration)
	p.at.changesAt(at)
	return types.Bool(!p.at.now.Before(at))
}
