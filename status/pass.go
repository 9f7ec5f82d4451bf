package status

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// rememberDeleted is how long a worker may be late with a status for a pod whose object we deleted.
const rememberDeleted = 10 * time.Minute

// fullPasses compares all pods with what the API server says, now and then, until ctx ends.
func (m *Manager) fullPasses(ctx context.Context) {
	ticker := time.NewTicker(m.config.SyncPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.forgetDeleted(time.Now())
			m.pass()
		}
	}
}

func (m *Manager) forgetDeleted(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.deleted, func(_ podid.UID, at time.Time) bool { return now.Sub(at) > rememberDeleted })
}

// pass gives a turn to every pod for which something may have changed since its last one (SM-52, SM-53). Pods in back-off
// come by themselves.
func (m *Manager) pass() {
	type seen struct {
		uid     podid.UID
		pod     *v1.Pod
		version uint64
		settled settled
	}
	now := time.Now()
	m.mu.RLock()
	entries := make([]seen, 0, len(m.entries))
	for uid, e := range m.entries {
		if !now.Before(e.pause.until) {
			entries = append(entries, seen{uid, e.pod, e.version, e.settled})
		}
	}
	m.mu.RUnlock()
	for _, e := range entries {
		if e.settled != (settled{known: m.knownCopy(e.uid, e.pod), version: e.version}) {
			m.again(e.uid)
		}
	}
}
