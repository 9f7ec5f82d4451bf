package notify

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heraldnode/herald/alert"
)

// message is what a sink is told about one alert.
type message struct {
	key     string
	alert   alert.Alert
	status  status
	episode episode
	missed  int
	// isRefresh says that the sink has acknowledged the same before.
	isRefresh bool
	// wasDoubtful is acknowledgement.IsDoubtful before the message was sent.
	wasDoubtful bool
}

// Annotations that are added to those of the alert.
const (
	annotationMissed = "missed" // number of episodes before this one that the sink was never told about
	annotationFlaps  = "flaps"  // how often it fired again within its episode
	annotationReason = "reason" // why it was resolved
)

const (
	maxAnnotation      = 4 << 10
	maxAllAnnotations  = 14 << 10
	maxAlertsPerBatch  = 64 // of at most 16 KiB
	truncatedIndicator = "..."
)

// annotations returns those of the alert within the limits of size, and what only the Notifier knows.
func (m *message) annotations() map[string]string {
	all := make(map[string]string, len(m.alert.Annotations)+1)
	size := 0
	for _, name := range slices.Sorted(maps.Keys(m.alert.Annotations)) {
		value := truncate(m.alert.Annotations[name], min(maxAnnotation, max(0, maxAllAnnotations-size-len(name))))
		if value != "" {
			all[name] = value
			size += len(name) + len(value)
		}
	}
	if m.missed > 0 {
		all[annotationMissed] = strconv.Itoa(m.missed)
	}
	if m.alert.Flaps > 0 {
		all[annotationFlaps] = strconv.Itoa(m.alert.Flaps)
	}
	if m.status == resolved && m.alert.Reason != "" {
		all[annotationReason] = truncate(m.alert.Reason, maxAnnotation)
	}
	return all
}

// truncate returns at most limit bytes of the text, and only whole characters.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	if limit < len(truncatedIndicator) {
		return ""
	}
	end := limit - len(truncatedIndicator)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + truncatedIndicator
}

// startsAt and endsAt never contradict each other, whatever happens to the clock: Alertmanager refuses an alert that ends before it
// starts.
func (m *message) startsAt(now time.Time) time.Time {
	if m.alert.StartsAt.IsZero() || m.alert.StartsAt.After(now) {
		return now.UTC().Round(0)
	}
	return m.alert.StartsAt.UTC().Round(0)
}

func (m *message) endsAt(now time.Time) time.Time {
	end := m.alert.EndsAt
	if end.IsZero() || end.After(now) {
		end = now
	}
	return later(end.UTC().Round(0), m.startsAt(now))
}

// generatorURL is where people find what caused the alert.
func (m *message) generatorURL(externalURL string) string {
	if link := m.alert.Annotations[alert.AnnotationHistoryURL]; isURL(link) {
		return link
	}
	return externalURL
}

// summary is one line about the alert.
func (m *message) summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(m.alert.Annotations[alert.AnnotationSummary]), "\n")
	return line
}

// groupOf returns the group of an alert, whose changes share messages: its rule and node.
func groupOf(labels alert.Labels) string { return groupLabels(labels).Key() }

func groupLabels(labels alert.Labels) alert.Labels {
	return alert.Labels{alert.LabelName: labels[alert.LabelName], alert.LabelNode: labels[alert.LabelNode]}
}
