package rule

import (
	"fmt"
	"math"
	"time"

	"github.com/heraldnode/herald/expression"
	"github.com/heraldnode/herald/view"
)

// Recent counts what happened to objects; see recent.Counter.
type Recent = expression.Recent

// Input is what a rule is evaluated for. A rule about the node needs no pod, and one about a pod no container. What is nil is unknown.
type Input struct {
	Now       time.Time
	Pod       *view.PodView
	Container string
	Node      *view.NodeView
	Recent    Recent
}

// Result is the answer of a rule.
type Result struct {
	Truth Truth
	// Value is that of the value expression if the answer is True; nil if there is none, or it is unknown or not finite.
	Value *float64
	// Next is the earliest instant at which the answer can change although the input stays the same. Zero for never.
	Next time.Time
	// Reason says why the answer is Unknown. Err is set if that is because the evaluation failed.
	Reason string
	Err    error
	// Cost is that of all expressions together.
	Cost uint64
}

// compiled has what a rule evaluates.
type compiled struct {
	expr, value *expression.RuleExpression // value may be nil
	onlyIf      []*expression.RuleExpression
	annotations []annotation
	// readsContainers is set if the answer is not known while the runtime does not answer.
	readsContainers bool
}

// Eval evaluates the rule. It does not panic.
func (r *Rule) Eval(in Input) Result {
	if r.compiled.readsContainers && in.Node != nil && in.Node.Runtime.Stale {
		return Result{Reason: reasonStale}
	}
	out := r.compiled.expr.Eval(expression.RuleInput(in))
	result := Result{Next: out.Next, Cost: out.Cost, Err: out.Err}
	switch {
	case out.Err != nil:
		result.Reason = "evaluation failed: " + out.Err.Error()
	case !out.IsKnown:
		result.Reason = "not known: " + out.Missing
	case !out.IsTrue:
		result.Truth = False
	default:
		result.Truth = True
		if r.compiled.value != nil {
			value := r.compiled.value.Eval(expression.RuleInput(in))
			result.Cost += value.Cost
			if value.IsKnown && !math.IsNaN(value.Number) && !math.IsInf(value.Number, 0) { // JSON has no others
				result.Value = &value.Number
			}
		}
	}
	return result
}

const reasonStale = "the container runtime does not answer"

// Allows reports whether the only_if expression of an action is true. It is an error if the answer is not known.
func (r *Rule) Allows(action int, in Input) (bool, error) {
	if action < 0 || action >= len(r.compiled.onlyIf) {
		return false, fmt.Errorf("rule %s has no action %d", r.Name, action)
	}
	onlyIf := r.compiled.onlyIf[action]
	if onlyIf == nil {
		return true, nil
	}
	if onlyIf.Reads()&expression.ReadsContainer != 0 && in.Node != nil && in.Node.Runtime.Stale {
		return false, fmt.Errorf("only_if: %s", reasonStale)
	}
	switch out := onlyIf.Eval(expression.RuleInput(in)); {
	case out.Err != nil:
		return false, fmt.Errorf("only_if: %w", out.Err)
	case !out.IsKnown:
		return false, fmt.Errorf("only_if: not known: %s", out.Missing)
	default:
		return out.IsTrue, nil
	}
}
