package history

import (
	"time"

	"github.com/heraldnode/herald/transition"
)

// ActionRecord is the content of an action record: a decision about an action of a rule, its outcome, or whether it helped. Records of the
// same action have the same ID.
type ActionRecord struct {
	// ID is the number of the action in the ledger; 0 if it was refused.
	ID   uint64 `json:"id,omitempty"`
	Type string `json:"type"`
	// Rule is the name of the rule, Alert the key of the alert, Policy a description of the limits.
	Rule   string `json:"rule,omitempty"`
	Alert  string `json:"alert"`
	Policy string `json:"policy,omitempty"`
	// Target is the name of the webhook or program.
	Target    string `json:"target,omitempty"`
	Container string `json:"container,omitempty"`
	// Decision is do, dry-run or refuse.
	Decision string `json:"decision"`
	// Reason is why it was refused, as a word.
	Reason string `json:"reason,omitempty"`
	// Outcome is running, done, refused, failed, unknown, helped or not-helped. Empty if it was refused before it began.
	Outcome string `json:"outcome,omitempty"`
	// Message says more about the refusal or the outcome. It is cut at transition.MaxMessage bytes.
	Message string `json:"message,omitempty"`
	TookMs  int64  `json:"tookMs,omitempty"`
}

// actionRecord is an action that is not written yet.
type actionRecord struct {
	ref    PodRef
	record ActionRecord
	at     time.Time
}

// maxActions bounds the actions that wait for the writer.
const maxActions = 1024

// ActionRecorded records a decision about an action of a rule, or what became of it. The pod is empty for actions upon the node. It does
// not block.
func (l *Log) ActionRecorded(namespace, pod string, record ActionRecord, at time.Time) {
	record.Message = transition.Truncate(record.Message, transition.MaxMessage)
	if !l.journal.addAction(actionRecord{ref: PodRef{Namespace: namespace, Name: pod}, record: record, at: at}) {
		l.metrics.dropped.Inc()
	}
}

func (j *journal) addAction(added actionRecord) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending.actions) >= maxActions {
		return false
	}
	j.pending.actions = append(j.pending.actions, added)
	j.ready.Set()
	return true
}

func (w *writer) addAction(added *actionRecord) {
	w.batch.isUrgent = true
	w.add(added.at, &Record{Kind: KindAction, PodRef: added.ref, Action: &added.record})
}
