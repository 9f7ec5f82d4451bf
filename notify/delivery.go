package notify

import (
	"time"

	"github.com/heraldnode/herald/alert"
)

// Deliveries returns for each alert, by its key, which receivers know its present state, in the order of their configuration. The log is
// left out.
func (n *Notifier) Deliveries() map[string][]alert.Delivery {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	deliveries := make(map[string][]alert.Delivery, len(n.items))
	for key, i := range n.items {
		for _, s := range n.sinks {
			if s.kind == KindLog {
				continue
			}
			if delivery, found := s.delivery(i, now); found {
				deliveries[key] = append(deliveries[key], delivery)
			}
		}
	}
	return deliveries
}

// delivery returns false if the sink is not to be told of the alert.
func (s *sink) delivery(i *item, now time.Time) (alert.Delivery, bool) {
	next, at, isRefresh := s.rhythm.due(i, s.index)
	if next == nothing || isRefresh {
		return alert.Delivery{Receiver: s.name, State: alert.Delivered}, i.told[s.index].Status != nothing
	}
	delivery := alert.Delivery{Receiver: s.name, State: alert.Waiting}
	u := s.units[s.unitKey(i)]
	if u == nil {
		u = &unit{}
	}
	if u.failures > 0 || s.health.failures > 0 {
		delivery.State = alert.Failing
		if s.health.lastErr != nil {
			delivery.Problem = s.health.lastErr.Error()
		}
	}
	if try := later(later(at, s.health.gate), later(u.retryAt, u.spacedUntil)); try.After(now) {
		delivery.NextTry = try
	}
	return delivery, true
}
