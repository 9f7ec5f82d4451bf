package pod

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// Manager is the node's address book: the pods that this node should run, and the mirrors that the API server shows.
//
// Any number of goroutines may use it. Readers never wait for each other, and a look-up allocates nothing. Every write is
// visible to whoever reads after it returned. Pods go in and come out by reference and are immutable from then on; to
// change one, hand in a changed copy.
//
// It tells nobody of a change. Whoever writes to it holds the pod and the order of effects that CFG-43..45 ask for, and
// wakes those who depend on it (the pod's worker, Mirrors.Wake) when the write is done. A subscription here would run
// strangers' code between a write and its effects, and could be lost only in more places.
//
// Make one with NewManager.
type Manager struct {
	mu      sync.RWMutex // guards the fields below, up to the blank line
	pods    map[podid.UID]*v1.Pod
	mirrors map[podid.MirrorUID]*v1.Pod
	names   map[podid.FullName]namesakes

	// uids is replaced, never changed, by a writer that holds mu. Readers need no lock.
	uids atomic.Pointer[translation]
}

// NewManager returns an empty Manager.
func NewManager() *Manager {
	m := &Manager{}
	m.SetPods(nil)
	return m
}

// AddPod files the pod under its UID and its full name: as a mirror when it carries the mirror annotation, else as a pod to
// run. A pod of that UID that is already held is replaced, whatever its name or role was: one UID is one pod.
func (m *Manager) AddPod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := edit{of: m}
	m.putLocked(pod, &change)
	change.publishLocked()
}

// UpdatePod is AddPod under the name that a reader expects where a known pod changes (PM-2). An update does not make the
// pod the newest of its namesakes.
func (m *Manager) UpdatePod(pod *v1.Pod) { m.AddPod(pod) }

// RemovePod forgets the pod of that UID, be it a mirror or not. Another pod of the same full name stays known by its name
// (PM-6, PM-7). Removing an unknown pod does nothing.
func (m *Manager) RemovePod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := edit{of: m}
	m.dropPodLocked(podid.UID(pod.UID), &change)
	m.dropMirrorLocked(podid.MirrorUID(pod.UID), &change)
	change.publishLocked()
}

// SetPods replaces everything that is held, as if the pods were added in their order (PM-8). No reader sees a part of it.
func (m *Manager) SetPods(pods []*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods = make(map[podid.UID]*v1.Pod, len(pods))
	m.mirrors = map[podid.MirrorUID]*v1.Pod{}
	m.names = make(map[podid.FullName]namesakes, len(pods))
	ignored := edit{of: m}
	for _, pod := range pods {
		m.putLocked(pod, &ignored)
		ignored.reset()
	}
	m.uids.Store(m.translateAllLocked())
}

func (m *Manager) putLocked(pod *v1.Pod, change *edit) {
	uid, mirrorUID := podid.UID(pod.UID), podid.MirrorUID(pod.UID)
	if podid.IsMirror(pod) {
		m.dropPodLocked(uid, change)
		m.names.put(m.mirrors[mirrorUID], pod, change)
		m.mirrors[mirrorUID] = pod
		return
	}
	m.dropMirrorLocked(mirrorUID, change)
	m.pods[uid] = pod
}
