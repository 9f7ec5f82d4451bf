package rule

import (
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/remedy"
)

// Scope is the kind of object that a rule is about. A rule has one alert for each of them.
type Scope string

// Scopes.
const (
	Node      Scope = "node"
	Pod       Scope = "pod"
	Container Scope = "container"
)

// Trigger is a set of changes after which a rule is evaluated.
type Trigger uint8

// Triggers. Each is about one object, except OnNode and OnSource, after which rules of any scope are evaluated for all their objects. When
// view.Runtime.Stale changes, all rules with OnStatus are, because answers about containers depend on it.
const (
	OnStatus Trigger = 1 << iota // a version of a pod's status
	OnProbe                      // an answer of a probe
	OnSync                       // an acknowledgement or a refusal of the API server
	OnLoad                       // a sample of the load
	OnNode                       // a change of the node, its runtime or its connection to the API server
	OnSource                     // a change of a source of pods
	OnTime                       // an instant that an evaluation named
)

// Rule is a compiled rule. It is immutable and safe for concurrent use.
type Rule struct {
	// Name is the alert name. Group and File are where the rule stands; File is empty for a default rule.
	Name, Group, File string
	Scope             Scope
	For, KeepFiring   time.Duration
	// Labels are those of the rule itself. Name and Labels identify it: an edit of anything else continues its alerts.
	Labels    alert.Labels
	Condition *alert.Condition
	Actions   []Action
	// Triggers are the changes after which it is evaluated.
	Triggers Trigger
	// MaxCost is the worst case of its expressions.
	MaxCost uint64
	Text    Text

	compiled compiled
}

// Text is a rule as it is written.
type Text struct {
	// Line is that of the rule in its file.
	Line int
	// Expr and Value are its expressions. Value may be empty.
	Expr, Value string
	// Annotations are templates.
	Annotations map[string]string
}

// ID returns what identifies the rule: its name and its labels.
func (r *Rule) ID() string { return r.Name + r.Labels.Key() }

// Costliest returns the operand of && or || of the expression that costs most, and its worst case.
func (r *Rule) Costliest() (text string, maxCost uint64) {
	part := r.compiled.expr.Costliest()
	return part.Text, part.MaxCost
}

// Action is an action of a rule.
type Action struct {
	remedy.Policy
	// OnlyIf is the text of the expression that must be true; empty for none. Rule.Allows evaluates it.
	OnlyIf string
}

// Inhibition mutes alerts that Target matches while one that Source matches fires. An alert never inhibits itself.
type Inhibition struct{ Source, Target []alert.Matcher }

// Truth is the answer of an expression.
type Truth uint8

// Answers. Unknown means that a fact is missing.
const (
	Unknown Truth = iota
	False
	True
)

// String returns the answer as a word.
func (t Truth) String() string {
	switch t {
	case False:
		return "false"
	case True:
		return "true"
	default:
		return "unknown"
	}
}
