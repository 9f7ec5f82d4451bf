package history

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// Version is a version of a pod's status that the status manager accepted. Pod and statuses are shared and never modified.
type Version struct {
	UID podid.UID
	Pod *v1.Pod
	// Before is nil if the status manager had no status of the pod.
	Before, After *v1.PodStatus
	// Version identifies After, Previous identifies Before; 0 if there was none. Versions rise with each change of any pod.
	Version, Previous uint64
	Via               transition.Via
	Time              time.Time
	// Removed is set if the status was removed. After is then the last one.
	Removed bool

	// first and count are set if the version stands for several: the oldest version, and their number.
	first uint64
	count int
}

// ack is an acknowledgement that is not written yet.
type ack struct {
	uid     podid.UID
	version uint64
	at      time.Time
}

// nodeChange is a change of the node that is not written yet: two versions of the Node object, or another change.
type nodeChange struct {
	before, after *v1.Node
	other         *transition.Change
	at            time.Time
}

// stop is why the agent stops an instance of a container.
type stop struct{ reason, message string }

// pending is what the writer has not taken yet.
type pending struct {
	versions    []Version
	acks        []ack
	nodes       []nodeChange
	attachments []attachmentResult
	events      []occurrence
	sources     []sourceChange
	alerts      []alertRecord
	actions     []actionRecord
	// known has the pods of the node, once: others were removed while the agent did not run.
	known map[types.UID]bool
	// stops has the reasons by container ID, until the end of the instance is recorded.
	stops map[string]stop
}

// journal takes what happens from the components and keeps it for the writer. No method blocks or does I/O: they run under the
// status manager's lock.
type journal struct {
	ready wakeup.Signal // set when there is something pending

	mu      sync.Mutex // guards all below
	pending pending
	limit   int // length at which the versions are compacted again
}

const (
	// maxPending is the number of versions that wait for the writer as they are. Beyond it, only the first and the last
	// version of each pod are kept.
	maxPending = 4096
	maxAcks    = 4096
	maxStops   = 4096
)

func newJournal() *journal { return &journal{ready: wakeup.New(), limit: maxPending} }

func (j *journal) addVersion(version Version) {
	j.mu.Lock()
	j.pending.versions = append(j.pending.versions, version)
	if len(j.pending.versions) >= j.limit {
		j.pending.versions = compactVersions(j.pending.versions)
		j.limit = max(maxPending, 2*len(j.pending.versions))
	}
	j.mu.Unlock()
	j.ready.Set()
}

func (j *journal) addAck(added ack) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending.acks) < maxAcks { // the next acknowledgement of the pod covers one that is dropped
		j.pending.acks = append(j.pending.acks, added)
	}
	j.ready.Set()
}

func (j *journal) addNode(change nodeChange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.pending.nodes); n >= maxPending && change.other == nil && j.pending.nodes[n-1].other == nil {
		j.pending.nodes[n-1].after = change.after
	} else if n < 2*maxPending {
		j.pending.nodes = append(j.pending.nodes, change)
	}
	j.ready.Set()
}

func (j *journal) addEvent(added occurrence) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending.events) >= maxEvents {
		return false
	}
	j.pending.events = append(j.pending.events, added)
	j.ready.Set()
	return true
}

func (j *journal) addSource(added sourceChange) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending.sources) >= maxSourceChanges {
		return false
	}
	j.pending.sources = append(j.pending.sources, added)
	j.ready.Set()
	return true
}

func (j *journal) setKnown(known map[types.UID]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending.known = known
	j.ready.Set()
}

func (j *journal) addAttachment(result attachmentResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending.attachments = append(j.pending.attachments, result)
	j.ready.Set()
}

func (j *journal) addStop(containerID string, added stop) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pending.stops == nil {
		j.pending.stops = map[string]stop{}
	}
	if len(j.pending.stops) < maxStops {
		j.pending.stops[containerID] = added
	}
}

// takeStop returns why the agent stopped the instance, once.
func (j *journal) takeStop(containerID string) stop {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := j.pending.stops[containerID]
	delete(j.pending.stops, containerID)
	return found
}

// take returns what is pending. spare is reused for what comes next.
func (j *journal) take(spare pending) pending {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.pending
	j.pending = pending{versions: spare.versions[:0], acks: spare.acks[:0], stops: taken.stops}
	j.limit = maxPending
	taken.stops = nil
	return taken
}

func (j *journal) size() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.pending.versions)
}

// compactVersions merges the versions of each pod into one, in the order of their last ones. A removal ends a chain, and a pod
// that is added again begins another.
func compactVersions(versions []Version) []Version {
	open := map[podid.UID]int{} // the index of the version that the next one of the pod is merged into
	isMerged := make([]bool, len(versions))
	for i := range versions {
		version := &versions[i]
		if earlier, found := open[version.UID]; found {
			version.merge(&versions[earlier])
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

// merge makes the version stand for an earlier one too.
func (v *Version) merge(earlier *Version) {
	v.first, v.count = earlier.firstVersion(), earlier.versionCount()+v.versionCount()
	v.Before, v.Previous = earlier.Before, earlier.Previous
}

func (v *Version) firstVersion() uint64 {
	if v.count > 1 {
		return v.first
	}
	return v.Version
}

// versionCount returns the number of versions. A removal is not a version.
func (v *Version) versionCount() int {
	switch {
	case v.count > 0:
		return v.count
	case v.Removed:
		return 0
	default:
		return 1
	}
}
