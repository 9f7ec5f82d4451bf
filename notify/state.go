package notify

import "time"

// Kinds of sinks.
const (
	KindAlertmanager = "alertmanager"
	KindWebhook      = "webhook"
	KindEvent        = "event"
	KindLog          = "log"
)

// SinkState is how a sink does. Its JSON is part of the query API; fields are only added.
type SinkState struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Waiting counts the alerts whose present state the sink has not acknowledged.
	Waiting int `json:"waiting"`
	// IsFailing is set if the sink has accepted nothing for 10 minutes, or has rejected an alert for as long, although there is something
	// to deliver.
	IsFailing bool `json:"failing"`
	// LastSuccess is when it accepted a message last in this run of the agent.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// Failures counts the requests that failed since then, the first at FailingSince.
	Failures     int       `json:"failures,omitempty"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	// LastError is the newest error, also after a success.
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
	// NextAttempt is when something is sent next, if it is known.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
}

func (s *sink) state(items map[string]*item, now time.Time) SinkState {
	found := s.scan(items, now)
	state := SinkState{
		Name: s.name, Kind: s.kind, Waiting: found.waiting, IsFailing: found.failing,
		LastSuccess: s.health.lastSuccess, Failures: s.health.failures, FailingSince: s.health.failingSince, LastErrorAt: s.health.lastErrAt,
		NextAttempt: found.next,
	}
	if s.health.lastErr != nil {
		state.LastError = s.health.lastErr.Error()
	}
	if len(found.ready) > 0 {
		state.NextAttempt = later(now, s.health.gate)
	}
	return state
}

// Sinks returns the state of all sinks, in the order of their configuration; the log is the last.
func (n *Notifier) Sinks() []SinkState {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	states := make([]SinkState, len(n.sinks))
	for i, s := range n.sinks {
		states[i] = s.state(n.items, now)
	}
	return states
}

// Failing returns the number of sinks that have failed for 10 minutes although there is something to deliver.
func (n *Notifier) Failing() int {
	failing := 0
	for _, state := range n.Sinks() {
		if state.IsFailing {
			failing++
		}
	}
	return failing
}
