package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/eviction/manager"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// Agent is a node agent. Its components may be queried at any time.
type Agent struct {
	Pods        *pod.Manager
	Statuses    *status.Manager
	Allocations *allocation.Manager
	Workers     *worker.Workers
	PLEG        *pleg.PLEG
	Mirrors     *mirror.Reconciler
	Prober      *probe.Prober
	Sources     *source.Mux
	Evictions   *manager.Manager // nil unless runtime and volumes can be measured

	config  Config
	health  *runtimeHealth
	starts  *startTracker
	changes *podChanges
	volumes *volumeCleaner // nil without Config.Volumes
	loop    dispatchLoop
}

// New creates the components of an agent and reads Config.State. It starts nothing.
func New(config Config) (*Agent, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config: config, Pods: pod.NewManager(), health: newRuntimeHealth(config.Runtime, config.OnRuntimeHealth), changes: newPodChanges(),
		loop: dispatchLoop{retryResizes: wakeup.New()},
	}
	if config.Volumes != nil {
		a.volumes = newVolumeCleaner(config.Volumes)
	}
	for _, init := range []func() error{
		a.initSources, a.initPLEG, a.initAllocations, a.initStatuses, a.initProber, a.initWorkers, a.initMirrors, a.initEvictions,
		a.registerMetrics,
	} {
		if err := init(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Agent) initSources() (err error) {
	a.Sources, err = source.NewMux(source.MuxConfig{
		Sources: a.config.Sources, NodeName: a.config.NodeName, OnProblem: a.config.OnSourceProblem,
		Events: a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	})
	return err
}

func (a *Agent) initPLEG() (err error) {
	a.PLEG, err = pleg.New(pleg.Config{
		Runtime: a.config.Runtime, OnFresh: a.config.OnRuntimeHealth, Logger: a.config.Logger, Metrics: a.config.Metrics,
	})
	if err == nil {
		a.health.isPLEGStale = a.PLEG.Stale
	}
	return err
}

func (a *Agent) initAllocations() (err error) {
	a.Allocations, err = allocation.New(allocation.Config{
		State: a.config.State, Pod: a.resizablePod, Decide: a.decideResize, OnResize: func(uid podid.UID) { a.Workers.Wake(uid) },
		Events: a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	})
	return err
}

func (a *Agent) initStatuses() (err error) {
	config := status.Config{
		Pods: a.Pods, Deletion: deletionSafety{a}, Allocations: a.Allocations, Journal: changeJournal{a.changes, a.config.Journal},
		OnSync: a.config.OnSync, Delays: a.config.StatusDelays, State: a.config.State,
		Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.API != nil {
		config.API = a.config.API
	}
	a.Statuses, err = status.New(config)
	return err
}

func (a *Agent) initProber() (err error) {
	config := probe.Config{
		PodCache: a.PLEG, Statuses: a.Statuses, Wake: func(uid podid.UID) { a.Workers.Wake(uid) }, NodeInfo: a.config.NodeInfo,
		OnAnswer: a.config.OnProbeAnswer, AllowNodeAddresses: a.config.AllowNodeAddresses, Events: a.config.Events,
		Logger: a.config.Logger, Metrics: a.config.ProbeMetrics,
	}
	if runtime, ok := a.config.Runtime.(check.Runtime); ok {
		config.Runtime = runtime
	}
	a.Prober, err = probe.New(config)
	return err
}

func (a *Agent) initWorkers() (err error) {
	config := worker.Config{
		Runtime: a.config.Runtime, PodCache: a.PLEG, Statuses: a.Statuses, Probes: a.Prober,
		Admit: a.admit, Allocated: a.allocatedPod, Resizes: resizes{a},
		NodeInfo: a.config.NodeInfo, NetworkReady: a.health.networkError,
		OnPodStopped: func(uid podid.UID, name podid.FullName) {
			a.Mirrors.Enqueue(name) // PW-43
			a.loop.retryResizes.Set()
			a.config.OnPodStopped(uid)
		},
		OnContainerStop: a.config.OnContainerStop,
		State:           a.config.State, Resync: a.config.Resync,
		Events: a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.volumes != nil {
		config.Volumes = a.volumes
	}
	a.Workers, err = worker.New(config)
	return err
}

func (a *Agent) initMirrors() (err error) {
	config := mirror.Config{
		NodeName: a.config.NodeName, Pods: a.Pods, Terminating: a.Workers.IsTerminating,
		StaticSourcesReady: func() bool { return a.Sources.Ready(podid.File) && a.Sources.Ready(podid.HTTP) },
		Events:             a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.API != nil {
		config.API = a.config.API
	}
	if a.config.MirrorAPI != nil {
		config.API = a.config.MirrorAPI
	}
	a.Mirrors, err = mirror.New(config)
	return err
}

func (a *Agent) initEvictions() (err error) {
	containers, hasContainers := a.config.Runtime.(manager.Containers)
	volumes, hasVolumes := a.config.Volumes.(manager.Volumes)
	if !hasContainers || !hasVolumes {
		return nil
	}
	a.Evictions, err = manager.New(manager.Config{
		Pods: a.runningPods, Volumes: volumes, Containers: containers, Pressure: a.pressureConfig(),
		Kill: func(ctx context.Context, pod *v1.Pod, gracePeriod time.Duration, setStatus func(*v1.PodStatus)) error {
			return a.Workers.KillPod(ctx, pod, plan.KillOptions{GracePeriod: &gracePeriod, Evict: true, StatusFunc: setStatus})
		},
		Events: a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	})
	return err
}

// pressureConfig returns the configuration of evictions under pressure with what the agent knows itself.
func (a *Agent) pressureConfig() *manager.PressureConfig {
	if a.config.Pressure == nil {
		return nil
	}
	config := *a.config.Pressure
	config.Allocated = func(pod *v1.Pod) *v1.Pod { // EVI-15
		if allocated, found := a.Allocations.AllocatedPod(pod); found {
			return allocated
		}
		return pod
	}
	config.IsFinished = func(pod *v1.Pod) bool { return a.Workers.IsFinished(podid.UID(pod.UID)) }
	if collector, ok := a.config.Runtime.(GarbageCollector); ok {
		config.ReclaimContainers = func(ctx context.Context) error { return a.reclaimContainers(ctx, collector) }
	}
	return &config
}

// runningPods returns the pods that should run and may use the node's disk.
func (a *Agent) runningPods() []*v1.Pod {
	var pods []*v1.Pod
	for _, state := range a.Workers.Pods() {
		if state.Pod != nil && state.Stage == plan.Syncing && state.Admitted {
			allocated, _ := a.Allocations.AllocatedPod(state.Pod) // RSZ-2
			pods = append(pods, allocated)
		}
	}
	return pods
}

func (a *Agent) registerMetrics() (err error) {
	if a.starts, err = newStartTracker(a.config.Runtime, a.config.Metrics); err != nil {
		return err
	}
	if a.config.Metrics == nil {
		return nil
	}
	collectors := []prometheus.Collector{a.Pods.Collector()}
	if a.volumes != nil {
		collectors = append(collectors, a.volumes.orphans, a.volumes.failures)
	}
	for _, collector := range collectors {
		if err := a.config.Metrics.Register(collector); err != nil {
			return fmt.Errorf("agent: register metrics: %w", err)
		}
	}
	return nil
}

// deletionSafety implements status.DeletionSafety with the workers, which are created after the status manager.
type deletionSafety struct{ agent *Agent }

func (s deletionSafety) PodCouldHaveRunningContainers(uid podid.UID) bool {
	return s.agent.Workers.PodCouldHaveRunningContainers(uid)
}

func (s deletionSafety) PodResourcesAreReclaimed(pod *v1.Pod, status *v1.PodStatus) bool {
	return s.agent.Workers.PodResourcesAreReclaimed(pod, status)
}

// Run runs the agent until ctx ends and returns when everything that it started has ended. Containers keep running. Pending
// statuses are still sent, within the flush timeout of the status manager. If a component exits, Run stops the others and
// returns its error. Run must be called only once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	statusCtx, stopStatuses := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStatuses()
	components, statuses := componentGroup{stop: stop}, componentGroup{stop: stop}
	statuses.run(statusCtx, component{"statuses", a.Statuses.Run})
	for _, c := range a.components() {
		components.run(ctx, c)
	}
	err := components.wait()
	stopStatuses() // last, to send what the other components reported
	return errors.Join(err, statuses.wait())
}

// component is a part of the agent that runs in its own goroutine.
type component struct {
	name string
	run  func(context.Context) error
}

func (a *Agent) components() []component {
	components := []component{
		{"health", a.health.run}, {"pleg", a.PLEG.Run}, {"probes", a.Prober.Run}, {"workers", a.Workers.Run},
		{"sources", a.Sources.Run}, {"dispatch", a.dispatch}, {"wake-ups", a.wakeChangedPods},
	}
	if a.config.API != nil {
		components = append(components, component{"mirrors", a.Mirrors.Run})
	}
	if collector, ok := a.config.Runtime.(GarbageCollector); ok {
		run := func(ctx context.Context) error { return a.collectGarbage(ctx, collector) }
		components = append(components, component{"garbage collector", run})
	}
	if a.volumes != nil {
		components = append(components, component{"volumes", a.cleanUpVolumes})
	}
	if a.Evictions != nil {
		components = append(components, component{"evictions", a.Evictions.Run})
	}
	return components
}

// componentGroup runs components concurrently and joins their errors.
type componentGroup struct {
	stop    context.CancelFunc // called when a component exits
	running sync.WaitGroup
	mu      sync.Mutex // guards err
	err     error
}

func (g *componentGroup) run(ctx context.Context, c component) {
	g.running.Go(func() {
		defer g.stop()
		err := c.run(ctx)
		switch {
		case ctx.Err() == nil && err == nil:
			err = errors.New("exited unexpectedly")
		case err == nil, errors.Is(err, context.Canceled):
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = errors.Join(g.err, fmt.Errorf("agent: %s: %w", c.name, err))
	})
}

func (g *componentGroup) wait() error {
	g.running.Wait()
	return g.err
}

// NetworkReady returns what keeps pods from getting a network, or nil.
func (a *Agent) NetworkReady() error { return a.health.networkError() }

// Healthy returns what keeps the agent from running pods, or nil.
func (a *Agent) Healthy() error { return errors.Join(a.PLEG.Healthy(), a.health.runtimeError()) }

// LocalPods returns the desired pods and those that are still on the node, sorted by namespace, name and UID. Each has the
// status that the node knows, which may be newer than that of the API server (PM-16).
func (a *Agent) LocalPods() []*v1.Pod {
	pods := a.Pods.GetPods()
	desired := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		desired[pod.UID] = true
	}
	for _, state := range a.Workers.Pods() {
		if state.Pod != nil && !desired[types.UID(state.UID)] {
			pods = append(pods, state.Pod)
		}
	}
	local := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		local = append(local, a.LocalPod(pod))
	}
	slices.SortFunc(local, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return local
}

// LocalPodByUID returns the pod with this UID, or whose mirror pod has it, if LocalPods has the pod.
func (a *Agent) LocalPodByUID(uid types.UID) (*v1.Pod, bool) {
	podUID := a.Pods.TranslatePodUID(uid)
	pod, found := a.Pods.GetPodByUID(podUID)
	if !found {
		state, _ := a.Workers.Pod(podUID)
		pod = state.Pod
	}
	if pod == nil {
		return nil, false
	}
	return a.LocalPod(pod), true
}

// LocalPod returns a copy of a pod of Pods or Workers with its local status, as in LocalPods.
func (a *Agent) LocalPod(pod *v1.Pod) *v1.Pod {
	podStatus := pod.Status
	if cached, found := a.Statuses.GetPodStatus(pod.UID); found {
		podStatus = cached
	}
	if !a.Statuses.IsObserved(pod.UID) {
		podStatus = derive.AfterBoot(pod, podStatus, a.config.BootTime)
	}
	return localPod(pod, podStatus)
}

// localPod returns a copy of the pod with the status. A pod that was not created by an API server is as old as its start on
// this node.
func localPod(pod *v1.Pod, podStatus v1.PodStatus) *v1.Pod {
	local := *pod
	local.Status = podStatus
	if local.CreationTimestamp.IsZero() && podStatus.StartTime != nil {
		local.CreationTimestamp = *podStatus.StartTime
	}
	return &local
}

// WatchLocalPods yields the pods of LocalPods as added, and then every change, until ctx ends.
func (a *Agent) WatchLocalPods(ctx context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		changes := a.Statuses.Changes(ctx) // subscribe before the list: a change may be yielded twice but is never missed
		known := map[types.UID]bool{}
		for _, pod := range a.LocalPods() {
			known[pod.UID] = true
			if !yield(watch.Event{Type: watch.Added, Object: pod}) {
				return
			}
		}
		for change := range changes {
			if !yield(newWatchEvent(change, known)) {
				return
			}
		}
	}
}

// newWatchEvent converts a change to an event. known holds the pods that were yielded and is updated.
func newWatchEvent(change status.Change, known map[types.UID]bool) watch.Event {
	uid := types.UID(change.UID)
	event := watch.Event{Type: watch.Modified, Object: localPod(change.Pod, *change.Status)}
	switch {
	case change.Removed:
		event.Type = watch.Deleted
		delete(known, uid)
	case !known[uid]:
		event.Type = watch.Added
		known[uid] = true
	}
	return event
}
