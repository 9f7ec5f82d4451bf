package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// acknowledge notes that the server took the job's version.
func (m *Manager) acknowledge(j job) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	e, found := m.entries[j.uid]
	if !found {
		return
	}
	o := e.objectFor(j)
	if e.acked >= j.version && o.version != "" { // the first write to a new mirror repairs nothing
		o.countRepair(now)
		m.metrics.repairs.Inc()
	}
	o.version, o.status, o.deleted, o.conflicts, o.zombie = j.target.version, j.target.status, j.target.deleted, 0, false
	m.shownLocked(e, j, j.target.status, now)
}

// settle notes that there was nothing to do, and that a full pass need not look again while nothing changes.
func (m *Manager) settle(j job, merged *v1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, found := m.entries[j.uid]
	if !found {
		return
	}
	o := e.objectFor(j)
	o.conflicts = 0
	m.shownLocked(e, j, merged, time.Now())
	if j.known != nil {
		o.shown = j.known.ResourceVersion
		e.leanOn(j.known, j.target.mirror)
	}
	if isQuiet(j, merged) {
		e.settled = settled{known: j.known, version: j.version}
	}
}

// shownLocked notes that the server shows the job's version. There is one sample of the latency for each (BUG-5).
func (m *Manager) shownLocked(e *entry, j job, shown *v1.PodStatus, now time.Time) {
	e.pause.end()
	lookAgain(m.progress)
	if e.acked < j.version {
		m.metrics.latency.Observe(now.Sub(e.unsentSince).Seconds())
		e.acked = j.version
		e.unsentSince = e.newestAt
		m.kept.mark()
	}
	if withheld := isWithheld(j, shown); e.version == j.version && e.withheld != withheld {
		e.withheld = withheld
		m.kept.mark()
	}
}

// adoptStart takes over the object's start time when it is earlier than ours, and reports whether it was: an agent that was
// started while the API server could not be asked did not know it, and it never moves (SM-25, I4).
func (m *Manager) adoptStart(j job) bool {
	earlier := j.target.status.StartTime
	if earlier.IsZero() || !earlier.Before(j.status.StartTime) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, found := m.entries[j.uid]
	if !found {
		return true
	}
	adopted := *e.status
	adopted.StartTime = earlier
	m.storeLocked(e, proposal{pod: e.pod, finished: e.finished}, &adopted, time.Now())
	m.publishLocked(e, false)
	return true
}

// objectFor is what is known of the job's object; nothing, when the entry knows of another one, or of another history.
func (e *entry) objectFor(j job) *object {
	if e.object.uid != j.target.uid || j.rewound {
		e.object = object{uid: j.target.uid}
	}
	return &e.object
}

// note changes what is known of the job's object.
func (m *Manager) note(j job, change func(*object)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, found := m.entries[j.uid]; found {
		change(e.objectFor(j))
	}
}
