package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// SetPodStatus proposes a status for the pod, as a rule one that derive.Status computed. It returns the status that is now
// cached, and whether that is new. The status may be changed afterwards; the pod, which is kept, and the result must not be.
//
// Probe results that were set for the pod's containers win over what the status says of them (SM-16). For a pod with a
// deletion timestamp there is always a new version (SM-10).
func (m *Manager) SetPodStatus(pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	status.ObservedGeneration = pod.Generation // SM-38
	cached, changed := m.accept(proposal{pod: pod, status: status, force: pod.DeletionTimestamp != nil})
	return *cached, changed
}

// TerminatePod says that the pod has ended and all that it held on the node is released. Containers whose end nobody saw are
// reported as lost, and a phase that is not terminal becomes Failed, but for a static pod (SM-17..20). Afterwards the API
// object of a deleted pod may go.
func (m *Manager) TerminatePod(pod *v1.Pod) {
	m.accept(proposal{pod: pod, force: true, ends: true})
}

// SetContainerReadiness records what the readiness probe of one container found. It is ignored when the pod is not in the
// address book, has no status yet, or has no container of that ID (SM-12).
func (m *Manager) SetContainerReadiness(uid types.UID, container observed.ContainerID, ready bool) {
	m.setFact(uid, container, derive.ContainerProbeResults{Readiness: verdict(ready)})
}

// SetContainerStartup records what the startup probe of one container found; ignored as SetContainerReadiness (SM-15).
func (m *Manager) SetContainerStartup(uid types.UID, container observed.ContainerID, started bool) {
	m.setFact(uid, container, derive.ContainerProbeResults{Startup: verdict(started)})
}

func verdict(passed bool) derive.ProbeResult {
	if passed {
		return derive.ProbeSuccess
	}
	return derive.ProbeFailure
}

func (m *Manager) setFact(uid types.UID, container observed.ContainerID, news derive.ContainerProbeResults) {
	own := m.config.Pods.TranslatePodUID(uid)
	pod, found := m.config.Pods.GetPodByUID(own)
	if !found {
		return
	}
	m.mu.Lock()
	e, known := m.entries[own]
	if !known || !hasContainer(e.status, container) || !e.learn(container, news) {
		m.mu.Unlock()
		return
	}
	p := proposal{pod: pod, status: *e.status, owned: true, finished: e.finished}
	_, urgent, err := m.acceptLocked(p, nil)
	m.mu.Unlock()
	m.conclude(p, urgent, err)
}

// learn lays news over what is known of the container, and reports whether that changed anything.
func (e *entry) learn(container observed.ContainerID, news derive.ContainerProbeResults) bool {
	before := e.facts[container]
	after := before
	if news.Startup != derive.ProbeUnknown {
		after.Startup = news.Startup
	}
	if news.Readiness != derive.ProbeUnknown {
		after.Readiness = news.Readiness
	}
	if after == before {
		return false
	}
	if e.facts == nil {
		e.facts = derive.ProbeResults{}
	}
	e.facts[container] = after
	return true
}

// hasContainer looks among regular containers, then init containers; ephemeral ones are never probed (SM-14).
func hasContainer(status *v1.PodStatus, container observed.ContainerID) bool {
	for _, list := range [...][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			if list[i].ContainerID != "" && observed.ParseContainerID(list[i].ContainerID) == container {
				return true
			}
		}
	}
	return false
}

// Reconcile says that the address book has a new copy of the pod, or of its mirror: if somebody else changed what the
// node owns, it is put right at once, and a new mirror gets its status.
func (m *Manager) Reconcile(pod *v1.Pod) {
	uid := m.config.Pods.TranslatePodUID(pod.UID)
	m.mu.RLock()
	e, found := m.entries[uid]
	u := ordinary
	if found {
		u = e.urgencyNow()
		if e.finished && pod.DeletionTimestamp != nil {
			u = releasing
		}
	}
	m.mu.RUnlock()
	if found {
		m.enqueue(uid, u)
	}
}
