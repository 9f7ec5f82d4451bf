package status

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// metrics are what the manager counts: the kubelet's series where the meaning is the kubelet's, herald_status_* otherwise.
type metrics struct {
	latency    prometheus.Histogram
	terminated *prometheus.CounterVec
	requests   *prometheus.CounterVec
	conflicts  prometheus.Counter
	retries    prometheus.Counter
	repairs    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, m *Manager) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	s := &metrics{
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pod_status_sync_duration_seconds",
			Help:    "Time from the acceptance of a pod status change until the API server shows it.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60},
		}),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total", Help: "Containers that ended.",
		}, []string{"container_type", "exit_code", "reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_status_requests_total", Help: "Requests of the status manager, by what became of them.",
		}, []string{"verb", "result"}),
		conflicts: counter("herald_status_conflicts_total", "Status writes that met a newer object than was known."),
		retries:   counter("herald_status_retries_total", "Status writes that were put off."),
		repairs:   counter("herald_status_repairs_total", "Status writes that undid what somebody else wrote."),
	}
	if registry == nil {
		return s, nil
	}
	var err error
	for _, c := range []prometheus.Collector{
		s.latency, s.terminated, s.requests, s.conflicts, s.retries, s.repairs, &gauges{manager: m},
	} {
		err = errors.Join(err, registry.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("register the status manager's metrics: %w", err)
	}
	return s, nil
}

// countTerminated counts each end of a container once (SM-31).
func (s *metrics) countTerminated(old, next *v1.PodStatus) {
	for _, end := range derive.NewlyTerminated(old, next) {
		s.terminated.WithLabelValues(end.Kind.MetricLabel(), strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
	}
}

func (s *metrics) request(verb string, result outcome) {
	s.requests.WithLabelValues(verb, result.String()).Inc()
}
