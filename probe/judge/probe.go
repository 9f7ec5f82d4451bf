package judge

import (
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// maxErrors is how many checks in a row may end with an error before a container counts as not ready.
const maxErrors = 3

// Container is the observed state of the probe's container.
type Container struct {
	// ID is zero if there is no container.
	ID        observed.ContainerID
	State     observed.State
	StartedAt time.Time
	// Started reports that the startup probe succeeded or does not exist. For a startup probe itself, it reports that the
	// probe succeeded under an earlier agent (PRB-12).
	Started bool
	// Reachable reports that the container has an address to check, or needs none.
	Reachable bool
	// Delay postpones the first check (PRB-4).
	Delay time.Duration
}

// Probe is the state of one probe. It is an immutable value: methods return the next state. Create it with New.
type Probe struct {
	params Params

	// The following describe the container that was observed last.
	container observed.ContainerID
	result    derive.ProbeResult
	// onHold reports that no check is done until another container is observed.
	onHold bool
	// exited reports that the container exited, so that the result of a check in flight is obsolete.
	exited bool
	// paused reports that there was nothing to check when the container was last observed.
	paused bool
	// lastResult was found resultRun times in a row. errorRun counts consecutive checks with an error.
	lastResult          Result
	resultRun, errorRun int
	// runningSince is when the container started, on the monotonic clock. Zero if it was not observed running.
	runningSince time.Time
	// nextCheck is the earliest time of the next check.
	nextCheck time.Time
}

// New returns a probe that has not observed a container.
func New(params Params) Probe { return Probe{params: params, paused: true} }

// Result returns the result of the container with this ID.
func (p Probe) Result(id observed.ContainerID) derive.ProbeResult {
	if id != p.container {
		return derive.ProbeUnknown
	}
	return p.result
}

// LastResult returns the container that was observed last and its result.
func (p Probe) LastResult() (observed.ContainerID, derive.ProbeResult) {
	return p.container, p.result
}

// NextCheck returns the earliest time of the next check.
func (p Probe) NextCheck() time.Time { return p.nextCheck }

// NextDue returns when the next check is due if the container stays as it was last observed. It is zero if none is: there is no
// running container, the probe waits for the startup probe, or it has its final result.
func (p Probe) NextDue() time.Time {
	if p.paused || p.onHold || p.exited {
		return time.Time{}
	}
	return p.earliest()
}

// earliest returns the earliest time of the next check of a running container (PRB-15).
func (p Probe) earliest() time.Time {
	if delayed := p.runningSince.Add(p.params.firstCheckDelay()); delayed.After(p.nextCheck) {
		return delayed
	}
	return p.nextCheck
}

// Streak returns the last result that counts and how often it was found in a row. The result is zero if there was none.
func (p Probe) Streak() (last Result, count int) { return p.lastResult, p.resultRun }

// Errors returns how many checks in a row ended with an error (PRB-18).
func (p Probe) Errors() int { return p.errorRun }

// Threshold returns how many of these results in a row decide.
func (p Probe) Threshold(result Result) int {
	if result == Success {
		return p.params.SuccessThreshold
	}
	return p.params.FailureThreshold
}

// WithParams returns the probe with other parameters. The result is kept, the counters are reset.
func (p Probe) WithParams(params Params) Probe {
	p.nextCheck = p.nextCheck.Add(params.Period - p.params.Period)
	p.params, p.lastResult, p.resultRun, p.errorRun = params, 0, 0, 0
	return p
}

// Due reports whether to check the container now. If not, retryAt is when to ask again, unless the container changes before.
func (p Probe) Due(container Container, now time.Time) (next Probe, due bool, retryAt time.Time) {
	nextPeriod := now.Add(p.params.Period)
	if container.ID == (observed.ContainerID{}) { // PRB-11
		p.paused = true
		return p, false, nextPeriod
	}
	if container.ID != p.container {
		p = p.withContainer(container, now)
	}
	p.exited = container.State == observed.Exited
	if p.exited && p.params.Kind == Readiness { // PRB-14
		p.result = derive.ProbeFailure
	}
	if container.State == observed.Running && p.runningSince.IsZero() {
		// Computed once, so that setting the clock does not change it (F14).
		p.runningSince = now.Add(-max(0, now.Sub(container.StartedAt)))
	}
	if p.paused = p.isPaused(container); p.paused {
		return p, false, nextPeriod
	}
	if start := p.earliest(); start.After(now) {
		return p, false, start
	}
	p.nextCheck = nextPeriod // BUG-36
	return p, true, time.Time{}
}

// withContainer starts over with a new container. Nothing is carried over from the previous one (BUG-22). There is no result
// until a check yields one: until then, the published status of this container stands (I16).
func (p Probe) withContainer(container Container, now time.Time) Probe {
	next := Probe{params: p.params, container: container.ID}
	if container.Delay > 0 {
		next.nextCheck = now.Add(container.Delay)
	}
	if p.params.Kind == Startup && container.Started && container.State == observed.Running {
		next.result, next.onHold = derive.ProbeSuccess, true
	}
	return next
}

// isPaused reports whether there is nothing to check, whatever the time. A container without an address is not checked: some
// other process could respond (PRB-30).
func (p Probe) isPaused(container Container) bool {
	gated := p.params.Kind != Startup && !container.Started
	return p.onHold || gated || !container.Reachable || container.State != observed.Running
}

// Record adds the result of a check of the container with this ID, and reports whether the probe's result changed. Checks of
// any other container than the one observed last are ignored.
func (p Probe) Record(id observed.ContainerID, result Result) (next Probe, changed bool) {
	if id != p.container || p.onHold || p.exited {
		return p, false
	}
	before := p.result
	switch result {
	case NotFound:
		p = p.withUnready()
	case Error:
		if p.errorRun++; p.errorRun >= max(maxErrors, p.params.FailureThreshold) {
			p = p.withUnready()
		}
	default:
		p = p.withCount(result)
	}
	return p, p.result != before
}

// withUnready is BUG-24: a container that is gone or cannot be checked for long is not ready. It does not restart: the
// runtime may be the cause, and then every container would.
func (p Probe) withUnready() Probe {
	if p.params.Kind == Readiness {
		p.result, p.lastResult, p.resultRun = derive.ProbeFailure, Failure, p.params.FailureThreshold
	}
	return p
}

// withCount is PRB-19. A check with an error neither counts nor resets the counter (PRB-18).
func (p Probe) withCount(result Result) Probe {
	p.errorRun = 0
	if result != p.lastResult {
		p.lastResult, p.resultRun = result, 0
	}
	p.resultRun++
	switch {
	case result == Failure && p.resultRun >= p.params.FailureThreshold:
		p.result = derive.ProbeFailure
		p.onHold = p.params.Kind != Readiness // PRB-20
	case result == Success && p.resultRun >= p.params.SuccessThreshold:
		p.result = derive.ProbeSuccess
		p.onHold = p.params.Kind == Startup
	}
	return p
}
