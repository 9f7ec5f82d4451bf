package status

import (
	"context"
	"time"
)

// maxRepairs and repairWindow bound a fight with somebody who writes what the node owns (F30).
const (
	maxRepairs   = 3
	repairWindow = time.Minute
)

// quickRetries is how many conflicts in a row are answered without waiting.
const quickRetries = 2

// failed deals with a patch that the server did not take.
func (m *Manager) failed(ctx context.Context, j job, result outcome, err error) {
	switch result {
	case gone, replaced:
		m.lost(j)
	case stale:
		m.refresh(ctx, j)
	case tooLarge:
		m.shrink(ctx, j, err)
	case refused:
		m.refused(ctx, j, err)
	default:
		if result == ambiguous {
			m.note(j, func(o *object) { o.zombie = true })
		}
		m.retry(j, result, err)
	}
}

// lost notes that the server has no such object any more. A pod that the address book still has keeps its entry: the
// watch will tell of its removal or, for a static pod, of its next mirror (SM-58, SM-59, BUG-8).
func (m *Manager) lost(j job) {
	_, still := m.config.Pods.GetPodByUID(j.uid)
	m.mu.Lock()
	e, found := m.entries[j.uid]
	dropped := found && !still && e.version == j.version
	if found && still {
		e.object = object{uid: j.target.uid, version: j.target.version, gone: true}
		e.pause.end()
		lookAgain(m.progress)
	}
	if dropped {
		m.dropLocked(j.uid)
	}
	m.mu.Unlock()
	if dropped {
		m.config.Allocations.RemovePod(j.uid)
	}
}

// refresh learns the object's newest version after a conflict: from the watch, if that is ahead of what the request was
// made for, else by the one GET that a conflict costs. The first conflicts are answered at once.
func (m *Manager) refresh(ctx context.Context, j job) {
	m.metrics.conflicts.Inc()
	m.note(j, func(o *object) { o.conflicts++ })
	known := m.knownCopy(j.uid, j.pod)
	isAhead := known != nil && (known.UID != j.target.uid || newer(known.ResourceVersion, j.target.version))
	if !isAhead && !m.fetch(ctx, &j) {
		return
	}
	if j.object.conflicts < quickRetries {
		m.again(j.uid)
		return
	}
	m.putOff(j, stale, 0)
}

// shrink leaves something out of what is sent, until the server takes it or nothing is left to leave out.
func (m *Manager) shrink(ctx context.Context, j job, err error) {
	less, possible := j.object.shrink.next()
	if !possible {
		m.refused(ctx, j, err)
		return
	}
	m.config.Logger.Warn("A pod's status is too large for the API server; sending it with less text",
		"pod", j.target.name.String(), "uid", j.uid, "err", err)
	m.note(j, func(o *object) { o.shrink = less })
	m.again(j.uid)
}

// refused is met with a look at the object and a slow retry.
func (m *Manager) refused(ctx context.Context, j job, err error) {
	if j.pause.why != refused {
		m.config.Logger.Warn("The API server refuses a pod's status; trying again now and then",
			"pod", j.target.name.String(), "uid", j.uid, "err", err)
	}
	if m.fetch(ctx, &j) {
		m.putOff(j, refused, 0)
	}
}

// fetch reads the object. It returns false when that settled the matter, or failed and was put off; else j knows the object
// as it is now.
func (m *Manager) fetch(ctx context.Context, j *job) bool {
	ctx, cancel := context.WithTimeout(ctx, m.config.RequestTimeout)
	defer cancel()
	pod, err := m.config.API.GetPod(ctx, j.target.name.Namespace, j.target.name.Name)
	result := classify(err)
	m.metrics.request("get", result)
	m.heard(result, err)
	switch {
	case result == gone || result == replaced || (result == done && pod.UID != j.target.uid):
		m.lost(*j)
		return false
	case result != done:
		m.retry(*j, result, err)
		return false
	}
	m.note(*j, func(o *object) {
		o.version, o.status, o.deleted = pod.ResourceVersion, &pod.Status, pod.DeletionTimestamp != nil
	})
	j.target.version, j.target.status = pod.ResourceVersion, &pod.Status
	j.target.deleted = j.target.deleted || pod.DeletionTimestamp != nil
	return true
}

// retry gives the pod another turn later: when the server asked for patience, not before that.
func (m *Manager) retry(j job, result outcome, err error) {
	if result == throttled {
		m.throttle.slowDown()
	}
	m.config.Logger.Debug("Pod status could not be sent; trying again", "pod", j.target.name.String(), "uid", j.uid,
		"result", result.String(), "err", err)
	m.putOff(j, result, patienceOf(err))
}

// isRestrained reports whether a write would only undo, once more, what somebody else insists on. A full pass comes back
// to it.
func (m *Manager) isRestrained(j job) bool {
	if j.unsent() || j.object.repairs < maxRepairs || time.Since(j.object.repairing) >= repairWindow {
		return false
	}
	if !j.object.warned {
		m.note(j, func(o *object) { o.warned = true })
		m.config.Logger.Warn("Somebody else keeps changing what the node says of a pod; the node answers less often",
			"pod", j.target.name.String(), "uid", j.uid, "repairs", maxRepairs, "within", repairWindow)
	}
	return true
}

func (o *object) countRepair(now time.Time) {
	if now.Sub(o.repairing) >= repairWindow {
		o.repairs, o.repairing, o.warned = 0, now, false
	}
	o.repairs++
}
