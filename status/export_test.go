package status

import "maps"

// Size returns the number of pods that each part of the Manager holds, so that tests can detect leaks. Parts that hold none
// are left out.
func (m *Manager) Size() map[string]int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.queue.mu.Lock()
	defer m.queue.mu.Unlock()
	m.checkpoint.mu.Lock()
	defer m.checkpoint.mu.Unlock()
	m.subscribers.mu.Lock()
	defer m.subscribers.mu.Unlock()
	waiting := 0
	for p := range m.queue.waiting {
		waiting += len(m.queue.waiting[p])
	}
	size := map[string]int{
		"entries": len(m.entries), "deleted": len(m.deleted),
		"waiting": waiting, "waitingByUID": len(m.queue.waitingByUID), "syncing": len(m.queue.syncing), "again": len(m.queue.again), "held": len(m.queue.held),
		"checkpointed": len(m.checkpoint.versions), "subscribers": len(m.subscribers.all),
	}
	maps.DeleteFunc(size, func(_ string, count int) bool { return count == 0 })
	return size
}
