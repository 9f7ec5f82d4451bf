package pleg

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/observed"
)

// metrics are the kubelet's series, by their names. One goroutine lists, so last needs no lock.
type metrics struct {
	relistDuration, relistInterval, podRelistDuration prometheus.Histogram
	streamErrors                                      prometheus.Counter
	last                                              time.Time
}

func newMetrics(registry prometheus.Registerer, p *PLEG) (*metrics, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets})
	}
	m := &metrics{
		relistDuration:    histogram("kubelet_pleg_relist_duration_seconds", "How long it takes to list all pods."),
		relistInterval:    histogram("kubelet_pleg_relist_interval_seconds", "The time from one list to the next."),
		podRelistDuration: histogram("kubelet_pleg_pod_relist_duration_seconds", "How long it takes to inspect one pod."),
		streamErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_error_count", Help: "How often the runtime's event stream ended.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.relistDuration, m.relistInterval, m.podRelistDuration, m.streamErrors, tally{pleg: p},
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("pleg: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) relisted(began time.Time) {
	m.relistDuration.Observe(time.Since(began).Seconds())
	if !m.last.IsZero() {
		m.relistInterval.Observe(began.Sub(m.last).Seconds())
	}
	m.last = began
}

func (m *metrics) inspected(began time.Time) {
	m.podRelistDuration.Observe(time.Since(began).Seconds())
}
func (m *metrics) streamEnded() { m.streamErrors.Inc() }

// tally counts the newest list whenever it is asked, so that no number outlives what it counted (PLEG-21).
type tally struct{ pleg *PLEG }

var (
	lastSeen = prometheus.NewDesc("kubelet_pleg_last_seen_seconds", "When the newest list was begun, in Unix seconds.", nil, nil)
	pods     = prometheus.NewDesc("kubelet_running_pods", "Pods with a ready sandbox.", nil, nil)
	members  = prometheus.NewDesc("kubelet_running_containers", "Containers by state.", []string{"container_state"}, nil)
)

func (t tally) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(t, out) }

func (t tally) Collect(out chan<- prometheus.Metric) {
	list, at := t.pleg.Pods()
	running := 0
	states := map[observed.State]int{observed.Created: 0, observed.Running: 0, observed.Exited: 0, observed.Unknown: 0}
	for _, pod := range list {
		if pod.ReadySandboxes() > 0 {
			running++
		}
		for _, c := range pod.Containers {
			states[c.State]++
		}
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(pods, float64(running))
	for state, count := range states {
		gauge(members, float64(count), state.String())
	}
	if !at.IsZero() {
		gauge(lastSeen, float64(at.UnixNano())/1e9)
	}
}
