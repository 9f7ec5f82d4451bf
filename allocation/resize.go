package allocation

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// ResizeState returns the state of the pod's resize, as derive.Input takes it.
func (m *Manager) ResizeState(uid podid.UID) derive.Resize {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resizes[uid]
}

// SetPodResizePendingCondition records that a resize is pending, and reports whether the condition changed (SM-88).
func (m *Manager) SetPodResizePendingCondition(uid podid.UID, condition derive.ResizeCondition) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resizes[uid], changed = m.resizes[uid].WithPending(condition, time.Now())
	return changed
}

// ClearPodResizePendingCondition removes the condition that a resize is pending, if there is one (SM-90).
func (m *Manager) ClearPodResizePendingCondition(uid podid.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setResizeLocked(uid, m.resizes[uid].WithoutPending())
}

// SetPodResizeInProgressCondition records that a resize is in progress. It returns the generation that is being applied,
// and whether the condition changed (SM-89).
func (m *Manager) SetPodResizeInProgressCondition(uid podid.UID, condition derive.ResizeCondition) (generation int64, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	resize, changed := m.resizes[uid].WithInProgress(condition, time.Now())
	m.resizes[uid] = resize
	generation, _ = resize.InProgress()
	return generation, changed
}

// ClearPodResizeInProgressCondition removes the condition that a resize is in progress. It returns the generation that was
// applied; found is false if no resize was in progress (SM-90).
func (m *Manager) ClearPodResizeInProgressCondition(uid podid.UID) (generation int64, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	resize, generation, found := m.resizes[uid].WithoutInProgress()
	m.setResizeLocked(uid, resize)
	return generation, found
}

// BackfillPodResizeConditions restores the resize conditions of pods from their published statuses after a restart (SM-92).
func (m *Manager) BackfillPodResizeConditions(pods []*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range pods {
		if resize := derive.ResizeFromConditions(pod.Status.Conditions); resize != (derive.Resize{}) {
			m.resizes[podid.UID(pod.UID)] = resize
		}
	}
}

func (m *Manager) setResizeLocked(uid podid.UID, resize derive.Resize) {
	if resize == (derive.Resize{}) {
		delete(m.resizes, uid)
	} else {
		m.resizes[uid] = resize
	}
}
