package source

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/podid"
)

// metrics count what is wrong with the sources.
type metrics struct {
	errors   *prometheus.CounterVec
	problems *prometheus.GaugeVec
}

func newMetrics(sources []Source) *metrics {
	m := &metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_manifest_errors_total",
			Help: "Problems that appeared in what a pod source reads; a problem that stays counts once.",
		}, []string{"source"}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "herald_manifest_problems",
			Help: "Problems in what a pod source reads, now.",
		}, []string{"source"}),
	}
	for _, source := range sources {
		m.problemsChanged(source.Name(), 0, 0) // alerts need the series before the first problem
	}
	return m
}

func (m *metrics) problemsChanged(source podid.Source, appeared, total int) {
	m.errors.WithLabelValues(string(source)).Add(float64(appeared))
	m.problems.WithLabelValues(string(source)).Set(float64(total))
}

// register makes the metrics visible until the returned function is called.
func (m *metrics) register(registerer prometheus.Registerer) (unregister func(), err error) {
	if registerer == nil {
		return func() {}, nil
	}
	unregister = func() {
		registerer.Unregister(m.errors)
		registerer.Unregister(m.problems)
	}
	if err := errors.Join(registerer.Register(m.errors), registerer.Register(m.problems)); err != nil {
		unregister()
		return nil, err
	}
	return unregister, nil
}
