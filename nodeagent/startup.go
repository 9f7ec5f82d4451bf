package nodeagent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/node"
)

// startupTracker measures how long a new node takes from its boot until it is ready. A Node that exists already is not measured. It
// implements node.API.
type startupTracker struct {
	node.API
	bootAt, startedAt time.Time
	metrics           startupMetrics

	mu                             sync.Mutex // guards the times
	triedAt, registeredAt, readyAt time.Time
}

// startupMetrics are the kubelet's. They are 0 until they are known.
type startupMetrics struct {
	preAgent, preRegistration, registration, postRegistration, total prometheus.Gauge
}

func newStartupTracker(api node.API, bootAt time.Time, registry prometheus.Registerer) (*startupTracker, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_startup_" + name, Help: help})
	}
	m := startupMetrics{
		preAgent:         gauge("pre_kubelet_duration_seconds", "Duration from the boot until the agent started."),
		preRegistration:  gauge("pre_registration_duration_seconds", "Duration from the start of the agent until it registered the Node."),
		registration:     gauge("registration_duration_seconds", "Duration of the registration, with failed attempts."),
		postRegistration: gauge("post_registration_duration_seconds", "Duration from the registration until the Node was ready."),
		total:            gauge("duration_seconds", "Duration from the boot until the new Node was ready."),
	}
	tracker := &startupTracker{API: api, bootAt: bootAt, startedAt: time.Now(), metrics: m}
	if registry == nil {
		return tracker, nil
	}
	for _, metric := range []prometheus.Gauge{m.preAgent, m.preRegistration, m.registration, m.postRegistration, m.total} {
		if err := registry.Register(metric); err != nil {
			return nil, fmt.Errorf("nodeagent: register metrics: %w", err)
		}
	}
	return tracker, nil
}

// CreateNode implements node.API.
func (t *startupTracker) CreateNode(ctx context.Context, object *v1.Node) (*v1.Node, error) {
	t.mu.Lock()
	if t.triedAt.IsZero() {
		t.triedAt = time.Now()
	}
	t.mu.Unlock()
	created, err := t.API.CreateNode(ctx, object)
	if err != nil {
		return created, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.registeredAt.IsZero() {
		return created, nil
	}
	t.registeredAt = time.Now()
	if !t.bootAt.IsZero() {
		t.metrics.preAgent.Set(t.startedAt.Sub(t.bootAt).Seconds())
	}
	t.metrics.preRegistration.Set(t.triedAt.Sub(t.startedAt).Seconds())
	t.metrics.registration.Set(t.registeredAt.Sub(t.triedAt).Seconds())
	return created, nil
}

// observe looks at a version of the Node.
func (t *startupTracker) observe(object *v1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.registeredAt.IsZero() || !t.readyAt.IsZero() || !isReady(object) {
		return
	}
	t.readyAt = time.Now()
	t.metrics.postRegistration.Set(t.readyAt.Sub(t.registeredAt).Seconds())
	if !t.bootAt.IsZero() {
		t.metrics.total.Set(t.readyAt.Sub(t.bootAt).Seconds())
	}
}

func isReady(object *v1.Node) bool {
	for i := range object.Status.Conditions {
		if condition := &object.Status.Conditions[i]; condition.Type == v1.NodeReady {
			return condition.Status == v1.ConditionTrue
		}
	}
	return false
}
