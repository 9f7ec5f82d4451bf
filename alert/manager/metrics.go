package manager

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/alert"
)

// metrics are read from the engine when they are collected, except for the histogram.
type metrics struct {
	manager                                *Manager
	alerts, evaluations, failures, ruleSet *prometheus.Desc
	edges                                  prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer, m *Manager) (*metrics, error) {
	all := &metrics{
		manager: m,
		alerts: prometheus.NewDesc("herald_alerts", "Alerts by name, severity and state: pending, firing, recovering, resolved.",
			[]string{"alertname", "severity", "state"}, nil),
		evaluations: prometheus.NewDesc("herald_alert_evaluations_total", "Evaluations of alert rules.", nil, nil),
		failures:    prometheus.NewDesc("herald_alert_evaluation_failures_total", "Evaluations of alert rules that failed.", nil, nil),
		ruleSet:     prometheus.NewDesc("herald_alert_rules", "Alert rules.", nil, nil),
		edges: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "herald_alert_edge_seconds", Help: "Duration from the change that made an alert fire or resolved it until that was on disk.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	if registry == nil {
		return all, nil
	}
	for _, collector := range []prometheus.Collector{all, all.edges} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("manager: register metrics: %w", err)
		}
	}
	return all, nil
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{m.alerts, m.evaluations, m.failures, m.ruleSet} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(collected chan<- prometheus.Metric) {
	type series struct{ name, severity, state string }
	counts := map[series]int{}
	m.manager.mu.RLock()
	for _, a := range m.manager.engine.Alerts() {
		counts[series{a.Labels[alert.LabelName], a.Labels[alert.LabelSeverity], string(a.State)}]++
	}
	evaluations, failures := m.manager.engine.Evaluations(), m.manager.engine.Failures()
	rules := len(m.manager.rules.set.Rules)
	m.manager.mu.RUnlock()
	for s, count := range counts {
		collected <- prometheus.MustNewConstMetric(m.alerts, prometheus.GaugeValue, float64(count), s.name, s.severity, s.state)
	}
	collected <- prometheus.MustNewConstMetric(m.evaluations, prometheus.CounterValue, float64(evaluations))
	collected <- prometheus.MustNewConstMetric(m.failures, prometheus.CounterValue, float64(failures))
	collected <- prometheus.MustNewConstMetric(m.ruleSet, prometheus.GaugeValue, float64(rules))
}
