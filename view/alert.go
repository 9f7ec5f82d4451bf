package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/heraldnode/herald/alert"
)

// AlertList is the answer of /herald/v1/alerts.
type AlertList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // AlertList
	// ID is where a watch continues after this list. 0 without a history.
	ID    uint64  `json:"id"`
	Items []Alert `json:"items"`
}

// Alert is an alert with what the agent will do about it.
type Alert struct {
	alert.Alert
	// NextAt is when the state changes by itself: when a pending alert fires, or a recovering one is resolved.
	NextAt *Time `json:"nextAt,omitempty"`
	// Deliveries say which receivers have been told of the present state.
	Deliveries []Delivery `json:"deliveries,omitempty"`
}

// Delivery is the delivery of an alert to one receiver.
type Delivery struct {
	Receiver string `json:"receiver"`
	// State is delivered, waiting or failing.
	State   string `json:"state"`
	Problem string `json:"problem,omitempty"`
	NextTry *Time  `json:"nextTry,omitempty"`
}

// RuleList is the answer of /herald/v1/rules.
type RuleList struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // RuleList
	Files      []RuleFile `json:"files"`
	Items      []Rule     `json:"items"`
}

// RuleFile is a file with rules.
type RuleFile struct {
	Path string `json:"path"`
	// State is ok or error. Rules counts those in use, which are of the last good version if the newest cannot be used.
	State      string `json:"state"`
	Rules      int    `json:"rules"`
	LastChange *Time  `json:"lastChange,omitempty"`
	Problem    string `json:"problem,omitempty"`
	// LastGood is when the version was read that is used instead.
	LastGood *Time `json:"lastGood,omitempty"`
}

// Rule is a rule and what became of it.
type Rule struct {
	Name string `json:"name"`
	// Group and File are where the rule stands. File is empty for a default rule.
	Group           string       `json:"group"`
	File            string       `json:"file,omitempty"`
	Scope           string       `json:"scope"`
	Expression      string       `json:"expression"`
	ForMs           int64        `json:"forMs"`
	KeepFiringForMs int64        `json:"keepFiringForMs"`
	Labels          alert.Labels `json:"labels,omitempty"`
	Actions         []string     `json:"actions,omitempty"`
	// MaxCost is the worst case of its expressions.
	MaxCost uint64 `json:"maxCost"`
	RuleState
}

// RuleState is the state of a rule.
type RuleState struct {
	// State is that of its worst alert: firing, pending, resolved, or inactive if it has none.
	State   string `json:"state"`
	Firing  int    `json:"firing"`
	Pending int    `json:"pending"`
	// Unknown counts objects for which the answer is not known.
	Unknown   int    `json:"unknown"`
	LastError string `json:"lastError,omitempty"`
}

// SilenceList is the answer of /herald/v1/silences.
type SilenceList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"` // SilenceList
	Items      []alert.Silence `json:"items"`
}

// ActionList is the answer of /herald/v1/actions.
type ActionList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // ActionList
	// Suspended says why no disruptive action is carried out, for example because too many pods fail at once. Empty if they are.
	Suspended      string `json:"suspended,omitempty"`
	SuspendedUntil *Time  `json:"suspendedUntil,omitempty"`
	// Items are the newest first.
	Items []Action `json:"items"`
}

// Action is an action that a rule asked for.
type Action struct {
	// ID is the number of the action. Empty if it was refused.
	ID   string `json:"id,omitempty"`
	At   *Time  `json:"at"`
	Type string `json:"type"`
	// Rule is the name of the rule, Alert the key of the alert, Object what is acted upon: namespace/pod, namespace/pod container, or the
	// node.
	Rule   string `json:"rule"`
	Alert  string `json:"alert"`
	Object string `json:"object"`
	// Decision is do, dry-run or refuse. Reason is a word for why it was refused, and Message says more.
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitempty"`
	// Outcome is running, done, refused, failed, unknown, helped or not-helped. Empty if it was refused before it began.
	Outcome string `json:"outcome,omitempty"`
	Message string `json:"message,omitempty"`
	TookMs  int64  `json:"tookMs,omitempty"`
}

// SortAlerts sorts alerts by their state, severity, and age: worst and oldest first.
func SortAlerts(alerts []Alert) {
	slices.SortFunc(alerts, func(a, b Alert) int {
		if order := cmp.Or(stateRank(a.State)-stateRank(b.State), severityRank(&a)-severityRank(&b), a.ActiveAt.Compare(b.ActiveAt)); order != 0 {
			return order
		}
		return strings.Compare(a.Key(), b.Key())
	})
}

func stateRank(state alert.State) int {
	switch state {
	case alert.Firing, alert.Recovering: // both are told as firing
		return 0
	case alert.Pending:
		return 1
	default:
		return 2
	}
}

func severityRank(a *Alert) int {
	if rank := slices.Index([]string{"critical", "warning", "info"}, a.Labels[alert.LabelSeverity]); rank >= 0 {
		return rank
	}
	return 3
}
