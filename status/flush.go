package status

import "context"

// flush waits until the senders have sent all that can be sent, or ctx ends.
func (m *Manager) flush(ctx context.Context) {
	m.endPauses(func(p *pause) bool { return p.why != refused && p.why != throttled })
	for _, e := range m.snapshot((*entry).isOpen) {
		m.enqueue(e.uid, e.urgencyNow())
	}
	for ctx.Err() == nil && m.isSending() {
		select {
		case <-m.progress:
		case <-ctx.Done():
		}
	}
}

// isSending reports whether there is a pod that still can be sent.
func (m *Manager) isSending() bool {
	onItsWay := func(e *entry) bool {
		_, isDeleted := m.deleted[e.uid]
		return e.isOnItsWay() && !isDeleted
	}
	for _, e := range m.snapshot(onItsWay) {
		if m.aim(&job{entry: e}) {
			return true
		}
	}
	return false
}

// snapshot copies the entries that are wanted, so that they can be looked at without the lock.
func (m *Manager) snapshot(wanted func(*entry) bool) []entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var entries []entry
	for _, e := range m.entries {
		if wanted(e) {
			entries = append(entries, *e)
		}
	}
	return entries
}

// endTimers leaves nothing behind that would wake up.
func (m *Manager) endTimers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.pause.end()
	}
}
