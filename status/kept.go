package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
)

// keepDelay is how long a change may be unsent before it is kept on disk, and how often the file is written at most. A
// healthy API server takes changes faster, so that as a rule nothing is written at all.
const keepDelay = time.Second

// kept is what must survive the process: with an API server the changes that it does not show yet (BUG-10), without one
// every status (BUG-12). It is one file, written when its content changed.
//
// The file never holds an older status of a pod than the API server was sent: a process that is killed right after would
// otherwise bring the old one back at its next start.
type kept struct {
	store   *checkpoint.Store[keptFile] // nil: nothing is kept
	dirty   chan struct{}               // capacity 1: look again
	turn    chan struct{}               // capacity 1: full while the file is being written
	failing bool                        // whether the last write failed; owned by whoever has the turn

	mu       sync.Mutex           // guards versions; taken inside Manager.mu
	versions map[podid.UID]uint64 // what the file has, or may have when it is being written
}

type keptFile struct {
	Pods []keptPod `json:"pods"`
}

// keptPod is one pod's status with as much of the pod as is needed to send it.
type keptPod struct {
	Pod      metav1.ObjectMeta `json:"pod"`
	Status   v1.PodStatus      `json:"status"`
	Finished bool              `json:"finished,omitempty"`
}

func openKept(dir *checkpoint.Dir) (*kept, error) {
	k := &kept{dirty: make(chan struct{}, 1), turn: make(chan struct{}, 1), versions: map[podid.UID]uint64{}}
	if dir == nil {
		return k, nil
	}
	store, err := checkpoint.NewStore[keptFile](dir, "pod-statuses", 1)
	if err != nil {
		return nil, fmt.Errorf("keep pod statuses: %w", err)
	}
	k.store = store
	return k, nil
}

// mark says that something may have to be kept.
func (k *kept) mark() { lookAgain(k.dirty) }

// has is the pod's version in the file.
func (k *kept) has(uid podid.UID) (version uint64, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	version, found = k.versions[uid]
	return version, found
}

// keepLoop writes the file a while after changes, until ctx ends.
func (m *Manager) keepLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.kept.dirty:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keepDelay):
		}
		if m.keep(keepDelay) != nil {
			m.kept.mark()
		}
	}
}

// keepAll writes the file with all that is unsent, as the last thing that the manager does.
func (m *Manager) keepAll() error { return m.keep(0) }

// keepAhead sees to it that the file has no older version of a pod than the one that is about to be sent. A disk that fails
// does not keep a status from being sent.
func (m *Manager) keepAhead(uid podid.UID, version uint64) {
	if in, found := m.kept.has(uid); found && in != version {
		_ = m.keep(keepDelay) // logged there
	}
}

// keep writes the file: all open pods whose change is at least that old.
func (m *Manager) keep(minAge time.Duration) error {
	k := m.kept
	if k.store == nil {
		return nil
	}
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	file, versions := m.toKeep(minAge)
	if err := k.store.Save(file); err != nil {
		if !k.failing {
			m.config.Logger.Error("Pod statuses cannot be kept on disk; trying again until they can", "err", err)
		}
		k.failing = true
		return fmt.Errorf("keep pod statuses: %w", err)
	}
	k.failing = false
	k.mu.Lock()
	defer k.mu.Unlock()
	k.versions = versions
	return nil
}

// toKeep is what the file should have. Its versions count from now on: what is accepted and sent later is newer.
func (m *Manager) toKeep(minAge time.Duration) (keptFile, map[podid.UID]uint64) {
	now := time.Now()
	file, versions := keptFile{Pods: []keptPod{}}, map[podid.UID]uint64{}
	m.mu.RLock()
	m.kept.mu.Lock()
	for uid, e := range m.entries {
		if m.config.API == nil || (e.isOpen() && !e.isLost() && now.Sub(e.unsentSince) >= minAge) {
			file.Pods = append(file.Pods, keptPod{Pod: identity(e.pod), Status: *e.status, Finished: e.finished})
			versions[uid], m.kept.versions[uid] = e.version, e.version
		}
	}
	m.kept.mu.Unlock()
	m.mu.RUnlock()
	slices.SortFunc(file.Pods, func(a, b keptPod) int { return strings.Compare(string(a.Pod.UID), string(b.Pod.UID)) })
	return file, versions
}
