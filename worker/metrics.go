package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// metrics are the kubelet's series about pod workers.
type metrics struct {
	duration      *prometheus.HistogramVec
	startDuration prometheus.Histogram
	podStart      prometheus.Histogram
	restarts      *prometheus.CounterVec
	orphans       prometheus.Counter
	rejections    *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, w *Workers) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "Time that one step of a pod took, by what asked for it.",
		}, []string{"operation_type"}),
		startDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "Time from a pod's first update to its first step.",
		}),
		podStart: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "Time from a pod's first update until it was seen to run.",
			Buckets: []float64{
				.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
			},
		}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_restarted_pods_total", Help: "Pods that were begun again under the same UID, or found to be missing.",
		}, []string{"static"}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_orphaned_runtime_pods_total", Help: "Pods that were found in the runtime and that nobody wants.",
		}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total", Help: "Pods that the node refused to run, by reason.",
		}, []string{"reason"}),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	for _, c := range []prometheus.Collector{
		m.duration, m.startDuration, m.podStart, m.restarts, m.orphans, m.rejections, newCensus(w),
	} {
		err = errors.Join(err, registry.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("worker: Config.Metrics: %w", err)
	}
	return m, nil
}

// took measures a step by what asked for it. A pod that ends takes every update for a kill (PW-8).
func (m *metrics) took(life plan.Lifecycle, d time.Duration) {
	op := life.Op
	if life.Stage != plan.Syncing {
		op = plan.OpKill
	}
	m.duration.WithLabelValues(op.String()).Observe(d.Seconds())
}

func (m *metrics) begun(d time.Duration)      { m.startDuration.Observe(d.Seconds()) }
func (m *metrics) podStarted(d time.Duration) { m.podStart.Observe(d.Seconds()) }
func (m *metrics) restarted(pod *v1.Pod)      { m.restarts.WithLabelValues(staticLabel(pod)).Inc() }
func (m *metrics) orphaned()                  { m.orphans.Inc() }
func (m *metrics) rejected(reason string)     { m.rejections.WithLabelValues(reason).Inc() }

func staticLabel(pod *v1.Pod) string {
	switch {
	case pod == nil:
		return "unknown"
	case podid.IsStatic(pod):
		return "true"
	default:
		return ""
	}
}

// census counts the records at the moment of the scrape, so that no number can drift from what it counts.
type census struct {
	of      *Workers
	working *prometheus.Desc
}

func newCensus(w *Workers) census {
	return census{of: w, working: prometheus.NewDesc("kubelet_working_pods",
		"Pods that the workers know, by where they stand, whether a source wants them, and whether they are static.",
		[]string{"lifecycle", "config", "static"}, nil)}
}

// Describe implements prometheus.Collector.
func (c census) Describe(into chan<- *prometheus.Desc) { into <- c.working }

// Collect implements prometheus.Collector.
func (c census) Collect(into chan<- prometheus.Metric) {
	counts := map[[3]string]int{}
	c.of.mu.Lock()
	for _, r := range c.of.records {
		config := "desired"
		switch {
		case r.life.Pod == nil:
			config = "runtime_only"
		case r.orphan:
			config = "orphan"
		}
		counts[[3]string{min(r.life.Stage, plan.Terminated).String(), config, staticLabel(r.life.Pod)}]++
	}
	c.of.mu.Unlock()
	for labels, n := range counts {
		into <- prometheus.MustNewConstMetric(c.working, prometheus.GaugeValue, float64(n), labels[:]...)
	}
}
