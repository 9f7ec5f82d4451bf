package status

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// Resize conditions live in a table of their own: setting one makes no version and no request. They reach the API with the
// next status that is derived, which asks for them with GetPodResizeConditions (SM-93).

// GetPodResizeConditions lists the pod's resize conditions, pending first.
func (m *Manager) GetPodResizeConditions(uid podid.UID) []v1.PodCondition {
	return m.Resize(uid).Conditions()
}

// Resize is where the pod's change of resources stands, as derive.Input wants it.
func (m *Manager) Resize(uid podid.UID) derive.Resize {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.resizes[uid]
}

// SetPodResizePendingCondition records that a resize waits, and reports whether that is news (SM-88).
func (m *Manager) SetPodResizePendingCondition(uid podid.UID, why derive.ResizeVerdict) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, news := m.resizes[uid].Pend(why, time.Now())
	m.resizes[uid] = next
	return news
}

// SetPodResizeInProgressCondition records that a resize is being applied. It returns the generation that is, and whether
// that is news (SM-89).
func (m *Manager) SetPodResizeInProgressCondition(uid podid.UID, why derive.ResizeVerdict) (generation int64, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, news := m.resizes[uid].Progress(why, time.Now())
	m.resizes[uid] = next
	generation, _ = next.InProgress()
	return generation, news
}

// ClearPodResizePendingCondition forgets a waiting resize, if there is one (SM-90).
func (m *Manager) ClearPodResizePendingCondition(uid podid.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setResizeLocked(uid, m.resizes[uid].Accept())
}

// ClearPodResizeInProgressCondition forgets a resize that is being applied. done is false when there was none (SM-90).
func (m *Manager) ClearPodResizeInProgressCondition(uid podid.UID) (generation int64, done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, generation, done := m.resizes[uid].Finish()
	m.setResizeLocked(uid, next)
	return generation, done
}

func (m *Manager) setResizeLocked(uid podid.UID, r derive.Resize) {
	if r == (derive.Resize{}) {
		delete(m.resizes, uid)
	} else {
		m.resizes[uid] = r
	}
}

// IsPodResizeDeferred reports whether a resize waits for room on the node (SM-91).
func (m *Manager) IsPodResizeDeferred(uid podid.UID) bool { return m.Resize(uid).IsDeferred() }

// IsPodResizeInfeasible reports whether a resize can never be done on this node (SM-91).
func (m *Manager) IsPodResizeInfeasible(uid podid.UID) bool { return m.Resize(uid).IsInfeasible() }

// BackfillPodResizeConditions takes over, after a restart, what the pods' published statuses say (SM-92).
func (m *Manager) BackfillPodResizeConditions(pods []*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range pods {
		if published := derive.ResizeOf(pod.Status.Conditions); published != (derive.Resize{}) {
			m.resizes[podid.UID(pod.UID)] = published
		}
	}
}
