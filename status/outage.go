package status

import (
	"time"

	"github.com/heraldnode/herald/podid"
)

// outage is how many requests in a row must fail for the first answer after them to be the end of an outage.
const outage = 5

// heard learns from the outcome of every request whether the server can be reached. Pods that wait because it could not
// come back with the first that succeeds, instead of one by one (F1).
func (m *Manager) heard(result outcome, err error) {
	if result == failed || result == ambiguous {
		if m.silence.Add(1) == outage {
			m.config.Logger.Warn("Requests to the API server keep failing; pod statuses are sent when it is back", "err", err)
		}
		return
	}
	if m.silence.Swap(0) >= outage {
		m.config.Logger.Info("The API server is back")
		m.endPauses(func(p *pause) bool { return p.why == failed || p.why == ambiguous })
	}
}

// endPauses gives a turn to the pods whose pause is one of those.
func (m *Manager) endPauses(which func(*pause) bool) {
	var woken []podid.UID
	m.mu.Lock()
	for uid, e := range m.entries {
		if e.pause.timer != nil && which(&e.pause) {
			e.pause.timer.Stop()
			e.pause.until = time.Time{}
			woken = append(woken, uid)
		}
	}
	m.mu.Unlock()
	for _, uid := range woken {
		m.again(uid)
	}
}
