package broadcaster

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	events *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "herald_events_total",
		Help: "Events for the API server, by what became of them: told, thinned out, refused, dropped.",
	}, []string{"result"})}
	if registry == nil {
		return m, nil
	}
	if err := registry.Register(m.events); err != nil {
		return nil, fmt.Errorf("event: register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) told(result string) { m.events.WithLabelValues(result).Inc() }
