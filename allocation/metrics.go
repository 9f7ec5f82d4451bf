package allocation

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's metrics of resizes, under its names (SM-98, RSZ-29).
type metrics struct {
	requested        *prometheus.CounterVec
	infeasible       *prometheus.CounterVec
	deferredAccepted *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		requested: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_requested_resizes_total",
			Help: "Number of requested changes of the resources of containers. Each resource of a container counts separately.",
		}, []string{"resource", "requirement", "operation"}),
		infeasible: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_infeasible_resizes_total", Help: "Number of infeasible resizes for pods.",
		}, []string{"reason_detail"}),
		deferredAccepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_deferred_accepted_resizes_total", Help: "Number of resizes that were accepted after being deferred.",
		}, []string{"retry_trigger"}),
	}
}

func (m *metrics) register(registry prometheus.Registerer, manager *Manager) error {
	if registry == nil {
		return nil
	}
	var errs []error
	for _, collector := range []prometheus.Collector{m.requested, m.infeasible, m.deferredAccepted, &resizeCollector{manager: manager}} {
		errs = append(errs, registry.Register(collector))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register allocation metrics: %w", err)
	}
	return nil
}

// resizeCollector reports the kubelet's resize gauges (SM-98).
type resizeCollector struct {
	manager *Manager
}

var (
	pendingDesc    = prometheus.NewDesc("kubelet_pod_pending_resizes", "Number of pending resizes for pods.", []string{"reason"}, nil)
	inProgressDesc = prometheus.NewDesc("kubelet_pod_in_progress_resizes", "Number of in-progress resizes for pods.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *resizeCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- pendingDesc
	descs <- inProgressDesc
}

// Collect implements prometheus.Collector.
func (c *resizeCollector) Collect(metrics chan<- prometheus.Metric) {
	deferred, infeasible, inProgress := c.manager.countResizes()
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(pendingDesc, deferred, "deferred")
	gauge(pendingDesc, infeasible, "infeasible")
	gauge(inProgressDesc, inProgress)
}

func (m *Manager) countResizes() (deferred, infeasible, inProgress int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, resize := range m.resizes {
		if resize.IsDeferred() {
			deferred++
		}
		if resize.IsInfeasible() {
			infeasible++
		}
		if _, isInProgress := resize.InProgress(); isInProgress {
			inProgress++
		}
	}
	return deferred, infeasible, inProgress
}
