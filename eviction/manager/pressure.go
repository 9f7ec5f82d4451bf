package manager

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/internal/wakeup"
)

// NodeMeter measures the node.
type NodeMeter interface {
	// Sample returns the last measurement of the node, or measures it now, and where the runtime keeps images and containers.
	Sample(ctx context.Context, measureNow bool) (eviction.Sample, eviction.Layout, error)
	// PodUsage measures the pods now, with their disks or without. A pod that could not be measured is absent.
	PodUsage(ctx context.Context, pods []*v1.Pod, withDisk bool) (map[types.UID]*eviction.PodUsage, error)
}

// ImageReclaimer removes images.
type ImageReclaimer interface {
	// ReclaimImages removes all images that no container uses.
	ReclaimImages(ctx context.Context) error
}

// PressureConfig configures evictions under pressure of the node. Call Manager.Wake after each measurement of the node.
type PressureConfig struct {
	Policy eviction.Policy
	// Node is required.
	Node NodeMeter
	// NodeReference is what events about the node refer to.
	NodeReference *v1.ObjectReference
	// Allocated returns the pod with the resources that are allocated to it. Defaults to the pod.
	Allocated func(*v1.Pod) *v1.Pod
	// IsFinished reports whether nothing of a pod that was evicted runs or is mounted any more. Defaults to true.
	IsFinished func(*v1.Pod) bool
	// ReclaimContainers removes containers that have exited. Defaults to none.
	ReclaimContainers func(ctx context.Context) error
	// Images removes images. Defaults to none.
	Images ImageReclaimer
	// OnChange is called when the conditions change. It must not block. Defaults to a no-op.
	OnChange func()
	// Stalls calls wake whenever processes stall for lack of memory, until ctx ends. Defaults to never.
	Stalls func(ctx context.Context, wake func())
}

