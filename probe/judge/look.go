package judge

import (
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// Container is what is seen of the probe's container now.
type Container struct {
	// ID is zero while there is none.
	ID        observed.ContainerID
	State     observed.State
	StartedAt time.Time
	// Started tells that its startup probe has passed, or that it has none; of a startup probe's own container, that an
	// earlier agent saw it pass (PRB-12).
	Started bool
	// Reachable tells that there is an address to check, or that none is needed.
	Reachable bool
	// Delay holds the first check back (PRB-4).
	Delay time.Duration
}

// Look decides what to do about the container as it is now: to check it, or to look again at that time, if nothing is
// heard of it before.
func (p Probe) Due(c Container, now time.Time) (next Probe, check bool, again time.Time) {
	later := now.Add(p.rules.Period)
	if c.ID == (observed.ContainerID{}) { // PRB-11
		return p, false, later
	}
	if c.ID != p.container {
		p = p.meet(c, now)
	}
	p.ended = c.State == observed.Exited
	if p.ended && p.rules.Kind == Readiness { // PRB-14
		p.verdict = derive.ProbeFailure
	}
	if c.State == observed.Running && p.began.IsZero() {
		p.began = now.Add(-max(0, now.Sub(c.StartedAt))) // once, so that no clock that is set changes it (F14)
	}
	if p.rests(c) {
		return p, false, later
	}
	begin := p.earliest
	if delayed := p.began.Add(p.rules.firstAfter()); delayed.After(begin) { // PRB-15
		begin = delayed
	}
	if begin.After(now) {
		return p, false, begin
	}
	p.earliest = later // BUG-36
	return p, true, time.Time{}
}

// meet begins with a container that was not seen before. Nothing is carried over from the one before it (BUG-22), and
// there is no verdict until a check gives one: until then what was published about this very container stands (I16).
func (p Probe) meet(c Container, now time.Time) Probe {
	next := Probe{rules: p.rules, container: c.ID}
	if c.Delay > 0 {
		next.earliest = now.Add(c.Delay)
	}
	if p.rules.Kind == Startup && c.Started && c.State == observed.Running {
		next.verdict, next.held = derive.ProbeSuccess, true
	}
	return next
}

// rests reports whether there is nothing to check, whatever the time is. A container without an address is not checked:
// it would be another process that answers (PRB-30).
func (p Probe) rests(c Container) bool {
	gated := p.rules.Kind != Startup && !c.Started
	return p.held || gated || !c.Reachable || c.State != observed.Running
}

// Next is when to look again after a check.
func (p Probe) NextCheck() time.Time { return p.earliest }
