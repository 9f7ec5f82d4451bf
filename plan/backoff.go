package plan

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

const (
	initialDelay = 10 * time.Second
	maxDelay     = 300 * time.Second
	// healthyRun is how long an instance must run to reset its crash loop.
	healthyRun = 2 * maxDelay
)

// Backoff holds the crash loops of a pod's containers. ComputeActions never modifies the one that it is given. Its size is
// bounded by the pod's containers.
//
// It only matters where the runtime's records end: otherwise back-off is computed from the observed instances, how long each
// ran and how often the container restarted. An agent that starts with an empty Backoff therefore neither restarts a
// crash-looping container early, as the kubelet does, nor delays it longer than the rule.
type Backoff map[BackoffKey]CrashLoop

// BackoffKey identifies a version of a container: an edited container starts without back-off.
type BackoffKey struct {
	Name string
	Hash uint64
}

func newBackoffKey(container *v1.Container) BackoffKey {
	return BackoffKey{container.Name, HashContainer(container)}
}

// CrashLoop is the crash loop of one version of a container. It counts exits, not start attempts, so that the same
// observation yields the same crash loop however often it is made.
type CrashLoop struct {
	// LastCounted is the newest instance that is counted. Newer ones are not. If its record is gone, neither are the
	// remaining ones: a runtime removes the oldest records first.
	LastCounted observed.ContainerID
	// Runs is how many instances in a row ran for less than 10 minutes. The last one always counts.
	Runs int
	// LastExit is when the last of them exited.
	LastExit time.Time
	// PendingRestart is the instance that was last stopped in order to restart, whatever its exit code.
	PendingRestart observed.ContainerID
	// Requested is the restart that was requested last.
	Requested RequestedRestart
}

// RestartRequest is a request to replace the instance of a container.
type RestartRequest struct {
	// Message says who wants it and why.
	Message string
	// ByAction is set if an alert rule wants it, not a user: the back-off applies to the next start.
	ByAction bool
}

// RequestedRestart is a request with the instance that it replaces.
type RequestedRestart struct {
	ID observed.ContainerID
	RestartRequest
}

// Delay returns how long a start waits after LastExit: not at all after the first run, then 10s, doubling up to 5 minutes.
func (l CrashLoop) Delay() time.Duration {
	if l.Runs < 2 {
		return 0
	}
	delay := initialDelay
	for range l.Runs - 2 {
		if delay *= 2; delay >= maxDelay {
			return maxDelay
		}
	}
	return delay
}

// RetryAt returns when the delay is over.
func (l CrashLoop) RetryAt() time.Time { return l.LastExit.Add(l.Delay()) }

// withRun returns the crash loop with one more run.
func (l CrashLoop) withRun(duration time.Duration) CrashLoop {
	if duration > healthyRun {
		l.Runs = 0
	}
	l.Runs++
	return l
}

// updateBackoff returns the back-off including the observed instances, for exactly the containers that can restart.
func (p *planner) updateBackoff() Backoff {
	backoff := Backoff{}
	add := func(containers []v1.Container) {
		for i := range containers {
			key := newBackoffKey(&containers[i])
			if loop := p.crashLoop(key); loop != (CrashLoop{}) {
				backoff[key] = loop
			}
		}
	}
	add(p.Pod.Spec.InitContainers)
	add(p.Pod.Spec.Containers)
	return backoff
}

func (p *planner) crashLoop(key BackoffKey) CrashLoop {
	loop := p.Backoff[key]
	loop.LastExit = p.notAfterNow(loop.LastExit)
	instances := p.runtimePod.Instances(key.Name)
	uncounted := slices.IndexFunc(instances, func(instance observed.Container) bool {
		return instance.ID == loop.LastCounted
	})
	if uncounted < 0 {
		uncounted = len(instances)
	}
	for i := uncounted - 1; i >= 0; i-- {
		instance := &instances[i]
		switch {
		case instance.SpecHash != 0 && instance.SpecHash != key.Hash:
			loop = CrashLoop{LastCounted: instance.ID}
		case derive.ContainerState(instance) == observed.Exited:
			loop = p.countExit(loop, instance)
		}
	}
	return loop
}

