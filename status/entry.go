package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// entry is what the manager knows of one pod. All of it is guarded by Manager.mu; statuses and pods are replaced, never
// modified, so that a reader may keep what it got.
type entry struct {
	uid podid.UID
	pod *v1.Pod // as last handed to a setter
	// status is what the node says, with the newest probe facts.
	status *v1.PodStatus
	// facts are the probes' results by container ID. They are joined anew with each status, so that one computed before a
	// result cannot undo it (SM-16, BUG-7).
	facts    derive.ProbeResults
	finished bool

	// version counts accepted changes. It comes from one counter of the manager's, so that it rises for a UID also when
	// its entry was dropped and is made anew (SM-79).
	version uint64
	// acked is the newest version that the API server is known to show.
	acked uint64
	// unsentSince is when the oldest change that is not acked was accepted, newestAt when the newest was.
	unsentSince, newestAt time.Time
	// urgency is that of the most urgent change since the last one that was acked.
	urgency urgency
	// withheld tells that the acked version is shown but for its terminal phase, which must wait (SM-67).
	withheld bool

	object  object
	settled settled
	pause   pause
}

// object is the API server's side of an entry: what is known of the object from our own requests.
type object struct {
	uid types.UID
	// version, status and deleted are those of the last answer. The watch may know newer ones, never older ones that
	// count (BUG-9).
	version string
	status  *v1.PodStatus
	deleted bool
	// shown is the newest version that the address book had. One that is older means that the server's history was
	// rewound, and that its versions start over (F11).
	shown string
	// gone tells that the server said that there is no such object. It is not asked again for that UID (F8), unless the
	// watch shows a newer version of it.
	gone bool
	// conflicts counts 409s in a row.
	conflicts int
	// zombie tells that an earlier request may still be carried out, so that the next must not go without a version (F9).
	zombie bool
	// shrink is how much had to be left out for the server to take it (F32).
	shrink shrinkage
	// repairs counts writes that only undid what somebody else wrote, since repairing (F30); warned tells that the log
	// has it.
	repairs   int
	repairing time.Time
	warned    bool
}

// settled is the last comparison that found nothing to do. While the watch's copy and the version are the same, there is
// still nothing, and a full pass costs next to nothing.
type settled struct {
	known   *v1.Pod
	version uint64
}

// unsent reports whether the API server is not known to show the newest version.
func (e *entry) unsent() bool { return e.acked < e.version }

// isOpen reports whether the API server has still to be told something that only this entry knows.
func (e *entry) isOpen() bool { return e.unsent() || e.withheld || e.isDoomed() }

// isOnItsWay reports whether the next answer of the API server may close the entry.
func (e *entry) isOnItsWay() bool {
	return e.pause.why != refused && (e.unsent() || e.pause.failures > 0)
}

// isLost reports whether nobody can be told, and nobody will be: the object is gone, and will not be made again.
func (e *entry) isLost() bool { return e.object.gone && !podid.IsStatic(e.pod) }

// isDoomed reports whether the object waits for nothing but its deletion by us.
func (e *entry) isDoomed() bool { return e.finished && e.pod.DeletionTimestamp != nil }

// urgencyNow is how soon the pod's next turn must be.
func (e *entry) urgencyNow() urgency {
	switch {
	case e.isDoomed():
		return releasing
	case e.unsent() || e.withheld:
		return e.urgency
	default:
		return ordinary
	}
}
