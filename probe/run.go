package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

const (
	// coalesceInterval is the time between two regular evaluations of the schedule, so that probes that are due at nearly the
	// same time start together: an idle process that wakes up for a single check spends three times as much as the check
	// itself needs.
	coalesceInterval = 100 * time.Millisecond
	// maxLateness is how late an evaluation may be without moving the next check of a probe.
	maxLateness = 10 * time.Millisecond
	// maxAttempts is how often a check is attempted until it ends without an error (PRB-18).
	maxAttempts = 3
)

// Run probes until ctx ends, and returns when all checks have ended. Checks depend on ctx only, not on the sync of a pod: the
// end of a sync does not stop them (PRB-8, BUG-25).
func (p *Prober) Run(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wakeup:
		case <-timer.C:
		}
		if next := p.runDue(ctx, &checks); !next.IsZero() {
			timer.Reset(time.Until(p.evaluationFrom(next)))
		}
	}
}

// evaluationFrom returns the first regular evaluation at or after t.
func (p *Prober) evaluationFrom(t time.Time) time.Time {
	return p.evaluationBefore(t.Add(coalesceInterval - 1))
}

// evaluationBefore returns the last regular evaluation at or before t. They are multiples of coalesceInterval after the start, so
// that probes stay together: their periods are whole seconds.
func (p *Prober) evaluationBefore(t time.Time) time.Time {
	return p.startedAt.Add(t.Sub(p.startedAt).Truncate(coalesceInterval))
}

// runDue evaluates all probes that are due and returns when the next one is.
func (p *Prober) runDue(ctx context.Context, checks *sync.WaitGroup) time.Time {
	for ctx.Err() == nil {
		p.mu.Lock()
		probe, next := p.schedule.next(time.Now())
		p.mu.Unlock()
		if probe == nil {
			return next
		}
		p.evaluate(ctx, probe, checks)
	}
	return time.Time{}
}

// evaluate starts a check if one is due, and reports a result that changed without a check.
func (p *Prober) evaluate(ctx context.Context, probe *containerProbe, checks *sync.WaitGroup) {
	current := p.observe(probe)
	p.mu.Lock()
	due, changed := p.evaluateLocked(probe, current)
	if due {
		checkCtx, cancel := context.WithCancel(ctx)
		probe.cancel = cancel
		target := current.target
		target.RetryRefused = probe.kind != judge.Liveness && probe.state.Result(target.ID) != derive.ProbeSuccess
		checks.Go(func() { p.runCheck(checkCtx, probe, target) })
	}
	p.mu.Unlock()
	if changed {
		p.config.Wake(probe.uid())
	}
}

func (p *Prober) evaluateLocked(probe *containerProbe, current snapshot) (due, changed bool) {
	if probe.stopped {
		return false, false
	}
	now := p.evaluationTime(probe.dueAt)
	container := p.containerLocked(probe, current, now)
	before := probe.state.Result(container.ID)
	var retryAt time.Time
	probe.state, due, retryAt = probe.state.Due(container, now)
	rescheduled := probe.index >= 0 // during observe, so the snapshot may be outdated
	switch {
	case due:
		probe.recheck = rescheduled
		p.schedule.remove(probe)
	case !rescheduled:
		p.schedule.set(probe, retryAt)
	}
	changed = before != probe.state.Result(container.ID)
	if changed {
		p.releaseGatedLocked(probe)
	}
	return due, changed
}

// evaluationTime returns the time of the evaluation of a probe that was due at dueAt: now, or that of the last regular evaluation if it
// was only just: otherwise the next check would wait for one more.
func (p *Prober) evaluationTime(dueAt time.Time) time.Time {
	now := time.Now()
	if regular := p.evaluationBefore(now); !dueAt.After(regular) && now.Sub(regular) < maxLateness {
		return regular
	}
	return now
}

// releaseGatedLocked evaluates the other probes of a container whose startup probe has a new result: they wait for it.
func (p *Prober) releaseGatedLocked(startup *containerProbe) {
	if startup.kind != judge.Startup || startup.stopped {
		return
	}
	for _, probe := range p.pods[startup.uid()].probes {
		if probe.container.Name == startup.container.Name && probe != startup {
			p.evaluateSoonLocked(probe)
		}
	}
	p.wakeup.Set()
}

// snapshot is the observed state of a probe's container.
type snapshot struct {
	// instance is the newest instance, or nil.
	instance *observed.Container
	target   check.Target
	// publishedStarted reports that the published status shows this instance as started: the startup probe succeeded under
	// an earlier agent.
	publishedStarted bool
}

func (p *Prober) observe(probe *containerProbe) snapshot {
	runtimePod := p.config.PodCache.Get(probe.uid())
	s := snapshot{instance: runtimePod.Newest(probe.container.Name)}
	if s.instance == nil {
		return s
	}
	s.target = check.Target{
		Container: probe.container, ID: s.instance.ID, Address: p.podAddress(probe.pod, runtimePod),
		PodNetwork: !probe.pod.Spec.HostNetwork && !p.config.AllowNodeAddresses,
	}
	if probe.container.StartupProbe != nil {
		s.publishedStarted = p.isPublishedStarted(probe.uid(), s.instance)
	}
	return s
}

