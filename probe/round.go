package probe

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// attempts is how often a round tries to find something out (PRB-18).
const attempts = 3

// round checks one container once, tells what came of it, and sees to it that it is looked at again. What comes of a
// check that was stopped means nothing.
func (p *Prober) round(ctx context.Context, probe *probe, target check.Target) {
	began := time.Now()
	found := p.find(ctx, probe, target)
	if ctx.Err() == nil {
		p.learn(probe, target.ID, found, time.Since(began))
	}
	p.end(probe)
}

// find asks until there is an answer, each time for no longer than the probe's timeout.
func (p *Prober) find(ctx context.Context, probe *probe, target check.Target) (found check.Outcome) {
	for range attempts {
		found = p.ask(ctx, probe, target)
		if found.Result != judge.Error || ctx.Err() != nil {
			break
		}
	}
	return found
}

// ask survives whatever a check does (PRB-7).
func (p *Prober) ask(ctx context.Context, probe *probe, target check.Target) (found check.Outcome) {
	defer func() {
		if broken := recover(); broken != nil {
			p.config.Logger.Error("Check broke", "pod", probe.pod.Name, "namespace", probe.pod.Namespace,
				"container", probe.container.Name, "probe", probe.kind, "panic", broken, "stack", string(debug.Stack()))
			found = check.Outcome{Result: judge.Error, Message: fmt.Sprint(broken)}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, judge.Timeout(probe.spec))
	defer cancel()
	return p.checker.Check(ctx, probe.spec, target)
}

// learn takes what was found, and tells it.
func (p *Prober) learn(probe *probe, about observed.ContainerID, found check.Outcome, took time.Duration) {
	p.mu.Lock()
	if probe.stopped {
		p.mu.Unlock()
		return
	}
	p.metrics.count(probe, found, took)
	state, changed := probe.state.Record(about, found.Result)
	probe.state = state
	if changed {
		p.openGateLocked(probe)
	}
	p.mu.Unlock()
	p.report(probe, about, found)
	if changed {
		p.tell(probe, about, state.Result(about) == derive.ProbeSuccess)
	}
}

// tell is PRB-40: the status hears first, then whoever acts on it. A container that is alive is no news.
func (p *Prober) tell(probe *probe, about observed.ContainerID, passed bool) {
	switch probe.kind {
	case judge.Startup:
		p.config.Statuses.SetContainerStartup(probe.pod.UID, about, passed)
	case judge.Readiness:
		p.config.Statuses.SetContainerReadiness(probe.pod.UID, about, passed)
	case judge.Liveness:
		if passed {
			return
		}
	}
	p.config.Wake(probe.uid())
}

// end makes room for the next round, of this probe or of what took its place.
func (p *Prober) end(probe *probe) {
	p.mu.Lock()
	probe.cancel()
	for probe.heir != nil {
		probe.cancel, probe = nil, probe.heir
	}
	probe.cancel = nil
	if probe.stopped {
		p.mu.Unlock()
		return
	}
	next := probe.state.NextCheck()
	if probe.poked {
		next = time.Now()
	}
	probe.poked = false
	p.due.set(probe, next)
	earliest := p.due[0] == probe
	p.mu.Unlock()
	if earliest {
		p.lookAgain()
	}
}
