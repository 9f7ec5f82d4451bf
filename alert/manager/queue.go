package manager

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// Version is a version of a pod's status. Pod and statuses are shared and never modified.
type Version struct {
	UID podid.UID
	Pod *v1.Pod
	// Before is nil if there was no status.
	Before, After *v1.PodStatus
	Version       uint64
	Time          time.Time
	// Removed is set if the status was removed.
	Removed bool
	// Restored is set if an earlier run left the status: nobody knows yet whether the pod still exists.
	Restored bool

	// counted has the changes of earlier versions that this one stands for, oldest first.
	counted []changes
}

// changes are those of one version.
type changes struct {
	changes []transition.Change
	at      time.Time
}

// nodeEvent is something that happened to the node.
type nodeEvent struct {
	kind string
	at   time.Time
}

// pending is what the manager has not processed yet.
type pending struct {
	versions []Version
	// facts has what changed about pods besides their status.
	facts map[podid.UID]rule.Trigger
	// node is what may have changed about the node. allPods is what may have changed about all pods.
	node, allPods rule.Trigger
	events        []nodeEvent
	// known has the pods of the node, when all sources are complete.
	known map[types.UID]bool
	rules *loadedRules
}

// queue takes what happens and keeps it for the manager. No method blocks or does I/O: they run under the locks of components.
type queue struct {
	ready wakeup.Signal // set when something is pending

	mu      sync.Mutex // guards all below
	pending pending
	limit   int // length at which the versions are compacted again
	// stops has the reasons by container ID, until the end of the instance is seen.
	stops map[string]string
}

const (
	// maxPending is the number of versions that wait as they are.
	maxPending = 4096
	// maxCounted is the number of versions of a pod whose changes are counted although they are not evaluated: counts end there.
	maxCounted = 64
	maxStops   = 4096
	maxEvents  = 1024
)

func newQueue() *queue {
	return &queue{ready: wakeup.New(), limit: maxPending, stops: map[string]string{}}
}

// add changes what is pending.
func (q *queue) add(change func(*pending)) {
	q.mu.Lock()
	change(&q.pending)
	q.mu.Unlock()
	q.ready.Set()
}

func (q *queue) addVersion(version Version) {
	q.mu.Lock()
	q.pending.versions = append(q.pending.versions, version)
	if len(q.pending.versions) >= q.limit {
		q.pending.versions = compact(q.pending.versions)
		q.limit = max(maxPending, 2*len(q.pending.versions))
	}
	q.mu.Unlock()
	q.ready.Set()
}

func (q *queue) addFact(uid podid.UID, trigger rule.Trigger) {
	q.add(func(p *pending) {
		if p.facts == nil {
			p.facts = map[podid.UID]rule.Trigger{}
		}
		p.facts[uid] |= trigger
	})
}

func (q *queue) addStop(containerID, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.stops) < maxStops {
		q.stops[containerID] = reason
	}
}

// takeStop returns why the agent stopped the instance, once.
func (q *queue) takeStop(containerID string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	reason := q.stops[containerID]
	delete(q.stops, containerID)
	return reason
}

func (q *queue) take() pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.pending
	q.pending, q.limit = pending{}, maxPending
	return taken
}

// compact leaves the newest version of each pod, with the changes of the others that count. A removal ends a chain: a pod that is added
// again begins another.
func compact(versions []Version) []Version {
	open := map[podid.UID]int{} // the index of the version that the next one of the pod replaces
	isMerged := make([]bool, len(versions))
	for i := range versions {
		version := &versions[i]
		if earlier, found := open[version.UID]; found {
			version.replace(&versions[earlier])
			isMerged[earlier] = true
		}
		open[version.UID] = i
		if version.Removed {
			delete(open, version.UID)
		}
	}
	compacted := make([]Version, 0, len(open)+maxPending/4)
	for i := range versions {
		if !isMerged[i] {
			compacted = append(compacted, versions[i])
		}
	}
	return compacted
}

// replace makes the version stand for an earlier one, too.
func (v *Version) replace(earlier *Version) {
	counted := earlier.counted
	if found := transition.AppendPod(nil, earlier.Before, earlier.After); counts(found) {
		counted = append(counted, changes{changes: found, at: earlier.Time})
	}
	v.counted = append(counted, v.counted...)
	if excess := len(v.counted) - maxCounted; excess > 0 {
		v.counted = v.counted[excess:]
	}
}

// counts reports whether rules may count one of the changes: an end or a restart of a container, or a condition.
func counts(all []transition.Change) bool {
	for i := range all {
		isCondition := all[i].Container == "" && all[i].From != "" && all[i].To != ""
		if all[i].Exit != nil || all[i].Field == transition.FieldRestartCount || isCondition {
			return true
		}
	}
	return false
}
