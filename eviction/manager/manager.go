// Package manager evicts pods: those that exceed limits of local storage, and, while the node is short of a resource, one after the
// other. It measures only pods that have limits, and all pods only when one of them must go.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/podid"
)

// Config configures a Manager.
type Config struct {
	// Pods returns the pods that may run. Required.
	Pods func() []*v1.Pod
	// Volumes and Containers are required.
	Volumes    Volumes
	Containers Containers
	// Kill terminates the pod with the grace period and waits until its containers have stopped. setStatus modifies its final
	// status. Required.
	Kill func(ctx context.Context, pod *v1.Pod, gracePeriod time.Duration, setStatus func(*v1.PodStatus)) error
	// Pressure configures evictions under pressure of the node. Nil evicts for limits of local storage only.
	Pressure *PressureConfig

	// Interval is the time between two checks of limits, and between attempts to reclaim a resource of the node. Defaults to 10s.
	Interval time.Duration
	// Events receives evictions. Defaults to event.Discard.
	Events event.Recorder
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers kubelet_evictions and kubelet_eviction_stats_age_seconds. Defaults to none.
	Metrics prometheus.Registerer
}

// Manager evicts pods. Run must be called at most once; the other methods are safe for concurrent use.
type Manager struct {
	config   Config
	metrics  metrics
	pressure *pressure // nil without Config.Pressure

	acting sync.Mutex // held while a pod is evicted: one at a time
	// lastLimit is when a pod was last evicted for a limit. Guarded by acting.
	lastLimit time.Time
}

type metrics struct {
	evictions *prometheus.CounterVec
	statsAge  *prometheus.HistogramVec
}

// New returns a Manager.
func New(config Config) (*Manager, error) {
	var errs []error
	for _, field := range []struct {
		name      string
		isMissing bool
	}{
		{"Pods", config.Pods == nil}, {"Volumes", config.Volumes == nil}, {"Containers", config.Containers == nil}, {"Kill", config.Kill == nil},
		{"Pressure.Node", config.Pressure != nil && config.Pressure.Node == nil},
	} {
		if field.isMissing {
			errs = append(errs, fmt.Errorf("manager.Config: %s is required", field.name))
		}
	}
	if config.Interval < 0 {
		errs = append(errs, errors.New("manager.Config: Interval must not be negative"))
	}
	config.Interval = cmp.Or(config.Interval, 10*time.Second)
	config.Events = cmp.Or(config.Events, event.Discard)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	m := &Manager{config: config}
	if config.Pressure != nil {
		m.pressure = newPressure(m, config.Pressure.withNoOps())
	}
	return m, errors.Join(append(errs, m.registerMetrics())...)
}

func (m *Manager) registerMetrics() error {
	m.metrics = metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "Number of evicted pods.",
		}, []string{"eviction_signal"}),
		statsAge: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_eviction_stats_age_seconds", Help: "Age of the measurement because of which a pod was evicted.",
			Buckets: prometheus.DefBuckets,
		}, []string{"eviction_signal"}),
	}
	if m.config.Metrics == nil {
		return nil
	}
	return errors.Join(m.config.Metrics.Register(m.metrics.evictions), m.config.Metrics.Register(m.metrics.statsAge))
}

// Run evicts pods until ctx ends. Limits and the node are checked apart: measuring volumes may take long.
func (m *Manager) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { newLimits(m).run(ctx) })
	if m.pressure != nil {
		loops.Go(func() { m.pressure.run(ctx) })
	}
	return nil
}

// evictLocked ends the pod and returns when its containers have stopped, or when they do not for too long (EVI-23).
func (m *Manager) evictLocked(ctx context.Context, e *eviction.Eviction) {
	logger := m.config.Logger.With("pod", podid.FullNameOf(e.Pod).Key(), "podUID", e.Pod.UID)
	logger.Info("Evicting pod", "signal", e.Signal, "message", e.Message)
	event.Annotated(m.config.Events, e.Annotations).Event(e.Pod, v1.EventTypeWarning, eviction.Reason, e.Message)
	at := time.Now()
	err := m.config.Kill(ctx, e.Pod, e.GracePeriod, func(status *v1.PodStatus) { eviction.SetStatus(status, e.Pod, e.Message, at) })
	m.metrics.evictions.WithLabelValues(e.Signal).Inc()
	if err != nil && ctx.Err() == nil {
		logger.Warn("Evicted pod is still running", "err", err)
	}
}
