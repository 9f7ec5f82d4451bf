package pod

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// GetPodByUID finds a pod to run by its own UID, never by that of a mirror (PM-12).
func (m *Manager) GetPodByUID(uid podid.UID) (*v1.Pod, bool) {
	m.mu.RLock()
	pod, found := m.pods[uid]
	m.mu.RUnlock()
	return pod, found
}

// GetPodByFullName finds a pod to run, never a mirror (PM-12). Of several with that name it is the newest arrival
// (PM-7).
func (m *Manager) GetPodByFullName(name podid.FullName) (*v1.Pod, bool) {
	m.mu.RLock()
	pod, found := m.byName[name]
	m.mu.RUnlock()
	return pod, found
}

// GetPodByName is GetPodByFullName for those who have the parts.
func (m *Manager) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	return m.GetPodByFullName(podid.FullName{Namespace: namespace, Name: name})
}

// GetMirrorPodByPod finds the mirror that stands under the static pod's full name. An API pod has none (PM-13). The
// mirror may be that of an earlier manifest; podid.Reflects tells.
func (m *Manager) GetMirrorPodByPod(pod *v1.Pod) (*v1.Pod, bool) {
	_, mirror := m.GetStaticPodAndMirrorPod(podid.FullNameOf(pod))
	if mirror == nil || !podid.IsStatic(pod) {
		return nil, false
	}
	return mirror, true
}

// GetPodByMirrorPod finds the static pod that the mirror stands for; never an API pod of the same name (PM-13).
func (m *Manager) GetPodByMirrorPod(mirror *v1.Pod) (*v1.Pod, bool) {
	static, _ := m.GetStaticPodAndMirrorPod(podid.FullNameOf(mirror))
	return static, static != nil
}

// GetPodAndMirrorPod completes the pair of which one half is given: for a mirror the static pod or nil, itself and
// true; for any other pod itself, its mirror or nil, and false (PM-14).
func (m *Manager) GetPodAndMirrorPod(given *v1.Pod) (pod, mirror *v1.Pod, wasMirror bool) {
	isMirror := podid.IsMirror(given)
	if !isMirror && !podid.IsStatic(given) {
		return given, nil, false
	}
	static, mirror := m.GetStaticPodAndMirrorPod(podid.FullNameOf(given))
	if isMirror {
		return static, given, true
	}
	return given, mirror, false
}

// GetStaticPodAndMirrorPod returns both halves of a name as they are at one instant; nil for one that is not there.
func (m *Manager) GetStaticPodAndMirrorPod(name podid.FullName) (static, mirror *v1.Pod) {
	m.mu.RLock()
	sharers := m.names[name]
	m.mu.RUnlock()
	return sharers.static, sharers.mirror
}
