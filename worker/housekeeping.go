package worker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Housekeep corrects for missed updates: it compares the desired pods, the pods in the runtime in any state, and the pods
// that the workers know (PW-44..51). Call it every 2s.
//
// desired contains no mirror pods. runtimePods is nil if the runtime could not be listed; everything that depends on it is
// skipped then (PW-51). isReady reports whether a source has delivered all its pods. It returns true for a source that the
// node does not have. A source that is not ready delays only its own pods (BUG-11, PW-52).
func (w *Workers) Housekeep(desired []*v1.Pod, runtimePods []*observed.Pod, isReady func(podid.Source) bool) {
	h := &housekeeping{
		Workers: w, desired: map[podid.UID]*v1.Pod{}, runtimePods: map[podid.UID]*observed.Pod{},
		ready: map[podid.Source]bool{}, allReady: true, staticNames: map[podid.FullName]bool{},
	}
	for _, source := range []podid.Source{podid.File, podid.HTTP, podid.API} {
		h.ready[source] = isReady(source)
		h.allReady = h.allReady && h.ready[source]
	}
	for _, pod := range desired {
		h.desired[podid.UID(pod.UID)] = pod
		if podid.IsStatic(pod) && h.ready[podid.SourceOf(pod)] {
			h.staticNames[podid.FullNameOf(pod)] = true
		}
	}
	for _, pod := range runtimePods {
		h.runtimePods[pod.UID] = pod
	}
	h.pruneRecords()
	if runtimePods == nil {
		return
	}
	for _, pod := range desired {
		h.createMissing(pod)
	}
	for _, pod := range runtimePods {
		h.killOrphan(pod)
	}
	if h.allReady {
		h.setAllSourcesSeen()
		if err := h.journal.prune(h.isInUse); err != nil {
			h.config.Logger.Error("Failed to prune run-once journal", "err", err)
		}
	}
}

// housekeeping is one housekeeping pass.
type housekeeping struct {
	*Workers
	desired     map[podid.UID]*v1.Pod
	runtimePods map[podid.UID]*observed.Pod
	ready       map[podid.Source]bool
	allReady    bool
	staticNames map[podid.FullName]bool // names of the static pods of ready sources
}

// pruneRecords deletes finished pods and terminates running pods that are no longer desired (PW-44).
func (h *housekeeping) pruneRecords() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, r := range h.records {
		_, isDesired := h.desired[uid]
		r.orphaned = r.lifecycle.Pod != nil && !isDesired && h.isSourceReady(r.lifecycle.Pod)
		switch {
		case h.runsAfterFinish(r):
			h.transitionLocked(r, r.lifecycle.ResumeTerminating())
		case !r.orphaned:
		case r.lifecycle.Stage == plan.Finished && r.lifecycle.Step() == plan.StepIdle && r.lifecycle.Deleted && !r.active:
			delete(h.records, uid)
		default:
			h.terminateOrphanLocked(r)
		}
	}
}

func (h *housekeeping) terminateOrphanLocked(r *record) {
	next, effects := r.lifecycle.Orphan()
	isTerminating := r.lifecycle.Deleted && r.lifecycle.Recreated == nil && r.lifecycle.Stage == next.Stage
	if effects.Ignored || isTerminating {
		return
	}
	r.urgent = true
	h.transitionLocked(r, next)
	if effects.Interrupt && r.interrupt != nil {
		r.interrupt()
	}
}

// isSourceReady reports whether the pod's source has delivered all its pods.
func (h *housekeeping) isSourceReady(pod *v1.Pod) bool {
	if ready, found := h.ready[podid.SourceOf(pod)]; found {
		return ready
	}
	return h.allReady
}

// runsAfterFinish reports whether a finished pod was observed running after it had finished.
func (h *housekeeping) runsAfterFinish(r *record) bool {
	pod, found := h.runtimePods[r.uid]
	return found && r.lifecycle.Stage == plan.Finished && pod.Running() && pod.At.After(r.stageAt)
}

// createMissing creates the worker of a desired pod that has none: a pod that should run (PW-48), a terminal pod that still
// runs, or a terminal pod that is being deleted (PW-49).
func (h *housekeeping) createMissing(pod *v1.Pod) {
	uid := podid.UID(pod.UID)
	if h.hasRecord(uid) {
		return
	}
	phase := pod.Status.Phase
	if status, found := h.config.Statuses.GetPodStatus(pod.UID); found {
		phase = status.Phase
	}
	switch {
	case !derive.IsTerminal(phase):
		h.metrics.restarts.WithLabelValues(staticLabel(pod)).Inc()
		h.UpdatePod(Update{Op: plan.OpCreate, Pod: pod})
	case pod.DeletionTimestamp != nil || (h.runtimePods[uid] != nil && h.runtimePods[uid].Running()):
		h.UpdatePod(Update{Op: plan.OpKill, Pod: pod, Kill: plan.KillOptions{Evict: pod.DeletionTimestamp == nil}})
	}
}

// killOrphan terminates and removes a pod in the runtime that is not desired (PW-50). It waits until every source is ready,
// unless a static pod has the same name: the static pod must not wait for the API server, which may be the very pod that
// cannot start (BUG-11). An API pod of that name is another pod.
func (h *housekeeping) killOrphan(pod *observed.Pod) {
	isReplaced := h.staticNames[pod.Name] && pod.Source != podid.API
	if h.isInUse(pod.UID) || (!h.allReady && !isReplaced) {
		return
	}
	h.metrics.orphans.Inc()
	h.UpdatePod(Update{Op: plan.OpKill, RunningPod: pod})
}

// isInUse reports whether the pod is desired or has a worker.
func (h *housekeeping) isInUse(uid podid.UID) bool {
	_, isDesired := h.desired[uid]
	return isDesired || h.hasRecord(uid)
}

func (h *housekeeping) hasRecord(uid podid.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, found := h.records[uid]
	return found
}

func (h *housekeeping) setAllSourcesSeen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.allSourcesSeen = true
}
