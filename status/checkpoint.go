package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
)

// checkpointDelay is how long a change stays unsent before it is checkpointed, and the least time between two writes of the
// file. A healthy API server accepts changes sooner, so that usually nothing is written.
const checkpointDelay = time.Second

// checkpointer writes what must survive the process to one file: with an API server the changes that it does not have yet
// (BUG-10), without one every status (BUG-12).
//
// The file never has an older status of a pod than the API server was sent. Otherwise a process that is killed right after
// a request would restore the old status at its next start.
type checkpointer struct {
	store  *checkpoint.Store[checkpointFile] // nil: nothing is checkpointed
	dirty  wakeup.Signal                     // set when the content of the file may change
	saveMu sync.Mutex                        // serializes writes of the file; taken before Manager.mu, held across I/O
	failed bool                              // whether the last write failed; guarded by saveMu

	mu       sync.Mutex           // guards the fields below; taken after Manager.mu
	versions map[podid.UID]uint64 // the versions in the file
	writing  map[podid.UID]uint64 // the versions in the file that is about to replace it; nil if none is
}

type checkpointFile struct {
	Pods []checkpointedPod `json:"pods"`
}

// checkpointedPod is a pod's status, and the metadata that is needed to send it.
type checkpointedPod struct {
	Pod      metav1.ObjectMeta `json:"pod"`
	Status   v1.PodStatus      `json:"status"`
	Finished bool              `json:"finished,omitempty"`
}

func newCheckpointer(dir *checkpoint.Dir) (*checkpointer, error) {
	c := &checkpointer{dirty: wakeup.New(), versions: map[podid.UID]uint64{}}
	if dir == nil {
		return c, nil
	}
	store, err := checkpoint.NewStore[checkpointFile](dir, "pod-statuses", 1)
	if err != nil {
		return nil, fmt.Errorf("open pod status checkpoint: %w", err)
	}
	c.store = store
	return c, nil
}

// hasOther reports whether the file has another version of the pod, or is about to.
func (c *checkpointer) hasOther(uid podid.UID, version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	saved, isSaved := c.versions[uid]
	written, isWritten := c.writing[uid]
	return isSaved && saved != version || isWritten && written != version
}

// finishWriting updates the versions after an attempt to write the file. After a failure it may have the old or the new content.
func (c *checkpointer) finishWriting(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.versions = c.writing
	} else {
		maps.Copy(c.versions, c.writing)
	}
	c.writing = nil
}

// restore loads the statuses that an earlier process left. They are sent only if the pod has ended, or after this process has
// set a status: after a reboot no container exists, whatever the file says. The checkpoint sets an unreadable file aside; its statuses are
// then derived again from the runtime and the API server.
func (m *Manager) restore() {
	if m.checkpoint.store == nil {
		return
	}
	file, err := m.checkpoint.store.Load()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.config.Logger.Error("Failed to load pod status checkpoint, starting without it", "err", err)
		}
		return
	}
	now := time.Now()
	for i := range file.Pods {
		pod := &file.Pods[i]
		m.lastVersion++
		entry := &cacheEntry{
			uid: podid.UID(pod.Pod.UID), pod: &v1.Pod{ObjectMeta: pod.Pod}, status: &pod.Status, finished: pod.Finished, restored: true,
			version: m.lastVersion, ackState: ackState{unacked: 1, unackedSince: now}, changedAt: now, priority: priorityNormal,
		}
		if derive.IsTerminal(pod.Status.Phase) {
			entry.priority = priorityTerminal
		}
		m.entries[entry.uid], m.checkpoint.versions[entry.uid] = entry, entry.version
		m.config.Journal.Accepted(Version{
			UID: entry.uid, Pod: entry.pod, After: entry.status, Version: entry.version, Via: ViaRestore, Time: now,
		})
		m.enqueue(entry.uid, entry.syncPriority())
	}
}

// runCheckpoints writes the file checkpointDelay after a change, until ctx is done.
func (m *Manager) runCheckpoints(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.checkpoint.dirty:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(checkpointDelay):
		}
		if m.saveCheckpoint(checkpointDelay) != nil {
			m.checkpoint.dirty.Set()
		}
	}
}

// checkpointBeforeSend writes the file if it has another version of the pod than the one that is about to be sent. A failing
// disk does not keep a status from being sent.
func (m *Manager) checkpointBeforeSend(uid podid.UID, version uint64) {
	c := m.checkpoint
	if !c.hasOther(uid, version) {
		return
	}
	c.saveMu.Lock()
	defer c.saveMu.Unlock()
	if c.hasOther(uid, version) { // otherwise another sync has written this version too while this one waited
		_ = m.saveCheckpointLocked(checkpointDelay) // it logs the error
	}
}

// saveCheckpoint writes all pods that have been pending for at least minAge to the file.
func (m *Manager) saveCheckpoint(minAge time.Duration) error {
	m.checkpoint.saveMu.Lock()
	defer m.checkpoint.saveMu.Unlock()
	return m.saveCheckpointLocked(minAge)
}

// saveCheckpointLocked is saveCheckpoint with checkpointer.saveMu held.
func (m *Manager) saveCheckpointLocked(minAge time.Duration) error {
	c := m.checkpoint
	if c.store == nil {
		return nil
	}
	err := c.store.Save(m.checkpointContent(minAge))
	c.finishWriting(err)
	if err != nil {
		if !c.failed {
			m.config.Logger.Error("Failed to save pod status checkpoint, will retry", "err", err)
		}
		c.failed = true
		return fmt.Errorf("save pod status checkpoint: %w", err)
	}
	c.failed = false
	return nil
}

// checkpointContent returns the new content of the file. From now on checkpointer.writing has its versions, so that a newer version
// is not sent before the file has it. A pod that has started nothing is left out: its status claims nothing that could get lost.
func (m *Manager) checkpointContent(minAge time.Duration) checkpointFile {
	now := time.Now()
	file, versions := checkpointFile{Pods: []checkpointedPod{}}, map[podid.UID]uint64{}
	m.mu.RLock()
	m.checkpoint.mu.Lock()
	for uid, entry := range m.entries {
		isDue := entry.isPending() && !entry.isUnsendable() && now.Sub(entry.unackedSince) >= minAge
		isStart := entry.unackedContent == contentStart || entry.unackedContent == contentSandbox
		if m.config.API == nil || isDue && !isStart {
			file.Pods = append(file.Pods, checkpointedPod{
				Pod: identityOf(entry.pod), Status: *entry.status, Finished: entry.finished,
			})
			versions[uid] = entry.version
		}
	}
	m.checkpoint.writing = versions
	m.checkpoint.mu.Unlock()
	m.mu.RUnlock()
	slices.SortFunc(file.Pods, func(a, b checkpointedPod) int { return strings.Compare(string(a.Pod.UID), string(b.Pod.UID)) })
	return file
}

// identityOf returns the metadata that identifies the API object of the pod's status.
func identityOf(pod *v1.Pod) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, DeletionTimestamp: pod.DeletionTimestamp,
	}
	for _, key := range []string{podid.SourceAnnotation, podid.HashAnnotation} {
		if value, found := pod.Annotations[key]; found {
			metav1.SetMetaDataAnnotation(&meta, key, value)
		}
	}
	return meta
}
