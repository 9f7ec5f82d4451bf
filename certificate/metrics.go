package certificate

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's. Those of the client and of the serving certificate differ.
type metrics struct {
	errors prometheus.Counter
	lives  prometheus.Histogram // nil for the client certificate
}

// NewTTL returns the kubelet's metric of the client certificate's remaining seconds: negative if it has expired, infinite if there is
// none.
func NewTTL(expires func() time.Time) prometheus.Collector {
	return newTTL("kubelet_certificate_manager_client_ttl_seconds", Client(), expires)
}

func newTTL(name string, kind Kind, expires func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: name, Help: "Seconds until the " + kind.what + " expires, negative if it has, infinite if there is none.",
	}, func() float64 {
		end := expires()
		if end.IsZero() {
			return math.Inf(1)
		}
		return math.Trunc(time.Until(end).Seconds())
	})
}

func newMetrics(kind Kind, m *Manager, registry prometheus.Registerer) (*metrics, error) {
	newErrors := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Number of failed attempts to get a " + kind.what + "."})
	}
	created := &metrics{}
	var collectors []prometheus.Collector
	if kind.Prefix == Client().Prefix {
		created.errors = newErrors("kubelet_certificate_manager_client_expiration_renew_errors")
	} else {
		created.errors = newErrors("kubelet_server_expiration_renew_errors")
		created.lives = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_certificate_manager_server_rotation_seconds",
			Help:    "Age of serving certificates when they were replaced.",
			Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
		})
		collectors = append(collectors, created.lives, newTTL("kubelet_certificate_manager_server_ttl_seconds", kind, m.Expires))
	}
	if registry == nil {
		return created, nil
	}
	for _, collector := range append(collectors, created.errors) {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("certificate: register metrics: %w", err)
		}
	}
	return created, nil
}

func (m *metrics) failed() { m.errors.Inc() }

func (m *metrics) rotated(age time.Duration) {
	if m.lives != nil {
		m.lives.Observe(age.Seconds())
	}
}
