package allocation

// Size returns the number of pods that the Manager holds anything for, so that tests can detect leaks.
func (m *Manager) Size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.data.Allocations) + len(m.data.ResizeStatuses) + len(m.resizes)
}

// HoldWrites keeps the checkpoint from being written until release is called. pending returns the number of changes that wait.
func (m *Manager) HoldWrites() (pending func() int, release func()) {
	m.saveMu.Lock()
	return func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.pending)
	}, m.saveMu.Unlock
}
