// Package manager creates, repairs and removes the cgroups of a node's pods: the cgroup of all pods, those of the QoS classes
// and one for each pod. The container runtime creates those of containers below them.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/podid"
)

// Config configures a Manager.
type Config struct {
	// NodeName is the name of the node in events.
	NodeName string
	// Root is the cgroup below which kubepods is, the kubelet's cgroupRoot. Defaults to /.
	Root string
	// Driver returns the driver of the container runtime. Required.
	Driver func(context.Context) (string, error)
	// Pods returns the pods of the node with their allocated resources, and whether they are all known. Until they are, the
	// weight of burstable pods is not changed. Default: no pods.
	Pods func() (pods []*v1.Pod, complete bool)
	// IsOrphaned reports whether a pod is neither wanted nor in the runtime, and nothing else of it is left: its cgroup is
	// removed. Default: none is.
	IsOrphaned func(podid.UID) bool
	// IsResizing reports whether the resources of a pod are being changed: its cgroup is left to UpdatePod. Default: none is.
	IsResizing func(podid.UID) bool
	// Available returns what pods may use together. Default: unlimited.
	Available func() v1.ResourceList
	// PodPidsLimit is the maximum number of processes of a pod. Defaults to no limit.
	PodPidsLimit int64
	// NoCPUQuota does not enforce the CPU limits of pods.
	NoCPUQuota bool
	// Period is how often values are compared and repaired. Defaults to 1 minute.
	Period time.Duration

	// Host is what the machine offers. Default: read from the machine.
	Host *cgroup.Host
	// Mount is where cgroups are mounted. Defaults to host.Mount.
	Mount string
	// Events receives whether the limits of all pods are enforced, and a warning on cgroup version 1. Defaults to event.Discard.
	Events event.Recorder
	// Logger receives errors that are not returned to a caller. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the kubelet's metrics of cgroups. Defaults to none.
	Metrics prometheus.Registerer

	mkdir   func(path string) error // os.Mkdir; tests create the kernel's files, too
	systemd unitManager             // the machine's
}

// Manager manages the cgroups below Config.Root. Its methods may be called concurrently.
//
// A machine whose cgroups are not writable, or an agent that may not write them, does not keep pods from running: the first
// failure is logged, and the container runtime is left to do what it can.
type Manager struct {
	config  Config
	metrics *metrics
	node    cgroup.Name
	host    cgroup.Host

	sharedSem chan struct{} // semaphore: one update of the shared cgroups at a time

	mu sync.Mutex // guards what follows
	// wanted counts the requested updates of the shared cgroups. sharedErr is the result of those up to updated.
	wanted, updated int
	sharedErr       error
	disabled        bool                        // cgroups are not writable
	logged          map[string]bool             // topics, see isFirst
	enforced        error                       // the last result of enforcing the limits of all pods
	reported        bool                        // the first result was reported
	removals        map[podid.UID]chan struct{} // orphans that are being removed; closed when done
}

// New returns a Manager. It creates no cgroup.
func New(config Config) (*Manager, error) {
	if config.Driver == nil {
		return nil, errors.New("manager.Config: Driver is required")
	}
	config.Mount = cmp.Or(config.Mount, host.Mount)
	config.Period = cmp.Or(config.Period, time.Minute)
	config.Events = cmp.Or(config.Events, event.Discard)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Pods == nil {
		config.Pods = func() ([]*v1.Pod, bool) { return nil, true }
	}
	if config.IsOrphaned == nil {
		config.IsOrphaned = func(podid.UID) bool { return false }
	}
	if config.IsResizing == nil {
		config.IsResizing = func(podid.UID) bool { return false }
	}
	if config.Available == nil {
		config.Available = func() v1.ResourceList { return nil }
	}
	if config.Host == nil {
		machine, err := host.Read(host.Paths{Mount: config.Mount})
		if err != nil {
			return nil, err
		}
		config.Host = &machine
	}
	if config.mkdir == nil {
		config.mkdir = func(path string) error { return os.Mkdir(path, 0o755) }
	}
	if config.systemd == nil {
		config.systemd = systemd{systemdSocket}
	}
	metrics, err := newMetrics(config.Metrics, *config.Host)
	if err != nil {
		return nil, err
	}
	return &Manager{
		metrics: metrics,
		config:  config, node: cgroup.NodeName(cgroup.ParseName(config.Root)), host: *config.Host, logged: map[string]bool{},
		sharedSem: make(chan struct{}, 1), removals: map[podid.UID]chan struct{}{},
	}, nil
}

