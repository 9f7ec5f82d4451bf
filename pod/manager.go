package pod

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// Manager is the node's address book: the pods that this node should run, and the mirrors that the API server shows.
//
// Any number of goroutines may use it. Readers never wait for each other, and a look-up allocates nothing. Pods go in
// and come out by reference and are immutable from then on; to change one, hand in a changed copy.
//
// It tells nobody of a change. Whoever writes to it knows the pod and the order of effects (CFG-43..45) and, when the
// write is done, wakes those who depend on it: the pod's worker, Mirrors.Wake. A call-back from here would have to
// guess that order, and a forgotten wake-up does no lasting harm: Mirrors looks at all names from time to time.
//
// Make one with NewManager.
type Manager struct {
	mu      sync.RWMutex // guards pods, mirrors, names and byName; uids is written under it
	pods    map[podid.UID]*v1.Pod
	mirrors map[podid.MirrorUID]*v1.Pod
	names   map[podid.FullName]namesakes
	byName  map[podid.FullName]*v1.Pod  // what each name finds among the pods to run; small, for quick look-ups
	uids    atomic.Pointer[translation] // read without mu
}

// NewManager returns an empty Manager.
func NewManager() *Manager {
	m := &Manager{}
	m.SetPods(nil)
	return m
}

// AddPod files the pod under its UID and its full name: as a mirror if it carries the mirror annotation, else as a
// pod to run (PM-2..4). One UID is one pod: whatever was held under it is replaced, even if it had another name or
// role.
func (m *Manager) AddPod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.heldLocked(pod.UID)
	m.putLocked(old, pod)
	m.retranslateLocked(old, pod)
}

// UpdatePod does what AddPod does (PM-2); the name is for the reader. A pod that is updated keeps its place among its
// namesakes.
func (m *Manager) UpdatePod(pod *v1.Pod) { m.AddPod(pod) }

// RemovePod forgets the pod of that UID, mirror or not. A namesake with another UID keeps, or gets back, the full name
// (PM-6, PM-7). Removing an unknown pod does nothing.
func (m *Manager) RemovePod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.heldLocked(pod.UID)
	if old == nil {
		return
	}
	m.dropLocked(old)
	m.retranslateLocked(old, nil)
}

// SetPods replaces all that is held, as if the pods were added in their order (PM-8). No reader sees a part of it,
// but for the UID translation, which changes an instant before the rest.
func (m *Manager) SetPods(pods []*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods = make(map[podid.UID]*v1.Pod, len(pods))
	m.mirrors = map[podid.MirrorUID]*v1.Pod{}
	m.names = make(map[podid.FullName]namesakes, len(pods))
	m.byName = make(map[podid.FullName]*v1.Pod, len(pods))
	for _, pod := range pods {
		m.putLocked(m.heldLocked(pod.UID), pod)
	}
	m.translateAllLocked()
}

// heldLocked is the pod or mirror of that UID, or nil. No UID is ever held in both roles.
func (m *Manager) heldLocked(uid types.UID) *v1.Pod {
	if pod, found := m.pods[podid.UID(uid)]; found {
		return pod
	}
	return m.mirrors[podid.MirrorUID(uid)]
}

// putLocked files pod in the place of old, which has the same UID or is nil.
func (m *Manager) putLocked(old, pod *v1.Pod) {
	name, isMirror := podid.FullNameOf(pod), podid.IsMirror(pod)
	if old != nil && podid.FullNameOf(old) == name && podid.IsMirror(old) == isMirror {
		m.names[name] = m.names[name].replacing(old, pod)
	} else {
		if old != nil {
			m.dropLocked(old)
		}
		m.names[name] = m.names[name].with(pod)
	}
	if isMirror {
		m.mirrors[podid.MirrorUID(pod.UID)] = pod
	} else {
		m.pods[podid.UID(pod.UID)] = pod
		m.byName[name] = m.names[name].pod
	}
}

func (m *Manager) dropLocked(held *v1.Pod) {
	name := podid.FullNameOf(held)
	rest := m.names[name].without(held)
	if m.names[name] = rest; len(rest.arrivals) == 0 {
		delete(m.names, name)
	}
	if podid.IsMirror(held) {
		delete(m.mirrors, podid.MirrorUID(held.UID))
		return
	}
	delete(m.pods, podid.UID(held.UID))
	if m.byName[name] = rest.pod; rest.pod == nil {
		delete(m.byName, name)
	}
}
