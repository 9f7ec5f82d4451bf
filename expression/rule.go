package expression

import (
	"errors"
	"fmt"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/heraldnode/herald/view"
)

// MaxRuleCost is the limit for the worst case of an expression of a rule. What it costs when it is evaluated is limited by MaxCost.
const MaxRuleCost = 5_000

// Scope is the kind of object that a rule is about. It decides which variables its expressions have.
type Scope int

// Scopes. All have the variable node.
const (
	NodeScope      Scope = iota
	PodScope             // also pod
	ContainerScope       // also pod and container
)

// Result is the type of the result of a rule's expression.
type Result int

// Results.
const (
	Bool   Result = iota
	Number        // int, uint or double
)

// RuleEnvironment compiles the expressions of rules of one scope. It is safe for concurrent use.
type RuleEnvironment struct {
	env   *cel.Env
	scope Scope
}

// NewRuleEnvironment returns an environment. It takes milliseconds: create it once.
func NewRuleEnvironment(scope Scope) (*RuleEnvironment, error) {
	options := []cel.EnvOption{
		cel.CustomTypeProvider(newProvider(true)), cel.CustomTypeAdapter(adapter{}), cel.Variable("node", nodeType),
		cel.EnableMacroCallTracking(), // for Part.Text
		cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(50), cel.CrossTypeNumericComparisons(true),
	}
	if scope >= PodScope {
		options = append(options, cel.Variable("pod", podType))
	}
	if scope >= ContainerScope {
		options = append(options, cel.Variable("container", containerType))
	}
	options = append(append(options, functions()...), windowFunctions()...)
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("create environment of rules: %w", err)
	}
	return &RuleEnvironment{env, scope}, nil
}

// RuleExpression is a compiled expression of a rule. It is safe for concurrent use.
type RuleExpression struct {
	program   cel.Program
	reads     Reads
	maxCost   uint64
	costliest Part
}

// Reads returns what the expression reads.
func (x *RuleExpression) Reads() Reads { return x.reads }

// MaxCost returns the cost of the worst case.
func (x *RuleExpression) MaxCost() uint64 { return x.maxCost }

// Costliest returns the operand of && or || with the largest part in MaxCost.
func (x *RuleExpression) Costliest() Part { return x.costliest }

// Compile compiles an expression. It returns all errors that it finds.
func (e *RuleEnvironment) Compile(text string, result Result) (*RuleExpression, []*Error) {
	checked, issues := e.env.Compile(text)
	if issues.Err() != nil {
		return nil, e.allErrors(issues)
	}
	if output := checked.OutputType(); !isResult(output, result) {
		want := "bool"
		if result == Number {
			want = "a number"
		}
		return nil, []*Error{{Line: 1, Column: 1, Message: fmt.Sprintf("the expression is of type %s, it must be %s", output, want)}}
	}
	reads, problems := checkRule(checked.NativeRep())
	if len(problems) > 0 {
		return nil, problems
	}
	estimate, err := e.env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, []*Error{{Line: 1, Column: 1, Message: "estimate cost: " + err.Error()}}
	}
	costliest := costliest(checked.NativeRep())
	if estimate.Max > MaxRuleCost {
		return nil, []*Error{{Line: costliest.Line, Column: costliest.Column, Message: fmt.Sprintf(
			"the expression costs up to %d units, the limit is %d, and this part %d: %s; nested loops and regular expressions cost most",
			estimate.Max, MaxRuleCost, costliest.MaxCost, cut(costliest.Text))}}
	}
	program, err := e.env.Program(checked, cel.CostLimit(MaxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, []*Error{{Line: 1, Column: 1, Message: err.Error()}} // a regular expression that does not compile
	}
	return &RuleExpression{program, reads, estimate.Max, costliest}, nil
}

func isResult(output *cel.Type, want Result) bool {
	if want == Bool {
		return output == cel.BoolType
	}
	return output == cel.IntType || output == cel.UintType || output == cel.DoubleType
}

// RuleInput is what an expression of a rule is evaluated for. What is nil is unknown.
type RuleInput struct {
	Now       time.Time
	Pod       *view.PodView
	Container string
	Node      *view.NodeView
	Recent    Recent
}

// Outcome is the result of an evaluation.
type Outcome struct {
	// IsKnown is false if a fact is missing or Err is not nil.
	IsKnown bool
	// IsTrue is that of an expression of type Bool, Number that of a Number.
	IsTrue bool
	Number float64
	// Next is the earliest instant at which the result can change although the input stays the same. Zero for never.
	Next time.Time
	// Missing is the first field that was not known, if the result is not known.
	Missing string
	Err     error
	Cost    uint64
}

// Eval evaluates the expression. It does not panic.
func (x *RuleExpression) Eval(in RuleInput) Outcome {
	e := &evaluation{}
	e.set(in)
	result, details, err := x.program.Eval(e)
	out := Outcome{Next: e.at.next, Missing: e.at.missing}
	if cost := details.ActualCost(); cost != nil {
		out.Cost = *cost
	}
	out.setResult(result, err)
	return out
}

func (e *evaluation) set(in RuleInput) {
	e.at = moment{now: in.Now, isRule: true, recent: in.Recent}
	if in.Pod != nil {
		e.setPod(in.Pod)
		e.setContainer(in.Container)
	}
	if in.Node != nil {
		e.setNode(in.Node)
	}
}

func (o *Outcome) setResult(result ref.Val, err error) {
	if err != nil {
		o.Err = ruleError(err)
		return
	}
	o.IsKnown = true
	switch v := result.(type) {
	case types.Bool:
		o.IsTrue = bool(v)
	case types.Int:
		o.Number = float64(v)
	case types.Uint:
		o.Number = float64(v)
	case types.Double:
		o.Number = float64(v)
	case *types.Unknown:
		o.IsKnown = false
	default:
		o.IsKnown, o.Err = false, fmt.Errorf("the result is of type %T", result)
	}
	if o.IsKnown {
		o.Missing = ""
	}
}

func ruleError(err error) error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return fmt.Errorf("%w: the limit is %d units", ErrCost, MaxCost)
	}
	return err
}
