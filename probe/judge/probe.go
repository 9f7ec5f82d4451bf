package judge

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// Kind is what a probe decides about.
type Kind int

// The kinds. Startup gates the others (PRB-17).
const (
	Startup Kind = iota
	Readiness
	Liveness
)

// String is the kubelet's word, as metrics and events show it.
func (k Kind) String() string { return [...]string{"Startup", "Readiness", "Liveness"}[k] }

// Of is the container's probe of that kind, or nil.
func (k Kind) ProbeOf(c *v1.Container) *v1.Probe {
	switch k {
	case Startup:
		return c.StartupProbe
	case Readiness:
		return c.ReadinessProbe
	default:
		return c.LivenessProbe
	}
}

// Rules are what the spec says about a probe.
type Params struct {
	Kind                               Kind
	InitialDelay, Period               time.Duration
	FailureThreshold, SuccessThreshold int
	// AfterStartup tells that a startup probe has the first word.
	HasStartupProbe bool
}

// RulesOf reads a spec. What the API server would have filled in counts where nothing, or nonsense, stands.
func NewParams(kind Kind, spec *v1.Probe) Params {
	return Params{
		Kind:             kind,
		InitialDelay:     seconds(spec.InitialDelaySeconds, 0),
		Period:           seconds(spec.PeriodSeconds, 10),
		FailureThreshold: int(positive(spec.FailureThreshold, 3)),
		SuccessThreshold: int(positive(spec.SuccessThreshold, 1)),
	}
}

// firstAfter is how long a container runs before it is first checked (PRB-15). Liveness gives it a period where the spec gives
// it neither a delay nor a startup probe: to ask at once could only end what is still starting.
func (r Params) firstAfter() time.Duration {
	if r.Kind == Liveness && r.InitialDelay == 0 && !r.HasStartupProbe {
		return r.Period
	}
	return r.InitialDelay
}

// Timeout is how long one check of the probe may take.
func Timeout(spec *v1.Probe) time.Duration { return seconds(spec.TimeoutSeconds, 1) }

func seconds(n, otherwise int32) time.Duration {
	return time.Duration(positive(n, otherwise)) * time.Second
}

func positive(n, otherwise int32) int32 {
	if n > 0 {
		return n
	}
	return otherwise
}

// Probe is what is known of one probe. It is a value: methods return the next one. Make one with New.
type Probe struct {
	rules Params

	// About the container that was seen last:
	container observed.ContainerID
	verdict   derive.ProbeResult
	// held: nothing is checked until another container is seen.
	held bool
	// ended: the container was seen to have exited, so that a check that was under way speaks of nothing.
	ended bool
	// streak counts how often last was found in a row, errors the rounds in a row that found nothing out.
	last           Result
	streak, errors int
	// began is when it began to run, by the clock that nobody sets; zero: it was not seen to.
	began time.Time
	// earliest is when the next check may begin.
	earliest time.Time
}

// New is a probe that has seen no container.
func New(rules Params) Probe { return Probe{rules: rules} }

// Verdict is what the probe says of that container.
func (p Probe) Result(of observed.ContainerID) derive.ProbeResult {
	if of != p.container {
		return derive.ProbeUnknown
	}
	return p.verdict
}

// Decided is the container that the probe has a verdict about, if any.
func (p Probe) LastResult() (observed.ContainerID, derive.ProbeResult) {
	return p.container, p.verdict
}

// Under is the probe under other rules: what was decided stands, counting starts anew.
func (p Probe) WithParams(rules Params) Probe {
	p.earliest = p.earliest.Add(rules.Period - p.rules.Period)
	p.rules, p.last, p.streak, p.errors = rules, 0, 0, 0
	return p
}
