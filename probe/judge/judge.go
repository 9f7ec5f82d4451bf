// Package judge is the state machine of one probe of one container: when a check is due, and what the results of the checks
// mean. It has no clock and no network.
//
//	           container observed              startup succeeded, delay over, running
//	(no container) ------------> unknown <----> checked every period
//	                                |                      |
//	                                |   failureThreshold failures, successThreshold successes in a row
//	                                v                      v
//	              other container observed  <------ success / failure
//
// A failed liveness probe and a startup probe with a result pause until another container is observed (PRB-20).
package judge

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Kind is the kind of a probe.
type Kind int

// The probe kinds. Startup gates the others (PRB-17).
const (
	Startup Kind = iota
	Readiness
	Liveness
)

// String returns the kubelet's name, as metrics and events show it.
func (k Kind) String() string { return [...]string{"Startup", "Readiness", "Liveness"}[k] }

// ProbeOf returns the container's probe of this kind, or nil.
func (k Kind) ProbeOf(container *v1.Container) *v1.Probe {
	switch k {
	case Startup:
		return container.StartupProbe
	case Readiness:
		return container.ReadinessProbe
	default:
		return container.LivenessProbe
	}
}

// Result is the result of one check.
type Result int

// The results of a check.
const (
	// Success and Failure are the container's own response, or the lack of one.
	Success Result = iota + 1
	Failure
	// Error reports that the check could not be done.
	Error
	// NotFound reports that the container no longer exists.
	NotFound
)

// Params are the parameters of a probe.
type Params struct {
	Kind                               Kind
	InitialDelay, Period               time.Duration
	FailureThreshold, SuccessThreshold int
	// HasStartupProbe reports that the container has a startup probe, which must succeed first.
	HasStartupProbe bool
}

// NewParams returns the parameters of a spec. Unset and invalid values get the API server's defaults.
func NewParams(kind Kind, spec *v1.Probe) Params {
	return Params{
		Kind:             kind,
		InitialDelay:     seconds(spec.InitialDelaySeconds, 0),
		Period:           seconds(spec.PeriodSeconds, 10),
		FailureThreshold: int(positiveOr(spec.FailureThreshold, 3)),
		SuccessThreshold: int(positiveOr(spec.SuccessThreshold, 1)),
	}
}

// Timeout returns how long one check of the probe may take.
func Timeout(spec *v1.Probe) time.Duration { return seconds(spec.TimeoutSeconds, 1) }

func seconds(n, defaultValue int32) time.Duration {
	return time.Duration(positiveOr(n, defaultValue)) * time.Second
}

func positiveOr(n, defaultValue int32) int32 {
	if n > 0 {
		return n
	}
	return defaultValue
}

// firstCheckDelay returns how long a container runs before its first check (PRB-15). Without an initial delay and a startup
// probe, liveness waits for one period: an immediate check could only kill a container that still starts.
func (p Params) firstCheckDelay() time.Duration {
	if p.Kind == Liveness && p.InitialDelay == 0 && !p.HasStartupProbe {
		return p.Period
	}
	return p.InitialDelay
}
