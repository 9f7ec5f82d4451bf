package allocation

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// Config configures a Manager. Every field is optional.
type Config struct {
	// State stores the allocations across restarts. Nil keeps them in memory only.
	State *checkpoint.Dir
	// Pod returns a desired pod whose resources may be changed now. Without it, no resize is decided.
	Pod func(podid.UID) (*v1.Pod, bool)
	// Decide returns why the node does not give the pod its desired resources now, or nil if it does. Defaults to accepting.
	Decide func(pod *v1.Pod) *resize.Verdict
	// OnResize is called when the allocation or a resize condition of a pod changed: the pod needs a sync. It must not block.
	// Defaults to a no-op.
	OnResize func(podid.UID)
	// Events receives what becomes of resizes. Defaults to event.Discard.
	Events event.Recorder
	// Logger receives errors that are not returned to a caller. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the Manager's metrics. Nil registers none.
	Metrics prometheus.Registerer
}

// Manager records the resources allocated to the pods of this node and the state of their resizes.
//
// Every method may be called from any goroutine. Setters of allocations and resize statuses wait for the disk; readers
// never do. Create one with New.
type Manager struct {
	config  Config
	metrics *metrics

	log *checkpoint.Log[entries] // nil: memory only
	// actuationMu serializes changes of what is not actuated: they depend on what was before. saveMu serializes writes of the
	// checkpoint. They are taken in this order before mu, and are the only locks held across I/O.
	actuationMu, saveMu sync.Mutex

	mu       sync.Mutex // guards all below
	data     entries
	pending  []*update                   // changes that the next write of the checkpoint includes
	removed  map[podid.UID]bool          // pods that the checkpoint still has
	admitted map[podid.UID]podAllocation // allocations that are not written yet: no container of the pod has started
	resizes  map[podid.UID]derive.Resize
	queue    []podid.UID // pods whose resizes are not accepted yet, in no order
}

// update is a change of the data. done and err are set by the write that includes it, under Manager.saveMu.
type update struct {
	change entries
	done   bool
	err    error
}

// ResizeStatus is the decision about a pod resize, as Kubernetes v1.27 to v1.32 reported it. Later releases report
// conditions.
type ResizeStatus = v1.PodResizeStatus //nolint:staticcheck // SM-84 is about the releases that had it

// entries are the content of the checkpoint, or a change of it (SM-85).
type entries struct {
	Allocations map[podid.UID]podAllocation `json:"allocationEntries,omitempty"`
	// ResizeStatuses has an empty status for one that is removed.
	ResizeStatuses map[podid.UID]ResizeStatus `json:"resizeStatusEntries,omitempty"`
	// Unactuated has what runtime and cgroup last accepted where it differs from the allocation: a resize in progress. It is
	// written together with the allocation, so that a crash loses neither (BUG-127). An empty State removes a pod's.
	Unactuated map[podid.UID]resize.State `json:"unactuatedEntries,omitempty"`
	// Removed pods lose everything before the rest of the change applies.
	Removed []podid.UID `json:"removed,omitempty"`
}

func newEntries() entries {
	return entries{
		Allocations: map[podid.UID]podAllocation{}, ResizeStatuses: map[podid.UID]ResizeStatus{},
		Unactuated: map[podid.UID]resize.State{},
	}
}

func (e *entries) apply(change entries) {
	for _, uid := range change.Removed {
		delete(e.Allocations, uid)
		delete(e.ResizeStatuses, uid)
		delete(e.Unactuated, uid)
	}
	maps.Copy(e.Allocations, change.Allocations)
	for uid, state := range change.Unactuated {
		if len(state) == 0 {
			delete(e.Unactuated, uid)
		} else {
			e.Unactuated[uid] = state
		}
	}
	for uid, status := range change.ResizeStatuses {
		if status == "" {
			delete(e.ResizeStatuses, uid)
		} else {
			e.ResizeStatuses[uid] = status
		}
	}
}

// New returns a Manager with the allocations that an earlier process left in Config.State. An unreadable checkpoint is an
// error: an agent that does not know its allocations must not run (SM-81).
func New(config Config) (*Manager, error) {
	config.Events = cmp.Or(config.Events, event.Discard)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.OnResize == nil {
		config.OnResize = func(podid.UID) {}
	}
	if config.Decide == nil {
		config.Decide = func(*v1.Pod) *resize.Verdict { return nil }
	}
	m := &Manager{
		config: config, metrics: newMetrics(), data: newEntries(), removed: map[podid.UID]bool{},
		admitted: map[podid.UID]podAllocation{}, resizes: map[podid.UID]derive.Resize{},
	}
	if err := m.load(config.State); err != nil {
		return nil, err
	}
	if err := m.metrics.register(config.Metrics, m); err != nil {
		return nil, err
	}
	return m, nil
}

