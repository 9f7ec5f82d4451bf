package history

import (
	"time"

	"github.com/heraldnode/herald/transition"
)

// SourceProblem is the content of a source record: a fault in the input of a pod source, or its end.
type SourceProblem struct {
	// Source is file, http or api.
	Source string `json:"source"`
	// Location is a file, a URL, or a pod. Line and Field are the position in it, if it is known.
	Location string `json:"location,omitempty"`
	Line     int    `json:"line,omitempty"`
	Field    string `json:"field,omitempty"`
	// Message is cut at transition.MaxMessage bytes.
	Message string `json:"message"`
	// Unavailable is set if the source as a whole cannot be read: its pods are kept.
	Unavailable bool `json:"unavailable,omitempty"`
	// Resolved is set if the problem is gone. Otherwise it appeared.
	Resolved bool `json:"resolved,omitempty"`
}

// sourceChange is a problem that is not written yet.
type sourceChange struct {
	problem SourceProblem
	at      time.Time
}

// maxSourceChanges bounds the problems that wait for the writer.
const maxSourceChanges = 1024

// SourceChanged records that a problem of a pod source appeared or was resolved. It does not block.
func (l *Log) SourceChanged(problem SourceProblem) {
	problem.Message = transition.Truncate(problem.Message, transition.MaxMessage)
	if !l.journal.addSource(sourceChange{problem: problem, at: time.Now()}) {
		l.metrics.dropped.Inc()
	}
}

// addSource records a problem. Problems that come and go all the time are dropped and counted.
func (w *writer) addSource(change *sourceChange) {
	if !w.sources.take(change.at) {
		w.log.metrics.dropped.Inc()
		return
	}
	w.add(change.at, &Record{Kind: KindSource, Source: &change.problem})
}
