package plan

import (
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Effects are what follows from an accepted update. Who waits for the pod's end goes on waiting only while the
// stage is Terminating: in any other there is nothing to wait for (PW-9, PW-10).
type Effects struct {
	// Ignored tells that the update changed nothing.
	Ignored bool
	// Interrupt tells that the step that runs now is no longer wanted and must end at once (PW-12).
	Interrupt bool
}

var ignored = Effects{Ignored: true}

// Accept takes an update in. seen is what the runtime was last seen to hold of the pod; its time is zero when nobody has
// looked yet. It counts only for the first update.
func (l Lifecycle) Apply(u Update, seen *observed.Pod) (Lifecycle, Effects) {
	if u.Pod == nil && u.Op != OpKill {
		return l, ignored // PW-3
	}
	switch {
	case l.Op == 0:
		return l.acceptFirst(u, seen)
	case l.comesBack(u):
		return l.takingBack(u), Effects{}
	case l.Stage == Finished:
		return l.acceptFinished(u)
	case u.Pod == nil && l.Stage == Terminated, l.Pod == nil && u.Op != OpKill:
		return l, ignored // PW-9; what only the runtime knows is stopped before it can be anything else
	default:
		return l.acceptKnown(u)
	}
}

func (l Lifecycle) acceptFirst(u Update, seen *observed.Pod) (Lifecycle, Effects) {
	if u.Pod == nil && u.RunningPod == nil {
		return l, ignored
	}
	l.MayExistInRuntime = u.Pod == nil || seen == nil || seen.At.IsZero() || len(seen.Containers) > 0 || len(seen.Sandboxes) > 0
	if u.Pod == nil {
		l.Name = u.RunningPod.Name
	}
	l = l.taking(u)
	if u.Pod != nil && derive.IsTerminal(u.Pod.Status.Phase) && endedBefore(seen) {
		l.Stage, l.Started = Terminated, true // PW-2
		l.Deleted = u.Pod.DeletionTimestamp != nil || (u.Op == OpKill && !u.Kill.Evict)
		l.GracePeriod = shortestGrace(0, u)
		return l, Effects{}
	}
	return l.ending(u), Effects{}
}

// endedBefore reports whether nothing of the pod runs, on the evidence of somebody who has looked.
func endedBefore(seen *observed.Pod) bool {
	return seen != nil && !seen.At.IsZero() && !seen.Running() && seen.ReadySandboxes() == 0
}

// comesBack reports whether the update is a static pod's return under the same UID after it was removed (PW-5), or is about
// one that came back: it is of the life to come, and not of the one that ends.
func (l Lifecycle) comesBack(u Update) bool {
	returns := u.Op == OpCreate || (l.Recreated != nil && u.Op != OpKill)
	return returns && l.Stage != Syncing && l.Deleted && podid.IsStatic(u.Pod) && u.Pod.DeletionTimestamp == nil
}

// takingBack keeps the newest version for the life to come.
func (l Lifecycle) takingBack(u Update) Lifecycle {
	l.Recreated = u.Pod
	if u.Mirror != nil {
		l.Mirror = u.Mirror
	}
	return l
}

// acceptFinished leaves a finished pod as it is (PW-6). Only that it was deleted counts: what the runtime kept of it for
// its readers has none any more, and one that came back does so no longer.
func (l Lifecycle) acceptFinished(u Update) (Lifecycle, Effects) {
	if !deletes(u) || (l.Deleted && l.Recreated == nil) {
		return l, ignored
	}
	l.Deleted, l.Recreated = true, nil
	if u.Pod != nil {
		l.Pod = u.Pod
	}
	return l, Effects{}
}

func (l Lifecycle) acceptKnown(u Update) (Lifecycle, Effects) {
	before := l
	if l.Recreated != nil {
		if deletes(u) { // to be sent away is no removal
			l.Recreated = nil
		}
		u.Pod = l.Pod // this life ends as the pod that it was
	}
	if u.Pod == nil {
		u.Pod, l.MayExistInRuntime = l.Pod, true // PW-3
	}
	l = l.taking(u).ending(u)
	return l, Effects{Interrupt: l.Stage != before.Stage || (l.Stage == Terminating && l.GracePeriod < before.GracePeriod)} // PW-21
}

// taking replaces what is known by what is newer (PW-11, PW-34).
func (l Lifecycle) taking(u Update) Lifecycle {
	l.Op = u.Op
	if u.Pod != nil {
		l.Pod, l.Name = u.Pod, podid.FullNameOf(u.Pod)
	}
	if u.Mirror != nil {
		l.Mirror = u.Mirror
	}
	return l
}

// ending moves a pod that must end on to its end, and makes an end that was begun a shorter one. The first cause is the
// cause; a deletion counts whenever it comes (PW-7, PW-8).
func (l Lifecycle) ending(u Update) Lifecycle {
	if l.Stage == Syncing {
		if u.Pod != nil && u.Pod.DeletionTimestamp == nil && !derive.IsTerminal(u.Pod.Status.Phase) && u.Op != OpKill {
			return l
		}
		l.Stage = Terminating
		l.Evicted = u.Op == OpKill && u.Kill.Evict && !deletes(u)
	}
	l.Deleted = l.Deleted || deletes(u)
	if l.Stage == Terminating {
		l.GracePeriod = shortestGrace(l.GracePeriod, u)
		if u.Op == OpKill && u.Kill.StatusFunc != nil {
			l.StatusFunc = u.Kill.StatusFunc
		}
	}
	return l
}

// deletes reports whether the pod is no longer wanted, by the API server or by whoever kills it.
func deletes(u Update) bool {
	return u.Pod == nil || u.Pod.DeletionTimestamp != nil || (u.Op == OpKill && !u.Kill.Evict)
}

// minGrace is what every pod gets: none at all would kill what could end well (PW-20). It is also all that is left to a
// pod without a spec (PW-22).
const minGrace = time.Second

// shortestGrace is the least of what was ever allowed: it only shrinks. 0 asks for the minimum; the kubelet takes it for
// "not said" inside one calculation, so that a kill with 30 s makes a forced deletion a slow one (PW-20).
func shortestGrace(current time.Duration, u Update) time.Duration {
	grace, said := current, current > 0
	allow := func(d time.Duration) {
		if d = max(d, minGrace); !said || d < grace {
			grace, said = d, true
		}
	}
	if u.Pod == nil {
		allow(minGrace)
		return grace
	}
	if grace := u.Pod.DeletionGracePeriodSeconds; grace != nil {
		allow(seconds(*grace))
	}
	if u.Op == OpKill && u.Kill.GracePeriod != nil {
		allow(*u.Kill.GracePeriod)
	}
	if grace := u.Pod.Spec.TerminationGracePeriodSeconds; !said && grace != nil {
		allow(seconds(*grace))
	}
	return max(grace, minGrace)
}
