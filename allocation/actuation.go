package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// accept allocates the pod's desired resources. What runtime and cgroup have until they are actuated is written with them
// (BUG-127).
func (m *Manager) accept(pod *v1.Pod) error {
	uid := podid.UID(pod.UID)
	m.actuationMu.Lock()
	defer m.actuationMu.Unlock()
	current, _ := m.AllocatedPod(pod)
	actuated := resize.Actuated(resize.Of(current), m.unactuated(uid))
	unactuated := resize.Unactuated(actuated, resize.Of(pod))
	return m.allocate(uid, newPodAllocation(&pod.Spec), map[podid.UID]resize.State{uid: unactuated})
}

// ActuatedState returns the quantities that the runtime and the cgroup of the pod last accepted. pod has its allocated
// resources. isAllocated reports that all of them are as allocated.
func (m *Manager) ActuatedState(pod *v1.Pod) (actuated resize.State, isAllocated bool) {
	unactuated := m.unactuated(podid.UID(pod.UID))
	return resize.Actuated(resize.Of(pod), unactuated), len(unactuated) == 0
}

// IsResizing reports whether the pod's cgroup does not have the allocated values yet.
func (m *Manager) IsResizing(uid podid.UID) bool {
	_, found := m.unactuated(uid)[resize.PodLevel]
	return found
}

func (m *Manager) unactuated(uid podid.UID) resize.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data.Unactuated[uid]
}

// SetActuated records what the runtime accepted for a container of the pod, or the pod's cgroup for resize.PodLevel. It is a
// no-op while no resize is in progress and the quantities are the allocated ones. Record a container before it is started: one
// that starts without a record would be restarted once more after a crash.
func (m *Manager) SetActuated(pod *v1.Pod, name string, quantities resize.Quantities) error {
	uid := podid.UID(pod.UID)
	if allocated, found := m.AllocatedPod(pod); len(m.unactuated(uid)) == 0 && (!found || resize.Of(allocated)[name] == quantities) {
		return nil
	}
	m.actuationMu.Lock()
	defer m.actuationMu.Unlock()
	allocated, _ := m.AllocatedPod(pod)
	unactuated := maps.Clone(m.unactuated(uid))
	if unactuated == nil {
		unactuated = resize.State{}
	}
	unactuated[name] = quantities
	return m.update(entries{Unactuated: map[podid.UID]resize.State{uid: resize.Unactuated(unactuated, resize.Of(allocated))}})
}