func (c PressureConfig) withNoOps() PressureConfig {
	if c.NodeReference == nil {
		c.NodeReference = &v1.ObjectReference{Kind: "Node"}
	}
	if c.Allocated == nil {
		c.Allocated = func(pod *v1.Pod) *v1.Pod { return pod }
	}
	if c.IsFinished == nil {
		c.IsFinished = func(*v1.Pod) bool { return true }
	}
	if c.ReclaimContainers == nil {
		c.ReclaimContainers = func(context.Context) error { return nil }
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.Stalls == nil {
		c.Stalls = func(context.Context, func()) {}
	}
	return c
}

const (
	// nearInterval is the time between measurements while a threshold is near: a disk can fill in seconds.
	nearInterval = 2 * time.Second
	// podUsageTimeout bounds the measurement of all pods. What was measured until then counts.
	podUsageTimeout = 15 * time.Second
	// finishTimeout is how long an evicted pod is waited for, finishInterval how often it is looked at (EVI-1).
	finishTimeout, finishInterval = 30 * time.Second, time.Second
)

// pressure evicts pods while the node is short of a resource.
type pressure struct {
	manager *Manager
	config  PressureConfig
	sampled wakeup.Signal // the node was measured
	stalled wakeup.Signal // the node must be measured

	mu         sync.Mutex // guards the fields below
	state      eviction.State
	conditions []v1.NodeConditionType // reported
	enforced   []v1.NodeConditionType

	// Owned by run:
	nextAttempt time.Time       // of reclaiming something, unless a pod was evicted
	told        map[string]bool // problems that were logged and persist
}

func newPressure(m *Manager, config PressureConfig) *pressure {
	return &pressure{manager: m, config: config, sampled: wakeup.New(), stalled: wakeup.New(), told: map[string]bool{}}
}

// Wake makes the manager look at the node's last measurement. It does not block.
func (m *Manager) Wake() {
	if m.pressure != nil {
		m.pressure.sampled.Set()
	}
}

// Conditions returns the conditions of pressure that the Node reports, and those because of which pods are not admitted.
func (m *Manager) Conditions() (reported, enforced []v1.NodeConditionType) {
	if m.pressure == nil {
		return nil, nil
	}
	m.pressure.mu.Lock()
	defer m.pressure.mu.Unlock()
	return m.pressure.conditions, m.pressure.enforced
}

// Restore lets conditions that an earlier agent has reported hold for a while (EVI-30).
func (m *Manager) Restore(conditions []v1.NodeCondition) {
	p := m.pressure
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.state = p.state.Restore(conditions, now)
	p.conditions, p.enforced = p.config.Policy.Held(p.state, now)
}

func (p *pressure) run(ctx context.Context) {
	var stalls sync.WaitGroup
	defer stalls.Wait()
	stalls.Go(func() { p.config.Stalls(ctx, p.stalled.Set) })
	near := time.NewTimer(nearInterval)
	near.Stop()
	defer near.Stop()
	for {
		measureNow := true
		select {
		case <-ctx.Done():
			return
		case <-p.sampled:
			measureNow = false
		case <-p.stalled:
		case <-near.C:
		}
		isNear, evicted := p.pass(ctx, measureNow)
		for evicted && ctx.Err() == nil { // EVI-1
			isNear, evicted = p.pass(ctx, true)
		}
		if isNear {
			near.Reset(nearInterval)
		}
	}
}

// pass observes the node, and evicts a pod if it must.
func (p *pressure) pass(ctx context.Context, measureNow bool) (isNear, evicted bool) {
	observations, layout, err := p.observe(ctx, measureNow)
	if p.tell("measure node", err); err != nil {
		return false, false // what holds stays (EVI-28)
	}
	observedAt := time.Now()
	verdict, changed := p.update(eviction.Input{Observations: observations, Layout: layout, Now: observedAt})
	if changed {
		p.config.OnChange()
	}
	isNear = p.config.Policy.IsNear(observations, layout)
	if verdict.Starved == nil || observedAt.Before(p.nextAttempt) {
		return isNear, false
	}
	evicted = p.reclaim(ctx, verdict.Starved, observedAt)
	p.nextAttempt = time.Time{}
	if !evicted {
		p.nextAttempt = time.Now().Add(p.manager.config.Interval)
	}
	return isNear, evicted
}

func (p *pressure) observe(ctx context.Context, measureNow bool) (eviction.Observations, eviction.Layout, error) {
	sample, layout, err := p.config.Node.Sample(ctx, measureNow)
	if err != nil {
		return nil, layout, err
	}
	return eviction.Observe(&sample), layout, nil
}

// update applies an observation and reports whether a condition has changed.
func (p *pressure) update(in eviction.Input) (verdict eviction.Verdict, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, verdict = p.config.Policy.Observe(p.state, in)
	changed = !slices.Equal(p.conditions, verdict.Conditions)
	if changed {
		p.manager.config.Logger.Info("Pressure of the node changed", "before", p.conditions, "after", verdict.Conditions)
	}
	p.conditions, p.enforced = verdict.Conditions, verdict.Enforced
	return verdict, changed
}

// reclaim makes some of the resource available, and reports whether that ended a pod.
func (p *pressure) reclaim(ctx context.Context, starved *eviction.Starved, observedAt time.Time) (evicted bool) {
	p.manager.config.Logger.Warn("Node is short of a resource", "signal", starved.Threshold.Signal, "available", starved.Observation.Available,
		"capacity", starved.Observation.Capacity)
	p.manager.config.Events.Event(p.config.NodeReference, v1.EventTypeWarning, "EvictionThresholdMet",
		"Attempting to reclaim "+string(starved.Resource)) // EVI-13
	if p.reclaimWithoutEviction(ctx, starved) || ctx.Err() != nil {
		return false
	}
	victim := p.victim(ctx, starved)
	if victim == nil {
		return false
	}
	p.manager.acting.Lock()
	defer p.manager.acting.Unlock()
	if p.manager.lastLimit.After(observedAt) {
		return true // a pod went meanwhile: look again before another one goes (EVI-24)
	}
	if at := starved.Observation.At; !at.IsZero() {
		p.manager.metrics.statsAge.WithLabelValues(victim.Signal).Observe(time.Since(at).Seconds())
	}
	p.manager.evictLocked(ctx, victim)
	p.awaitEnd(ctx, victim.Pod)
	return true
}

// reclaimWithoutEviction removes what no pod needs, and reports whether that was enough (EVI-14).
func (p *pressure) reclaimWithoutEviction(ctx context.Context, starved *eviction.Starved) bool {
	if len(starved.Reclaim) == 0 {
		return false
	}
	for _, kind := range starved.Reclaim {
		var err error
		switch {
		case kind == eviction.ReclaimContainers:
			err = p.config.ReclaimContainers(ctx)
		case p.config.Images != nil:
			err = p.config.Images.ReclaimImages(ctx)
		}
		p.tell("reclaim "+string(kind), err)
	}
	observations, _, err := p.observe(ctx, true)
	if p.tell("measure node", err); err != nil {
		return true // the next pass decides
	}
	return starved.IsResolved(observations)
}

// victim returns the pod to evict, or nil.
func (p *pressure) victim(ctx context.Context, starved *eviction.Starved) *eviction.Eviction {
	running := p.manager.config.Pods()
	ctx, cancel := context.WithTimeout(ctx, podUsageTimeout)
	defer cancel()
	usages, err := p.config.Node.PodUsage(ctx, running, starved.NeedsDisk())
	p.tell("measure pods", err)
	if len(usages) == 0 && err != nil {
		return nil // a pod that was not measured goes first: with none measured, that would be any
	}
	originals := make(map[types.UID]*v1.Pod, len(running))
	pods := make([]eviction.Pod, 0, len(running))
	for _, pod := range running {
		originals[pod.UID] = pod
		pods = append(pods, eviction.Pod{Object: p.config.Allocated(pod), Usage: usages[pod.UID]})
	}
	victim := starved.Victim(pods)
	if victim == nil {
		if !p.told["no victim"] {
			p.manager.config.Logger.Warn("Node is short of a resource, and no pod can be evicted", "resource", starved.Resource, "pods", len(pods))
		}
		p.told["no victim"] = true
		return nil
	}
	delete(p.told, "no victim")
	victim.Pod = originals[victim.Pod.UID]
	return victim
}

// awaitEnd waits until the resources of the pod are free.
func (p *pressure) awaitEnd(ctx context.Context, pod *v1.Pod) {
	timeout := time.NewTimer(finishTimeout)
	defer timeout.Stop()
	ticker := time.NewTicker(finishInterval)
	defer ticker.Stop()
	for !p.config.IsFinished(pod) {
		select {
		case <-ctx.Done():
			return
		case <-timeout.C:
			p.manager.config.Logger.Warn("Evicted pod is not cleaned up yet", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID)
			return
		case <-ticker.C:
		}
	}
}

// tell logs a problem once until it is over.
func (p *pressure) tell(operation string, err error) {
	if err == nil {
		delete(p.told, operation)
		return
	}
	if !p.told[operation] {
		p.manager.config.Logger.Warn("Operation of eviction failed", "operation", operation, "err", err)
	}
	p.told[operation] = true
}
