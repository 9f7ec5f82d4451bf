package judge

import (
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// Result is what one round of checking found.
type Result int

// The results.
const (
	// Success and Failure are the container's own answer, or its silence.
	Success Result = iota + 1
	Failure
	// Error tells that nobody knows: it could not be checked.
	Error
	// Gone tells that there is no such container any more.
	NotFound
)

// erringRounds is how many rounds in a row may find nothing out before a container does not count as ready.
const erringRounds = 3

// Learn takes the result of a round about that container, and reports whether it changed the verdict. A result about
// another container than the one that was seen last means nothing.
func (p Probe) Record(about observed.ContainerID, found Result) (next Probe, changed bool) {
	if about != p.container || p.held || p.ended {
		return p, false
	}
	before := p.verdict
	switch found {
	case NotFound:
		p = p.unready()
	case Error:
		if p.errors++; p.errors >= max(erringRounds, p.rules.FailureThreshold) {
			p = p.unready()
		}
	default:
		p = p.count(found)
	}
	return p, p.verdict != before
}

// unready is BUG-24: a container that cannot be checked for long, or is gone, is not ready. It is not restarted for that:
// the trouble may be the runtime's, and would be every container's.
func (p Probe) unready() Probe {
	if p.rules.Kind == Readiness {
		p.verdict, p.last, p.streak = derive.ProbeFailure, Failure, p.rules.FailureThreshold
	}
	return p
}

// count is PRB-19. A round that found nothing out neither counts nor interrupts (PRB-18).
func (p Probe) count(found Result) Probe {
	p.errors = 0
	if found != p.last {
		p.last, p.streak = found, 0
	}
	p.streak++
	switch {
	case found == Failure && p.streak >= p.rules.FailureThreshold:
		p.verdict = derive.ProbeFailure
		p.held = p.rules.Kind != Readiness // PRB-20
	case found == Success && p.streak >= p.rules.SuccessThreshold:
		p.verdict = derive.ProbeSuccess
		p.held = p.rules.Kind == Startup
	}
	return p
}
