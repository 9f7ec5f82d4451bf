package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/heraldnode/herald/podid"
)

// job is one pod's turn: what the node says, and the API server's object as it is best known.
type job struct {
	entry            // a copy, taken under the lock
	known    *v1.Pod // the address book's copy of the API object, or nil
	target   target  // the API object
	rewound  bool    // what the entry says of the object is void
	couldRun bool    // a container may still run
	released bool    // the pod is deleted, and all that must go before its object is gone
}

// target is the object that a request is about.
type target struct {
	name    podid.FullName
	uid     types.UID
	version string        // "" when not known
	status  *v1.PodStatus // nil when not known
	deleted bool          // somebody asked for its deletion
	mirror  bool
}

// look takes stock for the pod's turn. It returns false when there is no object to write to, or not yet: the pod is
// forgotten, or in back-off, or it is a static pod whose mirror does not exist yet (SM-49), or the object is gone.
func (m *Manager) look(uid podid.UID) (job, bool) {
	m.mu.RLock()
	e, found := m.entries[uid]
	if _, isDeleted := m.deleted[uid]; !found || isDeleted {
		m.mu.RUnlock()
		return job{}, false
	}
	j := job{entry: *e}
	m.mu.RUnlock()

	if !m.aim(&j) || j.pause.holds(j.target.uid, time.Now()) {
		return job{}, false
	}
	j.couldRun = m.config.Deletion.PodCouldHaveRunningContainers(uid)
	j.released = j.finished && j.target.deleted && m.config.Deletion.PodResourcesAreReclaimed(j.wholePod(), j.status)
	return j, true
}

// aim finds the job's target.
func (m *Manager) aim(j *job) bool {
	static := podid.IsStatic(j.pod)
	j.known = m.knownCopy(j.uid, j.pod)
	if static && j.known == nil {
		return false
	}
	j.target = target{
		name: podid.FullNameOf(j.pod), uid: types.UID(j.uid), mirror: static, deleted: j.pod.DeletionTimestamp != nil && !static,
	}
	if j.known != nil {
		j.target.uid = j.known.UID
		j.target.version, j.target.status = j.known.ResourceVersion, &j.known.Status
		j.target.deleted = j.target.deleted || j.known.DeletionTimestamp != nil
	}
	j.rewound = j.isRewound()
	if j.object.uid != j.target.uid || j.rewound {
		j.object = object{uid: j.target.uid}
		return true
	}
	j.target.deleted = j.target.deleted || j.object.deleted
	if newer(j.target.version, j.object.version) {
		return true
	}
	if j.object.status != nil {
		j.target.version, j.target.status = j.object.version, j.object.status
	}
	return !j.object.gone
}

// knownCopy is the address book's copy of the API object, or nil. A mirror of an earlier manifest is not that of this
// static pod.
func (m *Manager) knownCopy(uid podid.UID, pod *v1.Pod) *v1.Pod {
	if !podid.IsStatic(pod) {
		known, _ := m.config.Pods.GetPodByUID(uid)
		return known
	}
	mirror, found := m.config.Pods.GetMirrorPodByPod(pod)
	if !found || !podid.IsMirrorOf(mirror, pod) {
		return nil
	}
	return mirror
}

// wholePod is the pod with its spec, if it is known: an entry that an earlier process left has none.
func (j *job) wholePod() *v1.Pod {
	if j.known != nil && !j.target.mirror {
		return j.known
	}
	return j.pod
}

// isRewound reports whether the address book went back to an older version: the server was restored from a backup, and what
// it said before counts no longer (F11).
func (j *job) isRewound() bool {
	return j.known != nil && j.object.shown != "" && newer(j.object.shown, j.known.ResourceVersion)
}

// newer reports whether resource version a is newer than b. Versions that cannot be compared are not: the watch will come
// again, and our own answers are the safer base (BUG-9).
func newer(a, b string) bool {
	if b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
