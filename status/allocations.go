package status

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
)

// allocations are the resources that were granted to pods, and what became of requests to change them, durable before a
// setter returns (SM-81..86). Pods that are gone leave the file with its next write.
type allocations struct {
	store *checkpoint.Store[allocationFile] // nil: only in memory
	turn  chan struct{}                     // capacity 1: full while a change is written, so that the newest is on disk

	mu   sync.Mutex // guards file
	file allocationFile
}

// ResizeStatus is the last decision about a change of a pod's resources. Later releases say it in conditions.
type ResizeStatus = v1.PodResizeStatus //nolint:staticcheck // SM-84 is about the releases that had it

type allocationFile struct {
	Allocations map[podid.UID]allocation   `json:"allocationEntries"`
	Resizes     map[podid.UID]ResizeStatus `json:"resizeStatusEntries"`
}

// openAllocations reads the file. One that cannot be read is an error: an agent must not run with allocations that it does
// not know (SM-81).
func openAllocations(dir *checkpoint.Dir) (*allocations, error) {
	a := &allocations{turn: make(chan struct{}, 1)}
	if dir != nil {
		store, err := checkpoint.NewStore[allocationFile](dir, "pod-allocations", 1)
		if err != nil {
			return nil, fmt.Errorf("open pod allocations: %w", err)
		}
		a.store = store
		if a.file, err = store.Load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read pod allocations: %w; drain the node before starting without them", err)
		}
	}
	if a.file.Allocations == nil {
		a.file.Allocations = map[podid.UID]allocation{}
	}
	if a.file.Resizes == nil {
		a.file.Resizes = map[podid.UID]ResizeStatus{}
	}
	return a, nil
}

// change writes the file with the change, and applies it when that worked. Readers do not wait for the disk.
func (a *allocations) change(apply func(*allocationFile)) error {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	if a.store != nil {
		next := a.copied()
		apply(&next)
		if err := a.store.Save(next); err != nil {
			return fmt.Errorf("save pod allocations: %w", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	apply(&a.file)
	return nil
}

func (a *allocations) copied() allocationFile {
	a.mu.Lock()
	defer a.mu.Unlock()
	return allocationFile{Allocations: maps.Clone(a.file.Allocations), Resizes: maps.Clone(a.file.Resizes)}
}

func (a *allocations) of(uid podid.UID) allocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file.Allocations[uid]
}

func (a *allocations) drop(uid podid.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.file.Allocations, uid)
	delete(a.file.Resizes, uid)
}

func (a *allocations) keepOnly(keep map[podid.UID]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.file.Allocations, func(uid podid.UID, _ allocation) bool { return !keep[uid] })
	maps.DeleteFunc(a.file.Resizes, func(uid podid.UID, _ ResizeStatus) bool { return !keep[uid] })
}

// GetContainerResourceAllocation is what the container may count on. The result is the caller's (SM-82).
func (m *Manager) GetContainerResourceAllocation(uid podid.UID, container string) (v1.ResourceList, bool) {
	granted, found := m.allocations.of(uid)[container]
	return granted.Requests.DeepCopy(), found
}

// SetPodAllocation records the resources of the pod and its containers as granted, all of them or, when the disk fails,
// none (SM-83).
func (m *Manager) SetPodAllocation(pod *v1.Pod) error {
	granted := askedBy(&pod.Spec)
	return m.allocations.change(func(f *allocationFile) { f.Allocations[podid.UID(pod.UID)] = granted })
}

// Allocated is the pod with the resources that it was granted, which is the very pod unless it asks for others by now.
// known is false when nothing was granted yet.
func (m *Manager) Allocated(pod *v1.Pod) (allocated *v1.Pod, known bool) {
	granted := m.allocations.of(podid.UID(pod.UID))
	if granted == nil || granted.suits(&pod.Spec) {
		return pod, granted != nil
	}
	allocated = pod.DeepCopy()
	granted.replace(&allocated.Spec)
	return allocated, true
}

// GetPodResizeStatus is the last decision about a change of the pod's resources (SM-84).
func (m *Manager) GetPodResizeStatus(uid podid.UID) (ResizeStatus, bool) {
	m.allocations.mu.Lock()
	defer m.allocations.mu.Unlock()
	decision, found := m.allocations.file.Resizes[uid]
	return decision, found
}

// SetPodResizeStatus records the decision; an empty one forgets it (SM-84).
func (m *Manager) SetPodResizeStatus(uid podid.UID, decision ResizeStatus) error {
	return m.allocations.change(func(f *allocationFile) {
		if decision == "" {
			delete(f.Resizes, uid)
		} else {
			f.Resizes[uid] = decision
		}
	})
}
