package status

// Size counts what the manager remembers of pods, in all its corners: a test cannot see a leak otherwise.
func (m *Manager) Size() map[string]int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.queue.mu.Lock()
	defer m.queue.mu.Unlock()
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	m.subscribers.mu.Lock()
	defer m.subscribers.mu.Unlock()
	waiting := 0
	for u := range m.queue.waiting {
		waiting += len(m.queue.waiting[u])
	}
	size := map[string]int{
		"entries": len(m.entries), "deleted": len(m.deleted),
		"waiting": waiting, "places": len(m.queue.place), "turns": len(m.queue.turns), "again": len(m.queue.again),
		"kept": len(m.kept.versions), "subscribers": len(m.subscribers.all),
	}
	for corner, count := range size {
		if count == 0 {
			delete(size, corner)
		}
	}
	return size
}