// podAddress returns the pod's primary address. It is invalid if unknown.
func (p *Prober) podAddress(pod *v1.Pod, runtimePod *observed.Pod) netip.Addr {
	node := p.config.NodeInfo()
	if pod.Spec.HostNetwork {
		if len(node.HostIPs) > 0 {
			return node.HostIPs[0]
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, address := range runtimePod.IPs {
		if address.Unmap().Is6() == node.IPv6First {
			return address
		}
	}
	if len(runtimePod.IPs) > 0 {
		return runtimePod.IPs[0]
	}
	return netip.Addr{}
}

func (p *Prober) isPublishedStarted(uid podid.UID, instance *observed.Container) bool {
	status, ok := p.config.Statuses.GetPodStatus(types.UID(uid))
	if !ok {
		return false
	}
	for _, statuses := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			containerStatus := &statuses[i]
			if containerStatus.Name == instance.Name && observed.ParseContainerID(containerStatus.ContainerID) == instance.ID {
				return containerStatus.Started != nil && *containerStatus.Started
			}
		}
	}
	return false
}

// containerLocked returns the input of judge.
func (p *Prober) containerLocked(probe *containerProbe, s snapshot, now time.Time) judge.Container {
	if s.instance == nil {
		return judge.Container{}
	}
	return judge.Container{
		ID: s.instance.ID, State: s.instance.State, StartedAt: s.instance.StartedAt,
		Started:   s.publishedStarted || p.isReleasedLocked(probe, s.instance.ID),
		Reachable: s.target.Address.IsValid() || !check.NeedsAddress(probe.spec),
		Delay:     p.firstDelay(probe, s.instance, now),
	}
}

// isReleasedLocked reports whether the container's startup probe succeeded or does not exist.
func (p *Prober) isReleasedLocked(probe *containerProbe, id observed.ContainerID) bool {
	if probe.kind == judge.Startup {
		return false
	}
	startup := findProbe(p.pods[probe.uid()].probes, probe.container.Name, judge.Startup)
	return startup == nil || startup.state.Result(id) == derive.ProbeSuccess
}

// firstDelay is PRB-4: an agent that has just started does not check all existing containers at once. Containers that started
// later are spread by themselves, and their readiness is urgent.
func (p *Prober) firstDelay(probe *containerProbe, instance *observed.Container, now time.Time) time.Duration {
	period := judge.NewParams(probe.kind, probe.spec).Period
	if now.Sub(p.startedAt) >= period || !instance.StartedAt.Before(p.startedAt) {
		return 0
	}
	return rand.N(period)
}

// runCheck checks one container, publishes the result and schedules the next evaluation. The result of a canceled check is
// ignored.
func (p *Prober) runCheck(ctx context.Context, probe *containerProbe, target check.Target) {
	defer p.finishCheck(probe)
	if probe.spec.Exec != nil {
		select { // before the probe's timeout begins
		case probe.execSlots <- struct{}{}:
			defer func() { <-probe.execSlots }()
		case <-ctx.Done():
			return
		}
	}
	start := time.Now()
	outcome := p.attemptCheck(ctx, probe, target)
	if ctx.Err() == nil {
		p.record(probe, target.ID, outcome, time.Since(start))
	}
}

// attemptCheck repeats the check while it ends with an error.
func (p *Prober) attemptCheck(ctx context.Context, probe *containerProbe, target check.Target) (outcome check.Outcome) {
	for range maxAttempts {
		outcome = p.checkOnce(ctx, probe, target)
		if outcome.Result != judge.Error || ctx.Err() != nil {
			break
		}
	}
	return outcome
}

// checkOnce runs one check for at most the probe's timeout. It recovers from panics (PRB-7).
func (p *Prober) checkOnce(ctx context.Context, probe *containerProbe, target check.Target) (outcome check.Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			p.config.Logger.Error("Probe panicked", "pod", podid.FullNameOf(probe.pod).Key(), "podUID", probe.pod.UID,
				"container", probe.container.Name, "probe", probe.kind, "panic", cause, "stack", string(debug.Stack()))
			outcome = check.Outcome{Result: judge.Error, Message: fmt.Sprint(cause)}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, judge.Timeout(probe.spec))
	defer cancel()
	return p.checker.Check(ctx, probe.spec, target)
}

// record records the outcome of a check and publishes a changed result.
func (p *Prober) record(probe *containerProbe, id observed.ContainerID, outcome check.Outcome, duration time.Duration) {
	p.mu.Lock()
	if probe.stopped {
		p.mu.Unlock()
		return
	}
	p.metrics.count(probe, outcome, duration)
	state, changed := probe.state.Record(id, outcome.Result)
	probe.state = state
	probe.last = probe.last.with(id, newAnswer(outcome, duration))
	if changed {
		p.releaseGatedLocked(probe)
	}
	p.mu.Unlock()
	p.reportOutcome(probe, id, outcome)
	if changed {
		p.publish(probe, id, state.Result(id) == derive.ProbeSuccess)
	}
	p.config.OnAnswer(probe.uid())
}

// publish is PRB-40: the status is updated first, then the pod worker wakes up. A successful liveness probe needs neither.
func (p *Prober) publish(probe *containerProbe, id observed.ContainerID, success bool) {
	switch probe.kind {
	case judge.Startup:
		p.config.Statuses.SetContainerStartup(probe.pod.UID, id, success)
	case judge.Readiness:
		p.config.Statuses.SetContainerReadiness(probe.pod.UID, id, success)
	case judge.Liveness:
		if success {
			return
		}
	}
	p.config.Wake(probe.uid())
}

// finishCheck schedules the next evaluation of the probe or of its successor.
func (p *Prober) finishCheck(probe *containerProbe) {
	p.mu.Lock()
	probe.cancel()
	for probe.successor != nil {
		probe.cancel, probe = nil, probe.successor
	}
	probe.cancel = nil
	if probe.stopped {
		p.mu.Unlock()
		return
	}
	next := probe.state.NextCheck()
	if probe.recheck {
		next = time.Now()
	}
	probe.recheck = false
	p.schedule.set(probe, next)
	isFirst := p.schedule[0] == probe
	p.mu.Unlock()
	if isFirst {
		p.wakeup.Set()
	}
}
