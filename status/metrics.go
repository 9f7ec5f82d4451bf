package status

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/latency"
)

// metrics holds the counters of the manager. Series with the kubelet's meaning have the kubelet's name (SM-98).
type metrics struct {
	latency    prometheus.Histogram
	recent     latency.Recent // of the latency
	terminated *prometheus.CounterVec
	requests   *prometheus.CounterVec
	conflicts  prometheus.Counter
	retries    prometheus.Counter
	repairs    prometheus.Counter
}

// LagP99 returns the time from a change of a status until the API server had it that 99 of 100 changes of the last 15 minutes did not
// exceed. It returns false if there was none.
func (m *Manager) LagP99(now time.Time) (time.Duration, bool) { return m.metrics.recent.P99(now) }

func newMetrics(registry prometheus.Registerer, manager *Manager) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pod_status_sync_duration_seconds",
			Help:    "Time from a pod status change until the API server has it.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60},
		}),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total", Help: "Terminated containers.",
		}, []string{"container_type", "exit_code", "reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_status_requests_total", Help: "Requests of the status manager by verb and result.",
		}, []string{"verb", "result"}),
		conflicts: counter("herald_status_conflicts_total", "Status writes that were based on an old version of the object."),
		retries:   counter("herald_status_retries_total", "Status writes that were delayed for a retry."),
		repairs:   counter("herald_status_repairs_total", "Status writes that restored what another writer had changed."),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	for _, collector := range []prometheus.Collector{
		m.latency, m.terminated, m.requests, m.conflicts, m.retries, m.repairs, &backlogCollector{manager: manager},
	} {
		err = errors.Join(err, registry.Register(collector))
	}
	if err != nil {
		return nil, fmt.Errorf("register status metrics: %w", err)
	}
	return m, nil
}

// countTerminated counts each termination of a container once (SM-31).
func (m *metrics) countTerminated(cached, status *v1.PodStatus) {
	for _, terminated := range derive.NewlyTerminated(cached, status) {
		m.terminated.WithLabelValues(terminated.Kind.MetricLabel(), strconv.Itoa(int(terminated.ExitCode)), terminated.Reason).Inc()
	}
}

// backlogCollector reports the backlog at the time of the scrape.
type backlogCollector struct {
	manager *Manager
}

var (
	depthDesc = prometheus.NewDesc("herald_status_queue_depth", "Pods that wait for a status sync.", []string{"priority"}, nil)
	ageDesc   = prometheus.NewDesc("herald_status_oldest_unsent_seconds",
		"Age of the oldest change that the API server does not have yet.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *backlogCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- depthDesc
	descs <- ageDesc
}

// Collect implements prometheus.Collector.
func (c *backlogCollector) Collect(metrics chan<- prometheus.Metric) {
	for p, depth := range c.manager.queue.depths() {
		metrics <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(depth), priority(p).String())
	}
	age := c.manager.oldestUnacked(time.Now())
	metrics <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, age.Seconds())
}

func (m *Manager) oldestUnacked(now time.Time) time.Duration {
	if m.config.API == nil {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var oldest time.Duration
	for _, entry := range m.entries {
		if entry.isUnacked() && !entry.isUnsendable() {
			oldest = max(oldest, now.Sub(entry.unackedSince))
		}
	}
	return oldest
}
