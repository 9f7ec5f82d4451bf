package probe

import (
	"context"
	"sync"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/probe/judge"
)

// breath is the least time between two looks at the clock, so that probes that are due at nearly the same time begin
// together: to wake up for each costs a good part of what a check does.
const breath = 10 * time.Millisecond

// Run probes until ctx ends, and returns when all checks have. Checks hang on ctx alone, not on a pod's sync: what ends a
// sync does not end probing (PRB-8, BUG-25).
func (p *Prober) Run(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.more:
		case <-timer.C:
		}
		if next := p.work(ctx, &checks); !next.IsZero() {
			timer.Reset(max(time.Until(next), breath))
		}
	}
}

// work does what is due and returns when there is more.
func (p *Prober) work(ctx context.Context, checks *sync.WaitGroup) time.Time {
	for ctx.Err() == nil {
		p.mu.Lock()
		probe, next := p.due.take(time.Now())
		p.mu.Unlock()
		if probe == nil {
			return next
		}
		p.look(ctx, probe, checks)
	}
	return time.Time{}
}

// look begins a check if it is time for one, and tells what can be said without.
func (p *Prober) look(ctx context.Context, probe *probe, checks *sync.WaitGroup) {
	s := p.see(probe)
	p.mu.Lock()
	check, changed := p.lookLocked(probe, s)
	if check {
		checking, cancel := context.WithCancel(ctx)
		probe.cancel = cancel
		s.target.RetryRefused = probe.kind != judge.Liveness && probe.state.Result(s.target.ID) != derive.ProbeSuccess
		checks.Go(func() { p.round(checking, probe, s.target) })
	}
	p.mu.Unlock()
	if changed {
		p.config.Wake(probe.uid())
	}
}

func (p *Prober) lookLocked(probe *probe, s sight) (check, changed bool) {
	if probe.stopped {
		return false, false
	}
	now := time.Now()
	container := p.containerLocked(probe, s, now)
	verdict := probe.state.Result(container.ID)
	var again time.Time
	probe.state, check, again = probe.state.Due(container, now)
	poked := probe.place >= 0 // since it was taken: what was seen may be old by now
	switch {
	case check:
		probe.poked = poked
		p.due.remove(probe)
	case !poked:
		p.due.set(probe, again)
	}
	changed = verdict != probe.state.Result(container.ID)
	if changed {
		p.openGateLocked(probe)
	}
	return check, changed
}

// openGateLocked has the other probes of a container looked at when its startup probe has spoken: they waited for it.
func (p *Prober) openGateLocked(startup *probe) {
	if startup.kind != judge.Startup || startup.stopped {
		return
	}
	for _, probe := range p.pods[startup.uid()].probes {
		if probe.container.Name == startup.container.Name && probe != startup {
			p.pokeLocked(probe)
		}
	}
	p.lookAgain()
}

// pokeLocked has the probe looked at now, or when the check that is under way has ended. That is not more often than its
// period allows (BUG-36).
func (p *Prober) pokeLocked(probe *probe) {
	switch {
	case probe.stopped:
	case probe.cancel != nil:
		probe.poked = true
	default:
		p.due.set(probe, time.Now())
	}
}

// stopLocked ends the probe and the check that is under way (BUG-23).
func (p *Prober) stopLocked(probe *probe) {
	probe.stopped = true
	p.due.remove(probe)
	if probe.cancel != nil {
		probe.cancel()
	}
}

func (p *Prober) lookAgain() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}
