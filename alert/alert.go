package alert

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is the state of an alert.
type State string

// States. An alert that does not exist is inactive.
const (
	Pending    State = "pending"    // the expression is true, but not for long enough
	Firing     State = "firing"     // the expression is true
	Recovering State = "recovering" // the expression is false, but not for long enough; told as firing
	Resolved   State = "resolved"   // it fired, and does not any more
)

// Names of the labels that every alert has, as far as they apply to its object.
const (
	LabelName      = "alertname"
	LabelJob       = "job" // herald
	LabelInstance  = "instance"
	LabelNode      = "node"
	LabelNamespace = "namespace"
	LabelPod       = "pod"
	LabelContainer = "container"
	LabelScope     = "scope" // node, pod or container
	LabelSeverity  = "severity"
)

// Names of the annotations that the agent adds.
const (
	AnnotationSummary    = "summary"
	AnnotationExplain    = "explain"
	AnnotationLastLog    = "last_log"
	AnnotationHistoryURL = "history_url"
)

// Labels identify an alert. There is no UID among them: a pod that is replaced under its name continues its alert.
type Labels map[string]string

// Key returns the labels as text, in the order of their names: `{alertname="X",node="n1"}`. Equal labels have equal keys.
func (l Labels) Key() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(l)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(strconv.Quote(l[name]))
	}
	b.WriteByte('}')
	return b.String()
}

// Alert is an alert as it is now. Its JSON is that of the query API, the history and the checkpoint; fields are only added.
type Alert struct {
	Labels      Labels            `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	State       State             `json:"state"`
	// Value is that of the rule's value expression when the alert changed last; nil if there is none or it is unknown.
	Value *float64 `json:"value,omitempty"`
	// ActiveAt is when the expression became true: the time of the transition, not of its evaluation. StartsAt is when the alert fired,
	// EndsAt when it was resolved.
	ActiveAt time.Time `json:"activeAt,omitzero"`
	StartsAt time.Time `json:"startsAt,omitzero"`
	EndsAt   time.Time `json:"endsAt,omitzero"`
	// Episode identifies the time from firing to resolved: it is when the alert fired in milliseconds since 1970, or the number after that
	// of the last episode. A pending alert has the episode that was resolved last, and its times; 0 if there is none. Flaps counts how
	// often it fired again within the same episode.
	Episode uint64 `json:"episode,omitempty"`
	Flaps   int    `json:"flaps,omitempty"`
	// Reason says why it was resolved, if not because its expression is false: the object is gone, the rule was removed.
	Reason string  `json:"reason,omitempty"`
	Freeze *Freeze `json:"frozen,omitempty"`
	Mute   Mute    `json:"mute,omitzero"`
	// Condition is the condition of the Node that shows the alert, if the rule has one.
	Condition *Condition `json:"condition,omitempty"`
}

// Freeze says that the truth of the expression is not known. The state does not change meanwhile.
type Freeze struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// Mute says why a firing alert is neither told nor acted upon.
type Mute struct {
	// SilencedBy has the IDs of silences, InhibitedBy the keys of firing alerts, at most 16.
	SilencedBy  []string `json:"silencedBy,omitempty"`
	InhibitedBy []string `json:"inhibitedBy,omitempty"`
}

// IsMuted reports whether anything mutes the alert.
func (m Mute) IsMuted() bool { return len(m.SilencedBy) > 0 || len(m.InhibitedBy) > 0 }

// Condition names a condition of the Node.
type Condition struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
}

// IsFiring reports whether the alert is told as firing.
func (a *Alert) IsFiring() bool { return a.State == Firing || a.State == Recovering }

// Key identifies the alert.
func (a *Alert) Key() string { return a.Labels.Key() }
