package status

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges reports how things stand at the moment when it is asked.
type gauges struct {
	manager *Manager
}

var (
	depthDesc = prometheus.NewDesc("herald_status_queue_depth", "Pods that wait for a status write.", []string{"urgency"}, nil)
	ageDesc   = prometheus.NewDesc("herald_status_oldest_unsent_seconds",
		"Age of the oldest change that the API server does not show yet.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- depthDesc
	out <- ageDesc
}

// Collect is part of prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for u, depth := range g.manager.queue.depths() {
		gauge(depthDesc, float64(depth), urgency(u).String())
	}
	gauge(ageDesc, g.manager.oldestUnsent(time.Now()).Seconds())
}

func (m *Manager) oldestUnsent(now time.Time) time.Duration {
	if m.config.API == nil {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var oldest time.Duration
	for _, e := range m.entries {
		if e.unsent() && !e.isLost() {
			oldest = max(oldest, now.Sub(e.unsentSince))
		}
	}
	return oldest
}
