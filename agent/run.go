package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// part is one of those that make an agent by running side by side.
type part struct {
	name string
	run  func(context.Context) error
}

// Run is the agent at work. It returns when ctx has ended and so has all that it started; the containers live on. What is
// known of the pods by then is still told, for as long as the status manager's flush may take. An agent without one of
// its parts is none: when one ends of itself, the others end too, and the error says which it was.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelling()
	doers, tellers := group{stop: stop}, group{stop: stop}
	tellers.run(telling, part{"statuses", a.Statuses.Run})
	for _, p := range a.parts() {
		doers.run(ctx, p)
	}
	err := doers.wait()
	stopTelling()
	return errors.Join(err, tellers.wait())
}

func (a *Agent) parts() []part {
	parts := []part{
		{"health", a.health.watch}, {"pleg", a.PLEG.Run}, {"probes", a.Prober.Run}, {"workers", a.Workers.Run}, {"sources", a.Sources.Run},
		{"dispatch", a.dispatch}, {"heed", a.heed},
	}
	if a.config.API != nil {
		parts = append(parts, part{"mirrors", a.Mirrors.Run})
	}
	if runtime, can := a.config.Runtime.(GarbageCollector); can {
		parts = append(parts, part{"garbage collector", func(ctx context.Context) error { return a.tidy(ctx, runtime) }})
	}
	if a.volumes != nil {
		parts = append(parts, part{"volumes", a.removeVolumes})
	}
	return parts
}

// group runs parts side by side and collects what went wrong.
type group struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex // guards err
	err     error
}

func (g *group) run(ctx context.Context, p part) {
	g.running.Go(func() {
		defer g.stop()
		err := p.run(ctx)
		switch {
		case ctx.Err() == nil && err == nil:
			err = errors.New("ended although nobody asked for it")
		case err == nil, errors.Is(err, context.Canceled):
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = errors.Join(g.err, fmt.Errorf("agent: %s: %w", p.name, err))
	})
}

func (g *group) wait() error {
	g.running.Wait()
	return g.err
}
