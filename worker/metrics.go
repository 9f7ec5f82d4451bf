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

// metrics holds the kubelet's pod worker metrics under the kubelet's names.
type metrics struct {
	duration      *prometheus.HistogramVec
	startDuration prometheus.Histogram
	containers    prometheus.Histogram
	podStart      prometheus.Histogram
	restarts      *prometheus.CounterVec
	orphans       prometheus.Counter
	rejections    *prometheus.CounterVec
	panics        prometheus.Counter
	resizes       *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer, w *Workers) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "Duration of one sync iteration, by operation type.",
		}, []string{"operation_type"}),
		startDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "Duration from the first update of a pod to its first sync.",
		}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_containers_per_pod_count", Help: "Number of containers of each pod that was started, without init containers.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		podStart: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "Duration from the first update of a pod until it is running.",
			Buckets: []float64{
				.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
			},
		}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_restarted_pods_total", Help: "Number of pods that were re-created under the same UID or found missing.",
		}, []string{"static"}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_orphaned_runtime_pods_total", Help: "Number of pods found in the runtime that are not desired.",
		}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total", Help: "Number of rejected pods, by reason.",
		}, []string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "herald_worker_panics_total", Help: "Number of panics that were recovered while handling a pod.",
		}),
		resizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_resize_duration_milliseconds", Help: "Duration in milliseconds to actuate a pod resize.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
		}, []string{"success"}),
	}
	for _, static := range []string{"", "true"} {
		m.restarts.WithLabelValues(static) // a rate needs a series before the first restart
	}
	if registry == nil {
		return m, nil
	}
	var errs []error
	for _, collector := range []prometheus.Collector{
		m.duration, m.startDuration, m.containers, m.podStart, m.restarts, m.orphans, m.rejections, m.panics, m.resizes,
		newPodCollector(w),
	} {
		errs = append(errs, registry.Register(collector))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("worker: register metrics: %w", err)
	}
	return m, nil
}

// observeIteration observes the duration of an iteration by operation. Once a pod terminates, every update counts as a kill
// (PW-8).
func (m *metrics) observeIteration(lifecycle plan.Lifecycle, duration time.Duration) {
	op := lifecycle.Op
	if lifecycle.Stage != plan.Syncing {
		op = plan.OpKill
	}
	m.duration.WithLabelValues(op.String()).Observe(duration.Seconds())
}

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

// podCollector counts the pods at scrape time, so its values never go stale.
type podCollector struct {
	workers         *Workers
	working, active *prometheus.Desc
}

func newPodCollector(w *Workers) podCollector {
	return podCollector{
		workers: w,
		working: prometheus.NewDesc("kubelet_working_pods",
			"Number of pods with a worker, by lifecycle stage, whether a source wants them, and whether they are static.",
			[]string{"lifecycle", "config", "static"}, nil),
		active: prometheus.NewDesc("kubelet_active_pods",
			"Number of pods that occupy the node. static is true for those that do not come from the API server.", []string{"static"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c podCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.working
	descs <- c.active
}

// Collect implements prometheus.Collector.
func (c podCollector) Collect(metrics chan<- prometheus.Metric) {
	counts, active := map[[3]string]int{}, map[string]int{"": 0, "true": 0}
	c.workers.mu.Lock()
	for _, r := range c.workers.records {
		config := "desired"
		switch {
		case r.lifecycle.Pod == nil:
			config = "runtime_only"
		case r.orphaned:
			config = "orphan"
		}
		static := staticLabel(r.lifecycle.Pod)
		counts[[3]string{min(r.lifecycle.Stage, plan.Terminated).String(), config, static}]++
		if r.lifecycle.Pod != nil && r.lifecycle.Stage < plan.Terminated && !r.lifecycle.Rejected {
			active[static]++
		}
	}
	c.workers.mu.Unlock()
	for labels, count := range counts {
		metrics <- prometheus.MustNewConstMetric(c.working, prometheus.GaugeValue, float64(count), labels[:]...)
	}
	for static, count := range active {
		metrics <- prometheus.MustNewConstMetric(c.active, prometheus.GaugeValue, float64(count), static)
	}
}
