package worker

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// PodCouldHaveRunningContainers reports whether a container of the pod runs or may still be started. Until housekeeping
// knows every source, it may be so of any pod that nobody spoke of (PW-41, PW-42).
func (w *Workers) PodCouldHaveRunningContainers(uid podid.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, known := w.records[uid]; known {
		return r.life.CouldHaveRunningContainers()
	}
	return !w.housekept
}

// PodResourcesAreReclaimed reports whether nothing of the pod is left on the node: it is finished, which its volumes must
// be gone for, and the runtime was seen to hold nothing of it (SM-76).
func (w *Workers) PodResourcesAreReclaimed(pod *v1.Pod, _ *v1.PodStatus) bool {
	uid := podid.UID(pod.UID)
	if !w.IsFinished(uid) {
		return false
	}
	seen := w.config.PodCache.Get(uid)
	return len(seen.Containers) == 0 && len(seen.Sandboxes) == 0
}

// IsFinished reports whether the pod needs no more of the node (PW-41, PW-42).
func (w *Workers) IsFinished(uid podid.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, known := w.records[uid]; known {
		return r.life.Stage == plan.Finished
	}
	return w.housekept
}

// IsTerminating reports whether a static pod of that name was begun and is being stopped: its mirror outlives that
// (PW-43).
func (w *Workers) IsTerminating(name podid.FullName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, known := w.records[w.names.holder[name]]
	return known && r.life.Stage == plan.Terminating
}

// PodState is where one pod stands.
type PodState struct {
	UID   podid.UID
	Name  podid.FullName
	Stage plan.Stage
	// Began is false while a static pod waits for its name; others treat it as absent (PW-19).
	Began bool
	// Admitted tells that the node took the pod: until it is terminated, it has a place there.
	Admitted bool
	// Acknowledged tells that no container of the pod is started any more (PW-28, PW-42).
	Acknowledged bool
	// Pod is nil when only the runtime knows it.
	Pod *v1.Pod
	// Since is when the pod was first spoken of.
	Since time.Time
	// Err is what keeps it from going on, or nil (BUG-31).
	Err error
}

// Pods are all that the workers know, by name and UID.
func (w *Workers) Pods() []PodState {
	w.mu.Lock()
	states := make([]PodState, 0, len(w.records))
	for uid, r := range w.records {
		states = append(states, PodState{
			UID: uid, Name: r.life.Name, Stage: r.life.Stage, Began: r.life.Started, Admitted: r.admission.asked && r.admission.err == nil,
			Acknowledged: r.life.StartedTerminating, Pod: r.life.Pod, Since: r.since, Err: r.trouble,
		})
	}
	w.mu.Unlock()
	slices.SortFunc(states, func(a, b PodState) int {
		return cmp.Or(cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name),
			cmp.Compare(a.UID, b.UID))
	})
	return states
}