// countExit adds an exited instance. If nothing is known about the earlier ones, they count as short as this one.
func (p *planner) countExit(loop CrashLoop, instance *observed.Container) CrashLoop {
	if loop.LastCounted == (observed.ContainerID{}) {
		loop.Runs = instance.RestartCount
	}
	exit := instance.Exit.FinishedAt
	if exit.Before(instance.CreatedAt) {
		exit = instance.CreatedAt
	}
	exit = p.notAfterNow(exit)
	loop = loop.withRun(runDuration(instance, exit))
	loop.LastCounted, loop.LastExit = instance.ID, exit
	return loop
}

// notAfterNow clamps a time to now: it lies in the future if the clock was set back (F14).
func (p *planner) notAfterNow(at time.Time) time.Time {
	if at.After(p.Now) {
		return p.Now
	}
	return at
}

func runDuration(instance *observed.Container, end time.Time) time.Duration {
	if instance.StartedAt.IsZero() {
		return 0
	}
	return end.Sub(instance.StartedAt)
}

// backoffOf returns why the container must not start now, if it must not. stopped is the instance that it replaces, or nil.
// As in the kubelet, the run of a stopped instance counts as waiting: a container that fails its liveness probe after minutes
// is replaced at once.
func (p *planner) backoffOf(container *v1.Container, stopped *observed.Container) (waiting derive.Waiting, isWaiting bool) {
	loop := p.actions.Backoff[newBackoffKey(container)]
	if newest := p.runtimePod.Newest(container.Name); newest != nil && newest.ID == loop.Requested.ID && !loop.Requested.ByAction {
		return derive.Waiting{}, false
	}
	if stopped != nil {
		loop = loop.withRun(runDuration(stopped, p.Now))
	}
	if !p.Now.Before(loop.RetryAt()) {
		return derive.Waiting{}, false
	}
	return derive.Waiting{
		Reason: ReasonCrashLoopBackOff,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			loop.Delay(), container.Name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID),
		Until: loop.RetryAt(),
	}, true
}

// setPendingRestart records that the instance is stopped in order to restart.
func (p *planner) setPendingRestart(container *v1.Container, instance *observed.Container) {
	key := newBackoffKey(container)
	loop := p.actions.Backoff[key]
	loop.PendingRestart = instance.ID
	p.actions.Backoff[key] = loop
}

func (p *planner) isPendingRestart(container *v1.Container, instance *observed.Container) bool {
	return p.actions.Backoff[newBackoffKey(container)].PendingRestart == instance.ID
}

// requestRestarts remembers which instances are to be replaced.
func (p *planner) requestRestarts() {
	for name, request := range p.Restart {
		container, _ := FindContainer(p.Pod, name)
		instance := p.runtimePod.Newest(name)
		if container == nil || instance == nil {
			continue
		}
		key := newBackoffKey(container)
		loop := p.actions.Backoff[key]
		loop.Requested = RequestedRestart{ID: instance.ID, RestartRequest: request}
		p.actions.Backoff[key] = loop
	}
}

// requestedRestart returns the request to replace the instance, or the zero value.
func (p *planner) requestedRestart(instance *observed.Container) RequestedRestart {
	for key, loop := range p.actions.Backoff {
		if key.Name == instance.Name && loop.Requested.ID == instance.ID {
			return loop.Requested
		}
	}
	return RequestedRestart{}
}

// PendingRestarts returns the instances that were stopped in order to restart, whatever their exit code.
func (b Backoff) PendingRestarts() map[observed.ContainerID]bool {
	var pending map[observed.ContainerID]bool
	for _, loop := range b {
		if loop.PendingRestart != (observed.ContainerID{}) {
			if pending == nil {
				pending = map[observed.ContainerID]bool{}
			}
			pending[loop.PendingRestart] = true
		}
	}
	return pending
}
