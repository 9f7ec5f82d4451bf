package agent

import (
	"errors"

	"github.com/heraldnode/herald/allocation"
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

// Agent is one node's agent. Its parts may be asked at any time; Run is called once.
type Agent struct {
	Pods        *pod.Manager
	Statuses    *status.Manager
	Allocations *allocation.Manager
	Workers     *worker.Workers
	PLEG        *pleg.PLEG
	Mirrors     *mirror.Reconciler
	Prober      *probe.Prober
	Sources     *source.Mux

	config  Config
	health  *health
	volumes *volumes // nil: pods have none
}

// New makes an agent of its parts. Nothing is started yet; what an earlier agent left in Config.State is read.
func New(config Config) (*Agent, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{config: config, Pods: pod.NewManager(), health: newHealth(config.Runtime)}
	if config.Volumes != nil {
		a.volumes = &volumes{Volumes: config.Volumes, removed: map[podid.UID]chan struct{}{}}
	}
	for _, build := range []func() error{
		a.makeSources, a.makePLEG, a.makeAllocations, a.makeStatuses, a.makeProber, a.makeWorkers, a.makeMirrors, a.registerMetrics,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Agent) makeSources() (err error) {
	a.Sources, err = source.NewMux(source.MuxConfig{
		Sources: a.config.Sources, Events: a.config.Events, NodeName: a.config.NodeName,
		Logger: a.config.Logger, Metrics: a.config.Metrics,
	})
	return err
}

func (a *Agent) makePLEG() (err error) {
	a.PLEG, err = pleg.New(pleg.Config{Runtime: a.config.Runtime, Logger: a.config.Logger, Metrics: a.config.Metrics})
	return err
}

func (a *Agent) makeAllocations() (err error) {
	a.Allocations, err = allocation.New(allocation.Config{State: a.config.State, Metrics: a.config.Metrics})
	return err
}

func (a *Agent) makeStatuses() (err error) {
	config := status.Config{
		Pods: a.Pods, Deletion: safety{a}, Allocations: a.Allocations, State: a.config.State, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.API != nil {
		config.API = a.config.API
	}
	a.Statuses, err = status.New(config)
	return err
}

func (a *Agent) makeProber() (err error) {
	config := probe.Config{
		PodCache: a.PLEG, Statuses: a.Statuses, Wake: func(uid podid.UID) { a.Workers.Wake(uid) }, NodeInfo: a.config.NodeInfo,
		Events: a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if runtime, can := a.config.Runtime.(check.Runtime); can {
		config.Runtime = runtime
	}
	a.Prober, err = probe.New(config)
	return err
}

func (a *Agent) makeWorkers() (err error) {
	config := worker.Config{
		Runtime: a.config.Runtime, PodCache: a.PLEG, Statuses: a.Statuses, Probes: a.Prober,
		Admit: a.config.Admit, Allocated: a.allocated, ResizeState: a.Allocations.ResizeState, NodeInfo: a.config.NodeInfo, NetworkReady: a.health.network, OnPodStopped: a.stopped,
		Resync: a.config.Resync,
		Events: a.config.Events, State: a.config.State, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.volumes != nil {
		config.Volumes = a.volumes
	}
	a.Workers, err = worker.New(config)
	return err
}

func (a *Agent) makeMirrors() (err error) {
	config := mirror.Config{
		NodeName: a.config.NodeName, Pods: a.Pods, Terminating: a.Workers.IsTerminating,
		StaticSourcesReady: func() bool { return a.Sources.Ready(podid.File) && a.Sources.Ready(podid.HTTP) },
		Events:             a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.API != nil {
		config.API = a.config.API
	}
	a.Mirrors, err = mirror.New(config)
	return err
}

func (a *Agent) registerMetrics() error {
	if a.config.Metrics == nil {
		return nil
	}
	return a.config.Metrics.Register(a.Pods.Collector())
}

// NetworkReady says what keeps pods from getting a network, or nil.
func (a *Agent) NetworkReady() error { return a.health.network() }

// Healthy says what keeps the agent from doing its work, or nil.
func (a *Agent) Healthy() error { return errors.Join(a.PLEG.Healthy(), a.health.runtime()) }
