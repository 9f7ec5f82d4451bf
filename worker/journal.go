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

// journal remembers which containers were begun that must not run twice, before they are (BUG-41). It is asked only when the
// runtime has lost the very sandbox that they were begun in: as long as that is known, the runtime tells what came of them.
//
// Static pods are not in it: a manifest that is put back asks for another run.
//
// Any goroutine may call the methods. saving is held while the file is written: who waits for it finds the own entry written
// along with the neighbour's.
type journal struct {
	store *checkpoint.Store[entries] // nil: nothing outlives the agent

	saving sync.Mutex // guards saved
	saved  uint64     // the newest change that is on disk

	mu      sync.Mutex // guards all below
	pods    entries
	changes uint64
}

type entries map[podid.UID]map[string]begun

// begun is the instance of a container that was last begun.
type begun struct {
	Sandbox      string    `json:"sandbox"`
	RestartCount int       `json:"restartCount,omitzero"`
	At           time.Time `json:"at"`
}

// openJournal reads what earlier agents have begun. A file that cannot be read is set aside by its store and told by err; the
// journal is empty then.
func openJournal(dir *checkpoint.Dir) (j *journal, err error) {
	j = &journal{pods: entries{}}
	if dir == nil {
		return j, nil
	}
	if j.store, err = checkpoint.NewStore[entries](dir, "begun", 1); err != nil {
		return j, err
	}
	pods, err := j.store.Load()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if pods != nil {
		j.pods = pods
	}
	return j, err
}

// begin writes down that the container is about to be started, if it must not run twice.
func (j *journal) begin(pod *v1.Pod, sandbox string, start plan.Start, now time.Time) error {
	if !plan.RunsOnce(pod, start) || podid.IsStatic(pod) {
		return nil
	}
	j.mu.Lock()
	of := maps.Clone(j.pods[podid.UID(pod.UID)]) // the map that is there may be being written
	if of == nil {
		of = map[string]begun{}
	}
	of[start.Container.Name] = begun{Sandbox: sandbox, RestartCount: start.RestartCount, At: now}
	j.pods[podid.UID(pod.UID)] = of
	j.mu.Unlock()
	if err := j.save(); err != nil {
		return fmt.Errorf("write down that container %s is begun: %w", start.Container.Name, err)
	}
	return nil
}

// keep forgets all pods but those.
func (j *journal) keep(wanted func(podid.UID) bool) error {
	j.mu.Lock()
	before := len(j.pods)
	maps.DeleteFunc(j.pods, func(uid podid.UID, _ map[string]begun) bool { return !wanted(uid) })
	pruned := len(j.pods) < before
	j.mu.Unlock()
	if !pruned {
		return nil
	}
	return j.save()
}

// save returns when all changes that were made before the call are on disk.
func (j *journal) save() error {
	j.mu.Lock()
	j.changes++
	mine := j.changes
	j.mu.Unlock()
	j.saving.Lock()
	defer j.saving.Unlock()
	if j.store == nil || j.saved >= mine {
		return nil
	}
	j.mu.Lock()
	newest, pods := j.changes, maps.Clone(j.pods)
	j.mu.Unlock()
	if err := j.store.Save(pods); err != nil {
		return err
	}
	j.saved = newest
	return nil
}

// recall is the pod's status with the containers that were begun and of which nobody can tell any more: as if they had been
// seen running, for that they are gone now is all that is left to see. It is the same status if there are none.
func (j *journal) recall(pod *v1.Pod, status *v1.PodStatus, seen *observed.Pod) *v1.PodStatus {
	j.mu.Lock()
	of := j.pods[podid.UID(pod.UID)]
	j.mu.Unlock()
	for name, b := range of {
		switch {
		case slices.ContainsFunc(seen.Containers, func(c observed.Container) bool { return c.Name == name }):
		case slices.ContainsFunc(seen.Sandboxes, func(s observed.Sandbox) bool { return s.ID == b.Sandbox }):
			j.retract(podid.UID(pod.UID), name) // it came to nothing
		case !wasTold(status, name):
			status = withRunning(status, name, b)
		}
	}
	return status
}

// retract forgets a container. The file follows with the next change: until then it says of a container that could run what
// nobody asks for while its sandbox is known.
func (j *journal) retract(uid podid.UID, name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := maps.Clone(j.pods[uid])
	delete(of, name)
	j.pods[uid] = of
}

// wasTold reports whether the status already says that the container ran.
func wasTold(status *v1.PodStatus, name string) bool {
	return slices.ContainsFunc(status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == name && (c.State.Waiting == nil || c.LastTerminationState.Terminated != nil)
	})
}

func withRunning(status *v1.PodStatus, name string, b begun) *v1.PodStatus {
	status = status.DeepCopy()
	status.ContainerStatuses = slices.DeleteFunc(status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.Name == name })
	status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
		Name: name, RestartCount: int32(b.RestartCount),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(b.At)}},
	})
	return status
}
