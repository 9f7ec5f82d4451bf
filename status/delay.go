package status

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// Delays is how long changes of a pod's status wait for the next one, so that both take one request. A change of readiness, a
// terminal phase and the deletion of an object never wait, and take what waits along. Subscribers see every change at once. With the
// zero value no change waits.
type Delays struct {
	// Change is for every change that is not one of the following.
	Change time.Duration
	// Start is for a status that says nothing but that the pod is about to start its first containers: usually they run soon.
	// What fails, or runs, ends the wait after Change. Defaults to Change.
	Start time.Duration
	// Sandbox is for a later status of such a pod, once the API server shows it as starting: it adds little more than that the sandbox is
	// ready. Defaults to Start.
	Sandbox time.Duration
	// Deletion is for a status that only confirms that the node has seen the deletion of the pod: its end follows. Defaults to
	// Change.
	Deletion time.Duration
}

func (d Delays) withDefaults() Delays {
	d.Start, d.Deletion = max(d.Start, d.Change), max(d.Deletion, d.Change)
	d.Sandbox = max(d.Sandbox, d.Start)
	return d
}

func (d Delays) validate() error {
	if min(d.Change, d.Start, d.Sandbox, d.Deletion) < 0 {
		return errors.New("status.Config: Delays must not be negative")
	}
	return nil
}

// content is what a change says, as far as its delay depends on it.
type content int

const (
	contentOther    content = iota
	contentStart            // see Delays.Start
	contentSandbox          // see Delays.Sandbox
	contentDeletion         // see Delays.Deletion
)

func (d Delays) of(c content) time.Duration {
	switch c {
	case contentStart:
		return d.Start
	case contentSandbox:
		return d.Sandbox
	case contentDeletion:
		return d.Deletion
	default:
		return d.Change
	}
}

// change is how the sync of a new version is scheduled.
type change struct {
	priority priority
	content  content
}

// contentOf returns what all unacknowledged changes of the entry say, with the one from the cached status to the new one.
func (entry *cacheEntry) contentOf(pod *v1.Pod, cached, status *v1.PodStatus) content {
	merged := contentOther
	switch {
	case isDeletionConfirmed(pod, cached, status):
		merged = contentDeletion
	case pod.DeletionTimestamp != nil || !derive.IsStarting(cached) || !derive.IsStarting(status):
	case entry.ackedVersion == 0:
		merged = contentStart
	default:
		merged = contentSandbox
	}
	if entry.isUnacked() && entry.unackedContent != merged {
		return contentOther
	}
	return merged
}

// isDeletionConfirmed reports whether a status only confirms that the node has seen the deletion of the pod.
func isDeletionConfirmed(pod *v1.Pod, cached, status *v1.PodStatus) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	same := *status
	same.ObservedGeneration = cached.ObservedGeneration
	same.Conditions = slices.Clone(status.Conditions)
	for i := range same.Conditions {
		if before := conditionOf(cached.Conditions, same.Conditions[i].Type); before != nil {
			same.Conditions[i].ObservedGeneration = before.ObservedGeneration
		}
	}
	return derive.Equal(cached, &same)
}

// enqueueChange schedules a sync of a pod whose status has changed. It may wait for the next change (Config.Delays).
func (m *Manager) enqueueChange(uid podid.UID, change change) {
	if m.config.API == nil {
		return
	}
	delay := m.config.Delays.of(change.content)
	if delay == 0 || !change.priority.mayWait() {
		m.queue.add(uid, change.priority)
		return
	}
	if change.content == contentDeletion { // the watch has just delivered the deletion, which schedules a sync that only compares
		m.queue.postpone(uid)
	}
	m.queue.addLater(uid, change.priority, delay)
}
