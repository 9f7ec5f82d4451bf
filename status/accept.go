package status

import (
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// proposal is a status that a setter would like to be the pod's.
type proposal struct {
	pod    *v1.Pod
	status v1.PodStatus
	// force makes a new version even of an equal status, so that the pod is looked at again (SM-10).
	force bool
	// ends tells that the pod has ended: its status follows from the one before, whatever status says (SM-17).
	ends bool
	// owned tells that status was made from the cached one, so that nobody else can change what is in it.
	owned    bool
	finished bool
}

// accept is the one door into the cache. It returns the status that is now cached and whether that is a new version.
func (m *Manager) accept(p proposal) (*v1.PodStatus, bool) {
	uid := podid.UID(p.pod.UID)
	var published *v1.PodStatus
	m.mu.Lock()
	if _, known := m.entries[uid]; !known {
		m.mu.Unlock()
		published = m.publishedStatus(p.pod)
		m.mu.Lock()
	}
	status, urgent, err := m.acceptLocked(p, published)
	m.mu.Unlock()
	return status, m.conclude(p, urgent, err)
}

// conclude does what an accepted proposal leads to, once the lock is free, and reports whether it was accepted.
func (m *Manager) conclude(p proposal, u urgency, err error) bool {
	switch {
	case err == nil:
		m.enqueue(podid.UID(p.pod.UID), u)
	case !errors.Is(err, errUnchanged):
		m.config.Logger.Error("Status refused: a container cannot do that", "pod", podid.FullNameOf(p.pod).String(),
			"uid", p.pod.UID, "err", err)
	}
	return err == nil
}

// errUnchanged says that the proposal is what is cached already.
var errUnchanged = errors.New("the status is the one that is cached")

// acceptLocked is accept under the lock: it returns what is cached now, and how urgent that is, or why it is what it was.
// published is what the status continues from when nothing is cached (SM-21).
func (m *Manager) acceptLocked(p proposal, published *v1.PodStatus) (*v1.PodStatus, urgency, error) {
	uid := podid.UID(p.pod.UID)
	e, known := m.entries[uid]
	if !known {
		e = &entry{uid: uid, status: published}
	}
	old := e.status
	next, err := propose(e, &p)
	if err != nil {
		return old, ordinary, err
	}
	now := time.Now()
	next, _ = derive.Normalize(p.pod, derive.CarryOver(old, next, now))
	m.metrics.countTerminated(old, &next)
	if known && !p.force && derive.Equal(old, &next) && p.finished == e.finished {
		return old, ordinary, errUnchanged
	}
	switch {
	case !known:
		next = *next.DeepCopy()
		m.entries[uid] = e
	case !p.owned:
		next = ownCopy(&next, old)
	}
	m.storeLocked(e, p, &next, now)
	m.publishLocked(e, !known)
	return e.status, e.urgency, nil
}

func (m *Manager) publishLocked(e *entry, first bool) {
	m.subscribers.publish(Change{
		UID: e.uid, Pod: e.pod, Status: e.status, Version: e.version, First: first, Finished: e.finished,
	})
}

// propose is the status that the entry would get, before it is made to continue the one that it has.
func propose(e *entry, p *proposal) (v1.PodStatus, error) {
	if p.ends {
		p.finished = true
		return derive.WithProbeResults(p.pod, derive.Terminate(p.pod, *e.status), e.facts), nil
	}
	p.finished = p.finished || (e.finished && !podid.IsStatic(p.pod)) // SM-22
	if len(e.facts) > 0 {
		p.status = derive.WithProbeResults(p.pod, p.status, e.facts)
	}
	return p.status, derive.CheckTransition(p.pod, e.status, &p.status)
}

func (m *Manager) storeLocked(e *entry, p proposal, status *v1.PodStatus, now time.Time) {
	u := urgencyOf(e.status, status, p)
	if e.unsent() {
		u = min(u, e.urgency)
	} else {
		e.unsentSince = now
	}
	m.versions++
	e.pod, e.status, e.finished, e.version, e.newestAt, e.urgency = p.pod, status, p.finished, m.versions, now, u
	maps.DeleteFunc(e.facts, func(container observed.ContainerID, _ derive.ContainerProbeResults) bool {
		return !hasContainer(status, container)
	})
	m.hastenLocked(e, now)
	m.kept.mark()
}

// publishedStatus is what the API server says of the pod as far as the node knows: the address book's copy may be newer
// than the caller's, and for a static pod it is in the mirror.
func (m *Manager) publishedStatus(pod *v1.Pod) *v1.PodStatus {
	if podid.IsStatic(pod) {
		if mirror := m.knownCopy(podid.UID(pod.UID), pod); mirror != nil { // not that of an earlier manifest
			return &mirror.Status
		}
	} else if held, found := m.config.Pods.GetPodByUID(podid.UID(pod.UID)); found && newer(held.ResourceVersion, pod.ResourceVersion) {
		return &held.Status
	}
	return &pod.Status
}

// enqueue gives the pod a turn at the senders.
func (m *Manager) enqueue(uid podid.UID, u urgency) {
	if m.config.API != nil {
		m.queue.add(uid, u)
	}
}