// cgroupV1Warning is the message of the kubelet's event (CGR-2).
const cgroupV1Warning = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. " +
	"Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// Run creates the cgroups that pods share, and repairs them and those of pods until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if !m.host.V2 {
		m.config.Events.Event(m.nodeReference(), v1.EventTypeWarning, "CgroupV1", cgroupV1Warning)
	}
	for ctx.Err() == nil {
		if err := m.refresh(ctx); err != nil && ctx.Err() == nil {
			m.config.Logger.Error("Failed to update cgroups", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(m.config.Period):
		}
	}
	return nil
}

// EnsurePod creates the pod's cgroup, or repairs its values (CGR-19, CGR-20).
func (m *Manager) EnsurePod(ctx context.Context, pod *v1.Pod) error {
	if err := checkUID(podid.UID(pod.UID)); err != nil {
		return err
	}
	driver, err := m.config.Driver(ctx)
	if err != nil {
		return err
	}
	if driver == cgroup.DriverSystemd && strings.Contains(string(pod.UID), "_") { // the name must be reversible
		return fmt.Errorf("set up cgroup of pod %s: the UID %s must not contain an underscore with the driver systemd",
			podid.FullNameOf(pod).Key(), pod.UID)
	}
	if err := m.awaitRemoval(ctx, podid.UID(pod.UID)); err != nil {
		return fmt.Errorf("set up cgroup of pod %s: %w", podid.FullNameOf(pod).Key(), err)
	}
	// A value of the shared cgroups that cannot be set must not keep a pod from starting: Run retries and logs it. If they
	// cannot be created, neither can the pod's.
	_ = m.isFatal(m.ensureShared(ctx, driver))
	name := cgroup.PodName(m.node, derive.QOSClass(pod), podid.UID(pod.UID))
	if err := m.apply(ctx, driver, name, m.podResources(pod)); m.isFatal(err) {
		return fmt.Errorf("set up cgroup of pod %s: %w", podid.FullNameOf(pod).Key(), err)
	}
	return nil
}

// podResources returns the values of the pod's cgroup. A quota that is not enforced is removed, as by the kubelet (CGR-15).
func (m *Manager) podResources(pod *v1.Pod) cgroup.Resources {
	resources := cgroup.PodResources(pod, m.config.PodPidsLimit)
	if m.config.NoCPUQuota && resources.CPUQuota != nil {
		resources.CPUQuota = new(int64(-1))
	}
	return resources
}

// RemovePod removes the pod's cgroup. The pod's containers must have exited: processes that are left are killed (CGR-22).
func (m *Manager) RemovePod(ctx context.Context, uid podid.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	driver, err := m.config.Driver(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range cgroup.PodNames(m.node, uid) {
		errs = append(errs, m.remove(ctx, driver, name))
	}
	if err := errors.Join(errs...); m.isFatal(err) {
		return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
	}
	return nil
}

// KillContainers kills the processes that are left of containers of the pod. The runtime must have reported the containers as
// exited. Their cgroups are left to the runtime.
func (m *Manager) KillContainers(ctx context.Context, uid podid.UID, containerIDs []string) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	driver, err := m.config.Driver(ctx)
	if err != nil {
		return err
	}
	var dirs []string
	for _, name := range cgroup.PodNames(m.node, uid) {
		for _, dir := range m.find(name.Path(driver)) {
			dirs = append(dirs, containerDirs(dir, containerIDs)...)
		}
	}
	if err := killProcesses(ctx, dirs); m.isFatal(err) {
		return fmt.Errorf("kill processes of exited containers of pod %s: %w", uid, err)
	}
	return nil
}

