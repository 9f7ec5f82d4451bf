package worker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Housekeep makes up for updates that never came: it compares the pods that sources want, what the runtime holds in any
// state, and what the workers know (PW-44..51). Call it every 2 s. desired are no mirrors; held is nil when the runtime
// could not be listed, and then nothing is done that depends on it (PW-51); ready reports whether a source has told all
// that it wants, and yes of a source that this node does not have. One that is not ready holds up only its own pods
// (BUG-11, PW-52).
func (w *Workers) Housekeep(desired []*v1.Pod, held []*observed.Pod, ready func(podid.Source) bool) {
	h := &housekeeping{
		Workers: w, desired: map[podid.UID]*v1.Pod{}, held: map[podid.UID]*observed.Pod{}, ready: map[podid.Source]bool{},
		names: map[podid.FullName]bool{}, all: true,
	}
	for _, source := range []podid.Source{podid.File, podid.HTTP, podid.API} {
		h.ready[source] = ready(source)
		h.all = h.all && h.ready[source]
	}
	for _, pod := range desired {
		h.desired[podid.UID(pod.UID)] = pod
		if podid.IsStatic(pod) && h.ready[podid.SourceOf(pod)] {
			h.names[podid.FullNameOf(pod)] = true
		}
	}
	for _, pod := range held {
		h.held[pod.UID] = pod
	}
	h.prune()
	if held == nil {
		return
	}
	for _, pod := range desired {
		h.createMissing(pod)
	}
	for _, pod := range held {
		h.endLeftover(pod)
	}
	h.conclude()
	if h.all {
		if err := h.journal.keep(h.concerns); err != nil {
			h.config.Logger.Error("What was begun of pods that are gone stays written down", "err", err)
		}
	}
}

// housekeeping is one pass.
type housekeeping struct {
	*Workers
	desired map[podid.UID]*v1.Pod
	held    map[podid.UID]*observed.Pod
	ready   map[podid.Source]bool
	all     bool                    // every source is ready
	names   map[podid.FullName]bool // that a static pod of a ready source has
}

// prune forgets what is finished and no longer wanted, and ends what is not wanted (PW-44).
func (h *housekeeping) prune() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, r := range h.records {
		_, wanted := h.desired[uid]
		r.orphan = r.life.Pod != nil && !wanted && h.mayEnd(r.life.Pod)
		switch {
		case h.haunts(r):
			h.moveLocked(r, r.life.ResumeTerminating())
		case !r.orphan:
		case r.life.Stage == plan.Finished && r.life.Step() == plan.StepIdle && r.life.Deleted && !r.live:
			delete(h.records, uid) // nobody has anything to tell of it any more
		default:
			h.endOrphanLocked(r)
		}
	}
}

func (h *housekeeping) endOrphanLocked(r *record) {
	next, effects := r.life.Orphan()
	if effects.Ignored || (r.life.Deleted && r.life.Recreated == nil && r.life.Stage == next.Stage) {
		return // it is on its way
	}
	r.hurried = true
	h.moveLocked(r, next)
	if effects.Interrupt && r.interrupt != nil {
		r.interrupt()
	}
}

// mayEnd reports whether the source that the pod came from can be believed when it does not want it.
func (h *housekeeping) mayEnd(pod *v1.Pod) bool {
	if ready, known := h.ready[podid.SourceOf(pod)]; known {
		return ready
	}
	return h.all
}

// haunts reports whether a finished pod runs after all, as seen after it finished.
func (h *housekeeping) haunts(r *record) bool {
	seen, held := h.held[r.uid]
	return held && r.life.Stage == plan.Finished && seen.Running() && seen.At.After(r.finished)
}

// createMissing sends a pod that sources want and the workers do not know to its worker: one that should run (PW-48), one
// that runs although it ended, and one that waits for nothing but to be deleted (PW-49).
func (h *housekeeping) createMissing(pod *v1.Pod) {
	uid := podid.UID(pod.UID)
	if h.knows(uid) {
		return
	}
	phase := pod.Status.Phase
	if status, known := h.config.Statuses.GetPodStatus(pod.UID); known {
		phase = status.Phase
	}
	switch {
	case !derive.IsTerminal(phase):
		h.metrics.restarted(pod)
		h.UpdatePod(Update{Op: plan.OpCreate, Pod: pod})
	case pod.DeletionTimestamp != nil || (h.held[uid] != nil && h.held[uid].Running()):
		h.UpdatePod(Update{Op: plan.OpKill, Pod: pod, Kill: plan.KillOptions{Evict: pod.DeletionTimestamp == nil}})
	}
}

// endLeftover ends and removes what the runtime holds of a pod that nobody wants (PW-50). Until every source has spoken
// anybody might; but where a static pod has the name, no other may hold it: it must not wait for the API server, which
// may be the very pod that cannot start (BUG-11).
func (h *housekeeping) endLeftover(seen *observed.Pod) {
	if _, wanted := h.desired[seen.UID]; wanted || h.knows(seen.UID) || (!h.all && !h.names[seen.Name]) {
		return
	}
	h.metrics.orphaned()
	h.UpdatePod(Update{Op: plan.OpKill, RunningPod: seen})
}

// concerns reports whether anything may still be to do with the pod.
func (h *housekeeping) concerns(uid podid.UID) bool {
	_, wanted := h.desired[uid]
	return wanted || h.knows(uid)
}

func (h *housekeeping) knows(uid podid.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.records[uid]
	return known
}

func (h *housekeeping) conclude() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.housekept = h.housekept || h.all
}
