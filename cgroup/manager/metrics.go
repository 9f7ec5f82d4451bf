package manager

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/cgroup"
)

// metrics are the kubelet's metrics of cgroups.
type metrics struct{ duration *prometheus.HistogramVec }

// Values of the label operation_type.
const (
	operationCreate  = "create"
	operationUpdate  = "update"
	operationDestroy = "destroy"
)

func newMetrics(registry prometheus.Registerer, host cgroup.Host) (*metrics, error) {
	m := &metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_cgroup_manager_duration_seconds", Help: "Duration of creating, updating and removing a cgroup.",
		Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})}
	if registry == nil {
		return m, nil
	}
	version := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "Version of the machine's cgroups: 1 or 2."})
	version.Set(1)
	if host.V2 {
		version.Set(2)
	}
	if err := errors.Join(registry.Register(m.duration), registry.Register(version)); err != nil {
		return nil, fmt.Errorf("cgroup/manager: register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) observe(operation string, begin time.Time) {
	m.duration.WithLabelValues(operation).Observe(time.Since(begin).Seconds())
}

// applyOperation returns what apply does: it creates the cgroup if it does not exist.
func (m *Manager) applyOperation(path string) string {
	if m.exists(path) {
		return operationUpdate
	}
	return operationCreate
}
