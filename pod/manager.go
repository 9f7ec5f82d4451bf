package pod

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// Manager holds the pods that this node should run, and their mirror pods in the API server.
//
// It is safe for concurrent use. Readers do not block each other, and lookups do not allocate. Pods are stored by reference
// and immutable from then on; to change one, pass a modified copy.
//
// Manager notifies no one of a change. The writer knows the order of effects (CFG-43..45) and notifies the pod worker and
// mirror.Reconciler.Enqueue after the write. A missed notification does no lasting harm: the Reconciler resyncs periodically.
//
// Use NewManager to create one.
type Manager struct {
	mu      sync.RWMutex // guards pods, mirrors, names and byName; uids is written under it
	pods    map[podid.UID]*v1.Pod
	mirrors map[podid.MirrorUID]*v1.Pod
	names   map[podid.FullName]nameEntry
	byName  map[podid.FullName]*v1.Pod     // nameEntry.pod of each name; a smaller map for faster lookups
	uids    atomic.Pointer[uidTranslation] // read without mu
}

// NewManager returns an empty Manager.
func NewManager() *Manager {
	m := &Manager{}
	m.SetPods(nil)
	return m
}

// AddPod stores the pod under its UID and full name: as a mirror pod if it has the mirror annotation, otherwise as a pod to
// run (PM-2..4). It replaces a pod with the same UID, even one with another name or role.
func (m *Manager) AddPod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.lookupLocked(pod.UID)
	m.insertLocked(old, pod)
	m.updateTranslationLocked(old, pod)
}

// UpdatePod does the same as AddPod (PM-2). An updated pod keeps its position among the pods of the same name.
func (m *Manager) UpdatePod(pod *v1.Pod) { m.AddPod(pod) }

// RemovePod removes the pod with this UID, mirror pod or not. Another pod with the same name keeps, or gets back, the name
// (PM-6, PM-7). Removing an unknown pod does nothing.
func (m *Manager) RemovePod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.lookupLocked(pod.UID)
	if old == nil {
		return
	}
	m.removeLocked(old)
	m.updateTranslationLocked(old, nil)
}

// SetPods replaces all pods, as if the new ones were added in order (PM-8). Readers see the old or the new set, never a
// mixture. Only the UID translation changes slightly before the rest.
func (m *Manager) SetPods(pods []*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods = make(map[podid.UID]*v1.Pod, len(pods))
	m.mirrors = map[podid.MirrorUID]*v1.Pod{}
	m.names = make(map[podid.FullName]nameEntry, len(pods))
	m.byName = make(map[podid.FullName]*v1.Pod, len(pods))
	for _, pod := range pods {
		m.insertLocked(m.lookupLocked(pod.UID), pod)
	}
	m.rebuildTranslationLocked()
}

// lookupLocked returns the pod or mirror pod with this UID, or nil. No UID is stored in both roles.
func (m *Manager) lookupLocked(uid types.UID) *v1.Pod {
	if pod, found := m.pods[podid.UID(uid)]; found {
		return pod
	}
	return m.mirrors[podid.MirrorUID(uid)]
}

// insertLocked stores the pod in place of old, which has the same UID or is nil.
func (m *Manager) insertLocked(old, pod *v1.Pod) {
	name, isMirror := podid.FullNameOf(pod), podid.IsMirror(pod)
	if old != nil && podid.FullNameOf(old) == name && podid.IsMirror(old) == isMirror {
		m.names[name] = m.names[name].replace(old, pod)
	} else {
		if old != nil {
			m.removeLocked(old)
		}
		m.names[name] = m.names[name].add(pod)
	}
	if isMirror {
		m.mirrors[podid.MirrorUID(pod.UID)] = pod
	} else {
		m.pods[podid.UID(pod.UID)] = pod
		m.byName[name] = m.names[name].pod
	}
}

func (m *Manager) removeLocked(pod *v1.Pod) {
	name := podid.FullNameOf(pod)
	entry := m.names[name].remove(pod)
	if m.names[name] = entry; len(entry.arrivals) == 0 {
		delete(m.names, name)
	}
	if podid.IsMirror(pod) {
		delete(m.mirrors, podid.MirrorUID(pod.UID))
		return
	}
	delete(m.pods, podid.UID(pod.UID))
	if m.byName[name] = entry.pod; entry.pod == nil {
		delete(m.byName, name)
	}
}

// GetPodByUID returns the pod to run with this UID. It never returns a mirror pod (PM-12).
func (m *Manager) GetPodByUID(uid podid.UID) (*v1.Pod, bool) {
	m.mu.RLock()
	pod, found := m.pods[uid]
	m.mu.RUnlock()
	return pod, found
}

// GetPodByFullName returns the pod to run with this name. It never returns a mirror pod (PM-12). If several pods have the
// name, it returns the one that arrived last (PM-7).
func (m *Manager) GetPodByFullName(name podid.FullName) (*v1.Pod, bool) {
	m.mu.RLock()
	pod, found := m.byName[name]
	m.mu.RUnlock()
	return pod, found
}

// GetPodByName is GetPodByFullName for a separate namespace and name.
func (m *Manager) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	return m.GetPodByFullName(podid.FullName{Namespace: namespace, Name: name})
}

