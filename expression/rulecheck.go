package expression

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// Reads is a set of what an expression reads: after which changes its result can differ.
type Reads uint16

// What can be read.
const (
	ReadsPod       Reads = 1 << iota // the pod's spec and status
	ReadsContainer                   // the states of containers, which are not known while the runtime does not answer
	ReadsProbe                       // the answers of probes
	ReadsSync                        // what the API server has
	ReadsLoad                        // the load of the node, a pod or a container
	ReadsNode                        // the node, its runtime, its connection to the API server, its agent
	ReadsSource                      // the sources of pods
	ReadsTime                        // the result can change at an instant; see Outcome.Next
)

// readsOf has what fields and functions read, by type, or by type and field.
var readsOf = map[string]Reads{
	"Pod": ReadsPod, "Pod.containers": ReadsContainer, "Pod.overdue": ReadsPod | ReadsTime, "Pod.load": ReadsPod | ReadsLoad,
	"Pod.sync": ReadsPod | ReadsSync, "Pod.behind": ReadsPod | ReadsSync, "Pod.refused": ReadsPod | ReadsSync,
	"Container": ReadsContainer, "Container.probe_failing": ReadsContainer | ReadsProbe, "Container.load": ReadsContainer | ReadsLoad,
	"Container.probe_erroring": ReadsContainer | ReadsProbe, "Container.probe_streak": ReadsContainer | ReadsProbe,
	"Node": ReadsNode, "Node.sources_bad": ReadsNode | ReadsSource, "Node.cert_days": ReadsNode | ReadsTime,
	"Node.load": ReadsNode | ReadsLoad, "NodeLoad.hours_to_full": ReadsLoad | ReadsTime,

	"ended": ReadsContainer | ReadsTime, "restarted": ReadsContainer | ReadsTime, "flipped": ReadsPod | ReadsTime,
	"count": ReadsNode | ReadsTime, "older": ReadsPod | ReadsTime,
}

// checker checks what the type checker cannot, and collects what an expression reads.
type checker struct {
	checked  *ast.AST
	reads    Reads
	problems []*Error
}

func checkRule(checked *ast.AST) (Reads, []*Error) {
	c := &checker{checked: checked}
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(expr ast.Expr) {
		switch expr.Kind() {
		case ast.SelectKind:
			typeName := checked.GetType(expr.AsSelect().Operand().ID()).TypeName()
			reads, found := readsOf[typeName+"."+expr.AsSelect().FieldName()]
			if !found {
				reads = readsOf[typeName]
			}
			c.reads |= reads
		case ast.CallKind:
			c.call(expr)
		}
	}))
	return c.reads, c.problems
}

func (c *checker) addf(expr ast.Expr, format string, args ...any) {
	at := c.checked.SourceInfo().GetStartLocation(expr.ID())
	c.problems = append(c.problems, &Error{
		Line: max(1, at.Line()), Column: max(0, at.Column()) + 1, Message: fmt.Sprintf(format, args...),
	})
}

func (c *checker) call(expr ast.Expr) {
	call := expr.AsCall()
	args := call.Args()
	if call.IsMemberFunction() {
		c.reads |= readsOf[c.checked.GetType(call.Target().ID()).TypeName()]
	}
	c.reads |= readsOf[call.FunctionName()]
	switch call.FunctionName() {
	case "ended", "flipped":
		c.window(args[1], MaxWindow)
	case "restarted":
		c.window(args[0], MaxWindow)
	case "count":
		c.window(args[1], MaxWindow)
		if kind, isText := literal(args[0]).(types.String); !isText || !slices.Contains(NodeEvents, string(kind)) {
			c.addf(args[0], "node.count counts one of %s", strings.Join(NodeEvents, ", "))
		}
	case "older":
		c.window(args[1], maxAge)
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals, operators.NotEquals:
		c.comparison(call.FunctionName(), args[0], args[1])
		c.comparison(mirrored[call.FunctionName()], args[1], args[0])
	}
}

func literal(expr ast.Expr) any {
	if expr.Kind() == ast.LiteralKind {
		return expr.AsLiteral()
	}
	return nil
}

// window checks a window or an age.
func (c *checker) window(expr ast.Expr, longest time.Duration) {
	text, isText := literal(expr).(types.String)
	if !isText {
		c.addf(expr, "the duration must be a literal like '10m'")
		return
	}
	duration, err := ParseDuration(string(text))
	switch {
	case err != nil:
		c.addf(expr, "%v", err)
	case duration <= 0:
		c.addf(expr, "the duration must be positive")
	case duration > longest:
		c.addf(expr, "%s is too long; at most %s", text, formatDays(longest))
	}
}

func formatDays(d time.Duration) string {
	if d == day {
		return "24h"
	}
	return fmt.Sprintf("%dd", d/day)
}

// mirrored has the operator that means the same with its operands exchanged.
var mirrored = map[string]string{
	operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals, operators.Greater: operators.Less,
	operators.GreaterEquals: operators.LessEquals, operators.Equals: operators.Equals, operators.NotEquals: operators.NotEquals,
}

// comparison rejects a comparison of a count with more than it can be.
func (c *checker) comparison(operator string, count, bound ast.Expr) {
	if !isCount(count) {
		return
	}
	var limit float64
	switch v := literal(bound).(type) {
	case types.Int:
		limit = float64(v)
	case types.Uint:
		limit = float64(v)
	case types.Double:
		limit = float64(v)
	default:
		return
	}
	if isConstant := operator == operators.Greater || operator == operators.LessEquals; limit > MaxCount || limit == MaxCount && isConstant {
		c.addf(bound, "counts end at %d, so that this comparison has always the same result; compare with %d at most, as in >= %d",
			MaxCount, MaxCount, MaxCount)
	}
}

func isCount(expr ast.Expr) bool {
	if expr.Kind() != ast.CallKind {
		return false
	}
	call := expr.AsCall()
	switch call.FunctionName() {
	case "ended", "restarted", "flipped", "count":
		return call.IsMemberFunction()
	case "int", "uint", "double":
		return len(call.Args()) == 1 && isCount(call.Args()[0])
	default:
		return false
	}
}
