package history

import (
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/transition"
)

// AlertChange is the content of an alert record: an alert fired or was resolved.
type AlertChange struct {
	// State is firing or resolved.
	State  alert.State  `json:"state"`
	Labels alert.Labels `json:"labels"`
	// Summary is the annotation of that name, cut at transition.MaxMessage bytes.
	Summary string   `json:"summary,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	// StartsAt is when the alert fired. It is the same in both records of an episode.
	StartsAt time.Time `json:"startsAt,omitzero"`
	Episode  uint64    `json:"episode,omitempty"`
	Flaps    int       `json:"flaps,omitempty"`
	// Reason says why it was resolved, if not because its expression is false.
	Reason string `json:"reason,omitempty"`
	// Muted is set if a silence or an inhibition keeps the alert from being told.
	Muted bool `json:"muted,omitempty"`
}

// alertRecord is an alert that is not written yet.
type alertRecord struct {
	ref    PodRef
	change AlertChange
	at     time.Time
}

// maxAlerts bounds the alerts that wait for the writer.
const maxAlerts = 4096

// AlertChanged records that an alert fired or was resolved at that time. It does not block.
func (l *Log) AlertChanged(a *alert.Alert, at time.Time) {
	record := alertRecord{at: at, change: AlertChange{
		State: alert.Resolved, Labels: a.Labels, Value: a.Value, StartsAt: a.StartsAt.Round(0).UTC(), Episode: a.Episode, Flaps: a.Flaps,
		Reason: a.Reason, Muted: a.Mute.IsMuted(), Summary: transition.Truncate(a.Annotations[alert.AnnotationSummary], transition.MaxMessage),
	}}
	if a.IsFiring() {
		record.change.State = alert.Firing
	}
	if name := a.Labels[alert.LabelPod]; name != "" {
		record.ref = PodRef{Namespace: a.Labels[alert.LabelNamespace], Name: name}
	}
	if !l.journal.addAlert(record) {
		l.metrics.dropped.Inc()
	}
}

func (j *journal) addAlert(added alertRecord) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending.alerts) >= maxAlerts {
		return false
	}
	j.pending.alerts = append(j.pending.alerts, added)
	j.ready.Set()
	return true
}

func (w *writer) addAlert(added *alertRecord) {
	w.batch.isUrgent = true
	w.add(added.at, &Record{Kind: KindAlert, PodRef: added.ref, Alert: &added.change})
}