// GetMirrorPodByPod returns the mirror pod with the static pod's full name. An API pod has none (PM-13). The mirror pod may
// belong to an earlier manifest; see podid.IsMirrorOf.
func (m *Manager) GetMirrorPodByPod(pod *v1.Pod) (*v1.Pod, bool) {
	_, mirror := m.GetStaticPodAndMirrorPod(podid.FullNameOf(pod))
	if mirror == nil || !podid.IsStatic(pod) {
		return nil, false
	}
	return mirror, true
}

// GetPodByMirrorPod returns the static pod with the mirror pod's full name. It never returns an API pod (PM-13).
func (m *Manager) GetPodByMirrorPod(mirror *v1.Pod) (*v1.Pod, bool) {
	static, _ := m.GetStaticPodAndMirrorPod(podid.FullNameOf(mirror))
	return static, static != nil
}

// GetPodAndMirrorPod returns the pair that the given pod belongs to (PM-14). For a mirror pod it returns the static pod or
// nil, the mirror pod itself, and true. For another pod it returns the pod itself, its mirror pod or nil, and false.
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

// GetStaticPodAndMirrorPod returns a consistent snapshot of the pair with this name; nil for a missing half.
func (m *Manager) GetStaticPodAndMirrorPod(name podid.FullName) (static, mirror *v1.Pod) {
	m.mu.RLock()
	entry := m.names[name]
	m.mu.RUnlock()
	return entry.static, entry.mirror
}

// GetPods returns the pods to run, without mirror pods, in no particular order (PM-15). The slice belongs to the caller.
func (m *Manager) GetPods() []*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.AppendSeq(make([]*v1.Pod, 0, len(m.pods)), maps.Values(m.pods))
}

// GetPodsAndMirrorPods returns a consistent snapshot of the pods to run, the mirror pods, and the names of mirror pods
// without static pod (PM-15), in no particular order.
func (m *Manager) GetPodsAndMirrorPods() (pods, mirrors []*v1.Pod, orphanedMirrors []podid.FullName) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pods = slices.AppendSeq(make([]*v1.Pod, 0, len(m.pods)), maps.Values(m.pods))
	mirrors = make([]*v1.Pod, 0, len(m.mirrors))
	for _, mirror := range m.mirrors {
		mirrors = append(mirrors, mirror)
		name := podid.FullNameOf(mirror)
		if entry := m.names[name]; entry.mirror == mirror && entry.static == nil {
			orphanedMirrors = append(orphanedMirrors, name)
		}
	}
	return pods, mirrors, orphanedMirrors
}

// GetStaticPodToMirrorPodMap returns every static pod with the mirror pod of its name, or nil (PM-15). The map belongs to the
// caller.
func (m *Manager) GetStaticPodToMirrorPodMap() map[*v1.Pod]*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	podToMirror := m.uids.Load().podToMirror
	pairs := make(map[*v1.Pod]*v1.Pod, len(podToMirror))
	for uid := range podToMirror {
		static := m.pods[uid]
		pairs[static] = m.names[podid.FullNameOf(static)].mirror
	}
	return pairs
}

// GetMirroredNames returns each full name that has a static pod, a mirror pod or both, in no particular order. The slice
// belongs to the caller.
func (m *Manager) GetMirroredNames() []podid.FullName {
	m.mu.RLock()
	defer m.mu.RUnlock()
	podToMirror := m.uids.Load().podToMirror
	names := make(map[podid.FullName]struct{}, len(podToMirror)+len(m.mirrors))
	for uid := range podToMirror {
		names[podid.FullNameOf(m.pods[uid])] = struct{}{}
	}
	for _, mirror := range m.mirrors {
		names[podid.FullNameOf(mirror)] = struct{}{}
	}
	return slices.AppendSeq(make([]podid.FullName, 0, len(names)), maps.Keys(names))
}

// Collector returns a collector of kubelet_desired_pods, kubelet_mirror_pods and kubelet_managed_ephemeral_containers, the
// kubelet's metrics.
func (m *Manager) Collector() prometheus.Collector {
	return collector{
		manager: m,
		desired: prometheus.NewDesc("kubelet_desired_pods",
			"Number of pods that this node should run. static is true for those that do not come from the API server.",
			[]string{"static"}, nil),
		mirrors: prometheus.NewDesc("kubelet_mirror_pods",
			"Number of mirror pods that the API server shows for this node.", nil, nil),
		ephemeral: prometheus.NewDesc("kubelet_managed_ephemeral_containers",
			"Number of ephemeral containers in the pods that this node should run.", nil, nil),
	}
}

// collector counts the pods of a Manager at scrape time, so that the metrics cannot drift (PM-9).
type collector struct {
	manager                     *Manager
	desired, mirrors, ephemeral *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.desired
	descs <- c.mirrors
	descs <- c.ephemeral
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	api, static, mirrors, ephemeral := c.manager.count()
	send := func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	send(c.desired, api, "")
	send(c.desired, static, "true")
	send(c.mirrors, mirrors)
	send(c.ephemeral, ephemeral)
}

func (m *Manager) count() (api, static, mirrors, ephemeral int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, pod := range m.pods {
		ephemeral += len(pod.Spec.EphemeralContainers)
		if podid.IsStatic(pod) {
			static++
		}
	}
	return len(m.pods) - static, static, len(m.mirrors), ephemeral
}
