package pod

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// GetPods returns the pods to run, without mirrors, in no order (PM-15). The slice is the caller's.
func (m *Manager) GetPods() []*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.AppendSeq(make([]*v1.Pod, 0, len(m.pods)), maps.Values(m.pods))
}

// GetPodsAndMirrorPods returns, as they are at one instant and in no order, the pods to run, the mirrors, and the
// names of those mirrors that have no static pod (PM-15).
func (m *Manager) GetPodsAndMirrorPods() (pods, mirrors []*v1.Pod, orphanedMirrors []podid.FullName) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pods = slices.AppendSeq(make([]*v1.Pod, 0, len(m.pods)), maps.Values(m.pods))
	mirrors = make([]*v1.Pod, 0, len(m.mirrors))
	for _, mirror := range m.mirrors {
		mirrors = append(mirrors, mirror)
		name := podid.FullNameOf(mirror)
		if sharers := m.names[name]; sharers.mirror == mirror && sharers.static == nil {
			orphanedMirrors = append(orphanedMirrors, name)
		}
	}
	return pods, mirrors, orphanedMirrors
}

// GetStaticPodToMirrorPodMap returns every static pod with the mirror of its name, or nil (PM-15). The map is the
// caller's.
func (m *Manager) GetStaticPodToMirrorPodMap() map[*v1.Pod]*v1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	static := make(map[*v1.Pod]*v1.Pod, len(m.uids.Load().podToMirror))
	for uid := range m.uids.Load().podToMirror {
		pod := m.pods[uid]
		static[pod] = m.names[podid.FullNameOf(pod)].mirror
	}
	return static
}

// GetMirroredNames returns the full names that have a static pod, a mirror or both, in no order and each once.
func (m *Manager) GetMirroredNames() []podid.FullName {
	m.mu.RLock()
	defer m.mu.RUnlock()
	static := m.uids.Load().podToMirror
	names := make(map[podid.FullName]struct{}, len(static)+len(m.mirrors))
	for uid := range static {
		names[podid.FullNameOf(m.pods[uid])] = struct{}{}
	}
	for _, mirror := range m.mirrors {
		names[podid.FullNameOf(mirror)] = struct{}{}
	}
	return slices.AppendSeq(make([]podid.FullName, 0, len(names)), maps.Keys(names))
}
