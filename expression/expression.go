// Package expression compiles and evaluates the filters of the query API: boolean CEL expressions over a pod and its node.
//
// The environment is typed and total: a field that does not exist is an error when the expression is compiled, and a field that exists
// always has a value. Labels and annotations are asked with functions that return "" for a key that does not exist. A load that was not
// measured is unknown: what depends on it is neither true nor false, and such an expression does not match. The cost of an expression
// is bounded when it is compiled and when it is evaluated.
package expression

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"

	"github.com/heraldnode/herald/view"
)

// Limits of expressions, in the cost units of CEL: about one per step.
const (
	// MaxCost is the limit for one object. An expression whose worst case exceeds it is rejected when it is compiled.
	MaxCost = 10_000
	// MaxLength is the maximum length of an expression in characters.
	MaxLength = 4096
)

// ErrCost is wrapped by errors of expressions that cost too much.
var ErrCost = errors.New("expression costs too much")

// Error is an error at a position of an expression.
type Error struct {
	// Line and Column start at 1.
	Line, Column int
	Message      string
}

// Error returns the position and the message.
func (e *Error) Error() string {
	if e.Line > 1 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("column %d: %s", e.Column, e.Message)
}

// Environment compiles expressions. It is safe for concurrent use.
type Environment struct{ env *cel.Env }

// NewEnvironment returns an environment with the variables pod and node. It takes milliseconds: create it once.
func NewEnvironment() (*Environment, error) {
	options := []cel.EnvOption{
		cel.CustomTypeProvider(newProvider(false)), cel.CustomTypeAdapter(adapter{}),
		cel.Variable("pod", podType), cel.Variable("node", nodeType),
		cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(50), cel.CrossTypeNumericComparisons(true),
	}
	env, err := cel.NewEnv(append(options, functions()...)...)
	if err != nil {
		return nil, fmt.Errorf("create expression environment: %w", err)
	}
	return &Environment{env}, nil
}

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	program   cel.Program
	readsLoad bool
}

// ReadsLoad reports whether the expression asks for the load of a pod or a container. Its input needs one then.
func (x *Expression) ReadsLoad() bool { return x.readsLoad }

// Compile compiles an expression. Errors of the expression are of type *Error, or wrap ErrCost.
func (e *Environment) Compile(text string) (*Expression, error) {
	checked, issues := e.env.Compile(text)
	if issues.Err() != nil {
		return nil, firstError(issues)
	}
	if checked.OutputType() != cel.BoolType {
		return nil, &Error{Line: 1, Column: 1, Message: fmt.Sprintf("the expression is of type %s, it must be bool", checked.OutputType())}
	}
	estimate, err := e.env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, fmt.Errorf("estimate cost: %w", err)
	}
	if estimate.Max > MaxCost {
		return nil, fmt.Errorf("%w: up to %d units for a pod, the limit is %d; nested loops and regular expressions cost most",
			ErrCost, estimate.Max, MaxCost)
	}
	program, err := e.env.Program(checked, cel.CostLimit(MaxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, &Error{Line: 1, Column: 1, Message: err.Error()} // a regular expression that does not compile
	}
	return &Expression{program, readsLoad(checked.NativeRep())}, nil
}

func readsLoad(checked *ast.AST) bool {
	found := false
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(expr ast.Expr) {
		if expr.Kind() == ast.SelectKind && expr.AsSelect().FieldName() == "load" {
			operand := checked.GetType(expr.AsSelect().Operand().ID()).TypeName()
			found = found || operand == podType.TypeName() || operand == containerType.TypeName()
		}
	}))
	return found
}

func firstError(issues *cel.Issues) error {
	for _, issue := range issues.Errors() {
		message, _, _ := strings.Cut(issue.Message, "\n")
		return &Error{Line: max(1, issue.Location.Line()), Column: max(0, issue.Location.Column()) + 1, Message: message}
	}
	return issues.Err()
}

// Input is what an expression is evaluated for.
type Input struct {
	Now time.Time
	Pod *view.PodView
	// Node is called only if the expression asks for the node.
	Node func() *view.NodeView
}

// Match evaluates the expression and returns its result and its cost. A result that depends on an unknown load is false. Errors wrap
// ErrCost if the limit was exceeded; others are those of the expression, like a division by zero.
func (x *Expression) Match(in Input) (matches bool, cost uint64, err error) {
	e := &evaluation{at: moment{now: in.Now}, getNode: in.Node}
	e.setPod(in.Pod)
	result, details, err := x.program.Eval(e)
	if actual := details.ActualCost(); actual != nil {
		cost = *actual
	}
	switch {
	case cost > MaxCost:
		return false, cost, fmt.Errorf("%w: the limit is %d units for a pod", ErrCost, MaxCost)
	case err != nil:
		return false, cost, err
	}
	matches, _ = result.Value().(bool)
	return matches, cost, nil
}

// sizes bounds what the environment contains, for the worst case of an expression's cost.
type sizes struct{}

// Bounds of the environment. Longer texts are cut.
const (
	maxContainers = 32
	maxText       = 256
)

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(element cost.AstNode) *cost.SizeEstimate {
	if path := element.Path(); len(path) == 0 {
		return nil
	}
	switch element.Type().Kind() {
	case cel.ListKind:
		return &cost.SizeEstimate{Max: maxContainers}
	case cel.StringKind:
		return &cost.SizeEstimate{Max: maxText}
	default:
		return nil
	}
}

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	switch function {
	case "label", "annotation":
		return cost.NewCallEstimate(cost.Estimate{Min: 1, Max: 1}, &cost.SizeEstimate{Max: maxText})
	case "pressure", "quantity", "ended", "restarted", "flipped", "count", "older":
		return cost.NewCallEstimate(cost.Estimate{Min: 1, Max: 1}, nil)
	default:
		return nil
	}
}
