package status

import (
	"maps"

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
	m.setFact(uid, container, func(facts *derive.ProbeFacts) { facts.Readiness = verdict(ready) })
}

// SetContainerStartup records what the startup probe of one container found; ignored as SetContainerReadiness (SM-15).
func (m *Manager) SetContainerStartup(uid types.UID, container observed.ContainerID, started bool) {
	m.setFact(uid, container, func(facts *derive.ProbeFacts) { facts.Startup = verdict(started) })
}

func verdict(passed bool) derive.Verdict {
	if passed {
		return derive.ProbePassed
	}
	return derive.ProbeFailed
}

func (m *Manager) setFact(uid types.UID, container observed.ContainerID, set func(*derive.ProbeFacts)) {
	own := m.config.Pods.TranslatePodUID(uid)
	pod, found := m.config.Pods.GetPodByUID(own)
	if !found {
		return
	}
	m.mu.Lock()
	e, known := m.entries[own]
	if !known || !hasContainer(e.status, container) {
		m.mu.Unlock()
		return
	}
	facts := e.facts[container]
	set(&facts)
	if facts == e.facts[container] {
		m.mu.Unlock()
		return
	}
	e.facts = maps.Clone(e.facts)
	if e.facts == nil {
		e.facts = derive.Probes{}
	}
	e.facts[container] = facts
	p := proposal{pod: pod, status: *e.status, finished: e.finished}
	_, urgent, err := m.acceptLocked(p, nil)
	m.mu.Unlock()
	m.conclude(p, urgent, err)
}

// hasContainer looks among regular containers, then init containers; ephemeral ones are never probed (SM-14).
func hasContainer(status *v1.PodStatus, container observed.ContainerID) bool {
	id := container.String()
	for _, list := range [...][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			if list[i].ContainerID == id {
				return true
			}
		}
	}
	return false
}

// factsOf leaves out the facts of containers that the status no longer has.
func factsOf(facts derive.Probes, status *v1.PodStatus) derive.Probes {
	for container := range facts {
		if !hasContainer(status, container) {
			facts = maps.Clone(facts)
			maps.DeleteFunc(facts, func(id observed.ContainerID, _ derive.ProbeFacts) bool { return !hasContainer(status, id) })
			return facts
		}
	}
	return facts
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