// checkpointVersion is 2 because version 1 had no changes, and its readers would find the file damaged.
const checkpointVersion = 2

func (m *Manager) load(dir *checkpoint.Dir) (err error) {
	if dir == nil {
		return nil
	}
	if m.log, err = checkpoint.NewLog[entries](dir, "pod-allocations", checkpointVersion); err != nil {
		return fmt.Errorf("open pod allocations: %w", err)
	}
	changes, err := m.log.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read pod allocations: %w; drain the node before starting without them", err)
	}
	for _, change := range changes {
		m.data.apply(change)
	}
	return nil
}

// SetPodAllocation records the resources of the pod's spec as allocated: those of the pod and of all its containers, or
// none if the checkpoint cannot be written (SM-83).
func (m *Manager) SetPodAllocation(pod *v1.Pod) error {
	return m.allocate(podid.UID(pod.UID), newPodAllocation(&pod.Spec), nil)
}

// allocate records an allocation, and what is not actuated of it.
func (m *Manager) allocate(uid podid.UID, allocated podAllocation, unactuated map[podid.UID]resize.State) error {
	err := m.update(entries{Allocations: map[podid.UID]podAllocation{uid: allocated}, Unactuated: unactuated})
	if err == nil {
		m.mu.Lock()
		delete(m.admitted, uid)
		m.mu.Unlock()
	}
	return err
}

// AdmitPod allocates the resources of the pod's spec without waiting for the disk, unless the pod has an allocation already.
// EnsurePodAllocation writes it.
func (m *Manager) AdmitPod(pod *v1.Pod) {
	uid, allocated := podid.UID(pod.UID), newPodAllocation(&pod.Spec)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data.Allocations[uid] == nil && m.admitted[uid] == nil {
		m.admitted[uid] = allocated
	}
}

// EnsurePodAllocation writes the allocation of an admitted pod to the checkpoint, if it is not there yet. A pod that was never
// admitted because it is running already is allocated what its spec asks for.
func (m *Manager) EnsurePodAllocation(pod *v1.Pod) error {
	uid := podid.UID(pod.UID)
	m.mu.Lock()
	isSaved, admitted := m.data.Allocations[uid] != nil, m.admitted[uid]
	m.mu.Unlock()
	switch {
	case isSaved:
		return nil
	case admitted != nil:
		return m.allocate(uid, admitted, nil)
	default:
		return m.SetPodAllocation(pod)
	}
}

// AllocatedPod returns the pod with its allocated resources in place of the requested ones. It returns the argument itself
// if they are equal or if nothing was allocated yet; found is false in the latter case.
func (m *Manager) AllocatedPod(pod *v1.Pod) (allocatedPod *v1.Pod, found bool) {
	allocated := m.podAllocation(podid.UID(pod.UID))
	if allocated == nil || allocated.matches(&pod.Spec) {
		return pod, allocated != nil
	}
	allocatedPod = pod.DeepCopy()
	allocated.applyTo(&allocatedPod.Spec)
	return allocatedPod, true
}

// GetContainerResourceAllocation returns a copy of the requests that the container was allocated (SM-82).
func (m *Manager) GetContainerResourceAllocation(uid podid.UID, container string) (v1.ResourceList, bool) {
	allocated, found := m.podAllocation(uid)[container]
	return allocated.Requests.DeepCopy(), found
}

// SetPodResizeStatus records the decision about the pod's resize. An empty status removes it (SM-84).
func (m *Manager) SetPodResizeStatus(uid podid.UID, status ResizeStatus) error {
	return m.update(entries{ResizeStatuses: map[podid.UID]ResizeStatus{uid: status}})
}

// GetPodResizeStatus returns the last decision about the pod's resize (SM-84).
func (m *Manager) GetPodResizeStatus(uid podid.UID) (ResizeStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	status, found := m.data.ResizeStatuses[uid]
	return status, found
}

// RemovePod removes everything recorded for the pod. The checkpoint drops it with its next write (SM-86, SM-87).
func (m *Manager) RemovePod(uid podid.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(uid)
	delete(m.resizes, uid)
	delete(m.admitted, uid)
	m.queue = slices.DeleteFunc(m.queue, func(queued podid.UID) bool { return queued == uid })
}

// RemoveOrphanedPods removes everything recorded for pods whose UID is not in remaining (SM-86, SM-94).
func (m *Manager) RemoveOrphanedPods(remaining map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.data.Allocations {
		if !remaining[types.UID(uid)] {
			m.removeLocked(uid)
		}
	}
	for uid := range m.data.ResizeStatuses {
		if !remaining[types.UID(uid)] {
			m.removeLocked(uid)
		}
	}
	maps.DeleteFunc(m.resizes, func(uid podid.UID, _ derive.Resize) bool { return !remaining[types.UID(uid)] })
	maps.DeleteFunc(m.admitted, func(uid podid.UID, _ podAllocation) bool { return !remaining[types.UID(uid)] })
}

