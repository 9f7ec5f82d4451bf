package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// Agent is one node's agent. Its parts may be asked at any time; Run is called once.
type Agent struct {
	Pods     *pod.Manager
	Statuses *status.Manager
	Workers  *worker.Workers
	Pleg     *pleg.Pleg
	Mirrors  *pod.Mirrors
	Sources  *source.Mux

	config Config
	health *health
}

// New makes an agent of its parts. Nothing is started yet; what an earlier agent left in Config.State is read.
func New(config Config) (*Agent, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{config: config, Pods: pod.NewManager(), health: newHealth(config.Runtime)}
	for _, build := range []func() error{a.makeSources, a.makePleg, a.makeStatuses, a.makeWorkers, a.makeMirrors, a.registerMetrics} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Agent) makeSources() (err error) {
	a.Sources, err = source.NewMux(source.MuxConfig{
		Sources: a.config.Sources, Events: a.config.Events, Node: a.config.NodeName,
		Logger: a.config.Logger, Metrics: a.config.Metrics,
	})
	return err
}

func (a *Agent) makePleg() (err error) {
	a.Pleg, err = pleg.New(pleg.Config{Runtime: a.config.Runtime, Logger: a.config.Logger, Metrics: a.config.Metrics})
	return err
}

func (a *Agent) makeStatuses() (err error) {
	config := status.Config{
		Pods: a.Pods, Deletion: safety{a}, State: a.config.State, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.API != nil {
		config.API = a.config.API
	}
	a.Statuses, err = status.New(config)
	return err
}

func (a *Agent) makeWorkers() (err error) {
	config := worker.Config{
		Runtime: a.config.Runtime, Observations: a.Pleg, Statuses: a.Statuses, Probes: a.config.Probes,
		Admit: a.config.Admit, Node: a.config.Node, NetworkReady: a.health.network, Stopped: a.stopped,
		Events: a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.Volumes != nil {
		config.Volumes = a.config.Volumes
	}
	a.Workers, err = worker.New(config)
	return err
}

func (a *Agent) makeMirrors() (err error) {
	config := pod.MirrorConfig{
		NodeName: a.config.NodeName, Pods: a.Pods, Terminating: a.Workers.IsTerminating,
		StaticSourcesReady: func() bool { return a.Sources.Ready(podid.File) && a.Sources.Ready(podid.HTTP) },
		Events:             a.config.Events, Logger: a.config.Logger, Metrics: a.config.Metrics,
	}
	if a.config.API != nil {
		config.API = a.config.API
	}
	a.Mirrors, err = pod.NewMirrors(config)
	return err
}

func (a *Agent) registerMetrics() error {
	if a.config.Metrics == nil {
		return nil
	}
	return a.config.Metrics.Register(a.Pods.Collector())
}

// Healthy says what keeps the agent from doing its work, or nil.
func (a *Agent) Healthy() error { return errors.Join(a.Pleg.Healthy(), a.health.runtime()) }

// Run is the agent at work. It returns when ctx has ended and so has all that it started; the containers live on. What is
// known of the pods by then is still told, for as long as status.Config.FlushTimeout allows.
func (a *Agent) Run(ctx context.Context) error {
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelling()
	var tellers group
	tellers.run(telling, a.Statuses.Run)

	var workers group
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, run := range []func(context.Context) error{
		a.health.watch, a.Pleg.Run, a.Workers.Run, a.Mirrors.Run, a.Sources.Run, a.dispatch, a.heed, a.keepHouse,
	} {
		workers.run(ctx, func(ctx context.Context) error {
			defer stop() // an agent without one of its parts is none
			return run(ctx)
		})
	}
	err := workers.wait()
	stopTelling()
	return errors.Join(err, tellers.wait())
}

// group runs parts side by side and collects what went wrong.
type group struct {
	running sync.WaitGroup
	mu      sync.Mutex // guards err
	err     error
}

func (g *group) run(ctx context.Context, part func(context.Context) error) {
	g.running.Go(func() {
		if err := part(ctx); err != nil && !errors.Is(err, context.Canceled) {
			g.mu.Lock()
			g.err = errors.Join(g.err, err)
			g.mu.Unlock()
		}
	})
}

func (g *group) wait() error {
	g.running.Wait()
	return g.err
}
