package action

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/remedy"
)

type metrics struct {
	total, verified      *prometheus.CounterVec
	suspended, exhausted prometheus.Gauge
	writeErrors, dropped prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_actions_total",
			Help: "Actions of alert rules by type and result: done, failed, rejected, unknown, dry-run, refused.",
		}, []string{"type", "result"}),
		verified: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_actions_verified_total",
			Help: "Actions of which it is known whether they helped, by type and result: helped, not-helped.",
		}, []string{"type", "result"}),
		suspended: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "herald_actions_suspended", Help: "1 while disruptive actions are suspended.",
		}),
		exhausted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "herald_actions_exhausted", Help: "Objects for which an action did not help twice in a row.",
		}),
		writeErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "herald_actions_ledger_write_errors_total", Help: "Entries of actions that could not be written.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "herald_actions_dropped_alerts_total", Help: "Alerts that were not looked at because there were too many.",
		}),
	}
}

func (m *metrics) register(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	for _, collector := range []prometheus.Collector{m.total, m.verified, m.suspended, m.exhausted, m.writeErrors, m.dropped} {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) setState(state State) {
	m.suspended.Set(0)
	if state.Suspended != "" {
		m.suspended.Set(1)
	}
	m.exhausted.Set(float64(len(state.Exhausted)))
}

// resultOf returns the label of an outcome.
func resultOf(entry *remedy.Entry) string {
	switch {
	case entry.DryRun:
		return "dry-run"
	case entry.Outcome == remedy.Refused:
		return "rejected"
	default:
		return string(entry.Outcome)
	}
}