func (m *Manager) removeLocked(uid podid.UID) {
	_, hasAllocation := m.data.Allocations[uid]
	_, hasStatus := m.data.ResizeStatuses[uid]
	if !hasAllocation && !hasStatus {
		return
	}
	m.data.apply(entries{Removed: []podid.UID{uid}})
	if m.log != nil {
		m.removed[uid] = true
	}
}

// update applies the change after it was written to the checkpoint. If the write fails, nothing changes. A write is as large
// as the change, however many pods there are, and concurrent updates share one.
func (m *Manager) update(change entries) error {
	own := &update{change: change}
	m.mu.Lock()
	m.pending = append(m.pending, own)
	m.mu.Unlock()
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	if !own.done {
		m.saveBatch()
	}
	return own.err
}

// saveBatch writes and applies the pending changes. The caller holds saveMu.
func (m *Manager) saveBatch() {
	m.mu.Lock()
	batch, removed := m.pending, m.removed
	m.pending, m.removed = nil, map[podid.UID]bool{}
	m.mu.Unlock()
	change := newEntries()
	for _, update := range batch {
		maps.Copy(change.Allocations, update.change.Allocations)
		maps.Copy(change.ResizeStatuses, update.change.ResizeStatuses)
		maps.Copy(change.Unactuated, update.change.Unactuated)
	}
	err := m.save(change, removed)
	m.mu.Lock()
	if err == nil {
		m.data.apply(change)
		m.data.apply(entries{Removed: slices.Collect(maps.Keys(m.removed))}) // during the write
	} else {
		maps.Copy(m.removed, removed)
	}
	m.mu.Unlock()
	for _, update := range batch {
		update.done, update.err = true, err
	}
}

func (m *Manager) save(change entries, removed map[podid.UID]bool) error {
	if m.log == nil {
		return nil
	}
	change.Removed = slices.Sorted(maps.Keys(removed))
	snapshot := func() entries {
		m.mu.Lock()
		defer m.mu.Unlock()
		all := entries{
			Allocations: maps.Clone(m.data.Allocations), ResizeStatuses: maps.Clone(m.data.ResizeStatuses),
			Unactuated: maps.Clone(m.data.Unactuated),
		}
		all.apply(change)
		return all
	}
	if err := m.log.Append(change, snapshot); err != nil {
		return fmt.Errorf("save pod allocations: %w", err)
	}
	return nil
}

func (m *Manager) podAllocation(uid podid.UID) podAllocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.podAllocationLocked(uid)
}

func (m *Manager) podAllocationLocked(uid podid.UID) podAllocation {
	if allocated := m.data.Allocations[uid]; allocated != nil {
		return allocated
	}
	return m.admitted[uid]
}

// podAllocation holds the resources allocated to the containers of a pod, by container name, and to the pod itself under
// podLevel (SM-87). It is immutable once recorded.
type podAllocation map[string]v1.ResourceRequirements

// podLevel is the key of the resources allocated to the pod as a whole. No container has an empty name.
const podLevel = ""

func newPodAllocation(spec *v1.PodSpec) podAllocation {
	allocated := podAllocation{}
	for name, resources := range resourcesOf(spec) {
		allocated[name] = *resources.DeepCopy()
	}
	return allocated
}

// matches reports whether the spec requests exactly the allocated resources.
func (a podAllocation) matches(spec *v1.PodSpec) bool {
	for name, resources := range resourcesOf(spec) {
		if allocated, found := a[name]; found && !equality.Semantic.DeepEqual(&allocated, resources) {
			return false
		}
	}
	_, hadPodLevel := a[podLevel]
	return hadPodLevel == (spec.Resources != nil)
}

// applyTo replaces the resources of the spec by the allocated ones. A container that was not there at the allocation, which only
// an edited manifest of a static pod can have, keeps its own (BUG-125).
func (a podAllocation) applyTo(spec *v1.PodSpec) {
	if _, hadPodLevel := a[podLevel]; hadPodLevel && spec.Resources == nil {
		spec.Resources = &v1.ResourceRequirements{}
	} else if !hadPodLevel {
		spec.Resources = nil
	}
	for name, resources := range resourcesOf(spec) {
		if allocated, found := a[name]; found {
			*resources = *allocated.DeepCopy()
		}
	}
}

// resourcesOf yields the resources of the pod, if it has any of its own, and of each container that can be resized.
func resourcesOf(spec *v1.PodSpec) iter.Seq2[string, *v1.ResourceRequirements] {
	return func(yield func(string, *v1.ResourceRequirements) bool) {
		if spec.Resources != nil && !yield(podLevel, spec.Resources) {
			return
		}
		for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
			for i := range containers {
				if !yield(containers[i].Name, &containers[i].Resources) {
					return
				}
			}
		}
	}
}
