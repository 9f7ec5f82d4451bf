package notify

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of herald_notifications_total.
const (
	resultSuccess = "success"
	resultFailed  = "failed"  // no answer, or one that asks to try again
	resultRefused = "refused" // the receiver will not have it
	resultExpired = "expired" // a resolved alert could not be delivered for 24 hours
	resultDropped = "dropped" // there were too many alerts
)

type metrics struct {
	total   *prometheus.CounterVec
	latency *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer, n *Notifier) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_notifications_total",
			Help: "Number of messages to receivers of alerts, by sink and result: success, failed, refused, expired or dropped.",
		}, []string{"sink", "result"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "herald_notification_latency_seconds",
			Help:    "Time from the change of an alert to its acknowledgement, by sink.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600},
		}, []string{"sink"}),
	}
	for _, s := range n.sinks {
		m.total.WithLabelValues(s.name, resultSuccess)
		m.total.WithLabelValues(s.name, resultFailed)
	}
	if registry == nil {
		return m, nil
	}
	failing := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "herald_notifications_failing",
		Help: "Number of receivers of alerts that have accepted nothing for 10 minutes although there is something to deliver.",
	}, func() float64 { return float64(n.Failing()) })
	for _, collector := range []prometheus.Collector{m.total, m.latency, failing} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("notify: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) count(s *sink, result string) { m.total.WithLabelValues(s.name, result).Inc() }

// observe measures the latency of a change of this run, once it is acknowledged.
func (m *metrics) observe(s *sink, i *item, sent *message, now time.Time) {
	isPresent := sent.episode.is(episodeOf(&i.alert)) && (sent.status == firing) == i.alert.IsFiring()
	if isPresent && !i.changedAt.IsZero() {
		m.latency.WithLabelValues(s.name).Observe(now.Sub(i.changedAt).Seconds())
	}
}

func resultOf(err error) string {
	var response *responseError
	switch {
	case err == nil:
		return resultSuccess
	case errors.As(err, &response) && response.isRefusal():
		return resultRefused
	default:
		return resultFailed
	}
}
