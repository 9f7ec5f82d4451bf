package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// journal is the run-once journal: it records the start of containers that must not run twice, before they are started
// (BUG-41). It is consulted only when the runtime has lost the sandbox of such a container. As long as the sandbox is known,
// the runtime reports the container's outcome.
//
// Static pods are not recorded: a manifest that is re-added requests another run.
//
// All methods are safe for concurrent use. saveMu is held during a write, so that concurrent saves are batched into one write,
// which is as large as what has changed.
type journal struct {
	log *checkpoint.Log[journalEntries] // nil if nothing is persisted

	saveMu sync.Mutex // guards saved
	saved  uint64     // version that is on disk

	mu      sync.Mutex // guards the fields below
	entries journalEntries
	changed map[podid.UID]bool // pods whose entries differ from those on disk
	version uint64
}

// journalEntries holds the last start of each container by pod UID and container name. In a change, a pod without map was
// removed. Inner maps are copied on write because a save may be reading them.
type journalEntries map[podid.UID]map[string]journalEntry

type journalEntry struct {
	Sandbox      string    `json:"sandbox"`
	RestartCount int       `json:"restartCount,omitzero"`
	At           time.Time `json:"at"`
}

// openJournal reads the journal. The returned journal is usable even with an error: the store has set a corrupt file aside, and
// the journal is empty.
func openJournal(dir *checkpoint.Dir) (j *journal, err error) {
	j = &journal{entries: journalEntries{}, changed: map[podid.UID]bool{}}
	if dir == nil {
		return j, nil
	}
	const version = 2 // version 1 had no changes
	if j.log, err = checkpoint.NewLog[journalEntries](dir, "begun", version); err != nil {
		return j, err
	}
	changes, err := j.log.Load()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, change := range changes {
		maps.Copy(j.entries, change)
	}
	maps.DeleteFunc(j.entries, func(_ podid.UID, containers map[string]journalEntry) bool { return containers == nil })
	return j, err
}

// recordStart persists that the container is about to be started, if it must not run twice.
func (j *journal) recordStart(pod *v1.Pod, sandboxID string, start plan.Start, now time.Time) error {
	if !plan.RunsOnce(pod, start) || podid.IsStatic(pod) {
		return nil
	}
	uid := podid.UID(pod.UID)
	j.mu.Lock()
	containers := maps.Clone(j.entries[uid])
	if containers == nil {
		containers = map[string]journalEntry{}
	}
	containers[start.Container.Name] = journalEntry{Sandbox: sandboxID, RestartCount: start.RestartCount, At: now}
	j.entries[uid], j.changed[uid] = containers, true
	j.mu.Unlock()
	if err := j.save(); err != nil {
		return fmt.Errorf("record start of container %s: %w", start.Container.Name, err)
	}
	return nil
}

// prune deletes the entries of all pods for which keep returns false.
func (j *journal) prune(keep func(podid.UID) bool) error {
	j.mu.Lock()
	before := len(j.entries)
	maps.DeleteFunc(j.entries, func(uid podid.UID, _ map[string]journalEntry) bool {
		isRemoved := !keep(uid)
		if isRemoved {
			j.changed[uid] = true
		}
		return isRemoved
	})
	pruned := len(j.entries) < before
	j.mu.Unlock()
	if !pruned {
		return nil
	}
	return j.save()
}

// save returns when all changes that were made before the call are on disk.
func (j *journal) save() error {
	j.mu.Lock()
	j.version++
	wanted := j.version
	j.mu.Unlock()
	j.saveMu.Lock()
	defer j.saveMu.Unlock()
	if j.saved >= wanted {
		return nil
	}
	change := journalEntries{}
	j.mu.Lock()
	version, changed := j.version, j.changed
	j.changed = map[podid.UID]bool{}
	for uid := range changed {
		change[uid] = j.entries[uid]
	}
	j.mu.Unlock()
	if j.log == nil {
		return nil
	}
	if err := j.log.Append(change, j.snapshot); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		maps.Copy(j.changed, changed)
		return err
	}
	j.saved = version
	return nil
}

func (j *journal) snapshot() journalEntries {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.entries)
}

// restore returns the status with the containers that were started and then lost by the runtime. They are added as running,
// so that their disappearance counts as an exit. It returns the same pointer if there are none.
func (j *journal) restore(pod *v1.Pod, status *v1.PodStatus, runtimePod *observed.Pod) *v1.PodStatus {
	uid := podid.UID(pod.UID)
	j.mu.Lock()
	containers := j.entries[uid]
	j.mu.Unlock()
	for name, entry := range containers {
		switch {
		case slices.ContainsFunc(runtimePod.Containers, func(c observed.Container) bool { return c.Name == name }):
		case slices.ContainsFunc(runtimePod.Sandboxes, func(s observed.Sandbox) bool { return s.ID == entry.Sandbox }):
			j.forget(uid, name) // the container was never created
		case !hasRun(status, name):
			status = withRunning(status, name, entry)
		}
	}
	return status
}

// forget deletes the entry of a container. The change is persisted with the next save; until then the entry has no effect
// because the sandbox is known.
func (j *journal) forget(uid podid.UID, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	containers := maps.Clone(j.entries[uid])
	delete(containers, name)
	j.entries[uid], j.changed[uid] = containers, true
}

// hasRun reports whether the status shows that the container ran.
func hasRun(status *v1.PodStatus, name string) bool {
	return slices.ContainsFunc(status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == name && (c.State.Waiting == nil || c.LastTerminationState.Terminated != nil)
	})
}

func withRunning(status *v1.PodStatus, name string, entry journalEntry) *v1.PodStatus {
	status = status.DeepCopy()
	status.ContainerStatuses = slices.DeleteFunc(status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.Name == name })
	status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
		Name: name, RestartCount: int32(entry.RestartCount),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(entry.At)}},
	})
	return status
}
