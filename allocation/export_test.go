package allocation

// Size returns the number of pods that the Manager holds anything for, so that tests can detect leaks.
func (m *Manager) Size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.data.Allocations) + len(m.data.ResizeStatuses) + len(m.resizes)
}
