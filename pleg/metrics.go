package pleg

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/internal/latency"
	"github.com/heraldnode/herald/observed"
)

// metrics holds the kubelet's PLEG metrics under the kubelet's names.
type metrics struct {
	relistDuration, relistInterval, podRelistDuration prometheus.Histogram
	streamErrors                                      prometheus.Counter
	lastRelist                                        time.Time // used by the relisting goroutine only
	recent                                            latency.Recent
}

// RelistP99 returns the duration that 99 of 100 relists of the last 15 minutes did not exceed. It returns false if there was none.
func (p *PLEG) RelistP99(now time.Time) (time.Duration, bool) { return p.metrics.recent.P99(now) }

func newMetrics(registry prometheus.Registerer, p *PLEG) (*metrics, error) {
	newHistogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets})
	}
	m := &metrics{
		relistDuration:    newHistogram("kubelet_pleg_relist_duration_seconds", "Duration of listing all pods."),
		relistInterval:    newHistogram("kubelet_pleg_relist_interval_seconds", "Interval between relists."),
		podRelistDuration: newHistogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of inspecting one pod."),
		streamErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_error_count", Help: "Number of times the runtime's event stream ended.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	for _, collector := range []prometheus.Collector{
		m.relistDuration, m.relistInterval, m.podRelistDuration, m.streamErrors, listCollector{pleg: p},
	} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("pleg: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observeRelist(begin time.Time) {
	now := time.Now()
	m.relistDuration.Observe(now.Sub(begin).Seconds())
	m.recent.Observe(now, now.Sub(begin))
	if !m.lastRelist.IsZero() {
		m.relistInterval.Observe(begin.Sub(m.lastRelist).Seconds())
	}
	m.lastRelist = begin
}

func (m *metrics) observeInspection(begin time.Time) {
	m.podRelistDuration.Observe(time.Since(begin).Seconds())
}

// listCollector counts the pods of the last list at scrape time, so its values never go stale (PLEG-21).
type listCollector struct{ pleg *PLEG }

var (
	lastSeenDesc   = prometheus.NewDesc("kubelet_pleg_last_seen_seconds", "Unix time at which the last successful relist began.", nil, nil)
	podsDesc       = prometheus.NewDesc("kubelet_running_pods", "Number of pods with a ready sandbox.", nil, nil)
	containersDesc = prometheus.NewDesc("kubelet_running_containers", "Number of containers by state.", []string{"container_state"}, nil)
)

// Describe implements prometheus.Collector.
func (c listCollector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

// Collect implements prometheus.Collector.
func (c listCollector) Collect(metrics chan<- prometheus.Metric) {
	pods, listedAt := c.pleg.Pods()
	running := 0
	states := map[observed.State]int{observed.Created: 0, observed.Running: 0, observed.Exited: 0, observed.Unknown: 0}
	for _, pod := range pods {
		if pod.ReadySandboxes() > 0 {
			running++
		}
		for _, container := range pod.Containers {
			states[container.State]++
		}
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(podsDesc, float64(running))
	for state, count := range states {
		gauge(containersDesc, float64(count), state.String())
	}
	if !listedAt.IsZero() {
		gauge(lastSeenDesc, float64(listedAt.UnixNano())/1e9)
	}
}