// checkUID rejects a UID that would lead out of the parent.
func checkUID(uid podid.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), `/*?[\`) {
		return fmt.Errorf("cgroup of pod %q: invalid UID", uid)
	}
	return nil
}

// refresh updates the shared cgroups and the pod cgroups that exist, and removes those of orphaned pods.
func (m *Manager) refresh(ctx context.Context) error {
	driver, err := m.config.Driver(ctx)
	if err != nil {
		return err
	}
	errs := []error{m.ensureShared(ctx, driver)}
	pods, _ := m.config.Pods()
	for _, pod := range pods {
		name := cgroup.PodName(m.node, derive.QOSClass(pod), podid.UID(pod.UID))
		if checkUID(podid.UID(pod.UID)) != nil || !m.exists(name.Path(driver)) || m.config.IsResizing(podid.UID(pod.UID)) {
			continue
		}
		errs = append(errs, m.apply(ctx, driver, name, m.podResources(pod)))
	}
	errs = append(errs, m.removeOrphans(ctx, driver))
	if err := errors.Join(errs...); m.isFatal(err) {
		return err
	}
	return nil
}

// ensureShared creates or updates the cgroups that pods share. An update looks at all pods, so that pods that start together
// share one that begins after the last of them has arrived.
func (m *Manager) ensureShared(ctx context.Context, driver string) error {
	m.mu.Lock()
	m.wanted++
	own := m.wanted
	m.mu.Unlock()
	select {
	case m.sharedSem <- struct{}{}:
		defer func() { <-m.sharedSem }()
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	isUpdated, err, newest := m.updated >= own, m.sharedErr, m.wanted
	m.mu.Unlock()
	if isUpdated {
		return err
	}
	err = m.updateShared(ctx, driver)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updated, m.sharedErr = newest, err
	return err
}

// updateShared creates or updates the cgroup of all pods and those of the QoS classes (CGR-7, CGR-8, CGR-9).
func (m *Manager) updateShared(ctx context.Context, driver string) error {
	available := m.config.Available()
	nodeErr := m.apply(ctx, driver, m.node, cgroup.NodeResources(available))
	if available != nil && !isUnwritable(nodeErr) && !m.isDisabled() {
		m.report(nodeErr)
	}
	errs := []error{nodeErr}
	pods, complete := m.config.Pods()
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		resources := cgroup.QOSResources(class, pods, m.host.HugePageSizes)
		if class == v1.PodQOSBurstable && !complete {
			resources.CPUShares = nil // pods that run may be missing from the sum
		}
		errs = append(errs, m.apply(ctx, driver, cgroup.QOSName(m.node, class), resources))
	}
	return errors.Join(errs...)
}

// report records an event when the result of enforcing the limits of all pods changes (CGR-7).
func (m *Manager) report(err error) {
	m.mu.Lock()
	isNew := !m.reported || (err == nil) != (m.enforced == nil)
	m.reported, m.enforced = true, err
	m.mu.Unlock()
	if !isNew {
		return
	}
	node := m.nodeReference()
	if err != nil {
		m.config.Events.Event(node, v1.EventTypeWarning, "FailedNodeAllocatableEnforcement",
			fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", m.node, err))
		return
	}
	m.config.Events.Event(node, v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
}

// nodeReference is the object of events about the node.
func (m *Manager) nodeReference() *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", Name: m.config.NodeName, UID: types.UID(m.config.NodeName)}
}

// isFatal reports whether the caller must fail. It disables the Manager if cgroups are not writable.
func (m *Manager) isFatal(err error) bool {
	switch {
	case err == nil || m.isDisabled():
		return false
	case isUnwritable(err):
		m.mu.Lock()
		m.disabled = true
		m.mu.Unlock()
		m.config.Logger.Warn("Cgroups are not writable: pods run without cgroups of their own", "err", err)
		return false
	}
	return true
}

// isUnwritable reports whether the agent may not write cgroups, or none can.
func isUnwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func (m *Manager) isDisabled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disabled
}

// isFirst reports whether it is called for the first time with this topic, so that a message is logged once.
func (m *Manager) isFirst(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	isKnown := m.logged[topic]
	m.logged[topic] = true
	return !isKnown
}
