package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
)

// ResourceMetrics returns a collector of /metrics/resource with the kubelet's names and labels, which metrics-server and the dashboards of
// kubernetes-mixin read. Its samples have the time of their measurement (RES-15). What was not measured is left out: a container that
// has no first reading yet does not hide its pod.
//
// startedAt returns when a container of a pod started, by its ID, zero if that is unknown. Nil leaves the start times out.
func (c *Collector) ResourceMetrics(startedAt func(uid podid.UID, containerID string) time.Time) prometheus.Collector {
	return resourceMetrics{collector: c, startedAt: startedAt}
}

type resourceMetrics struct {
	collector *Collector
	startedAt func(uid podid.UID, containerID string) time.Time
}

var (
	podLabels       = []string{"pod", "namespace"}
	containerLabels = []string{"container", "pod", "namespace"}

	// The texts are the kubelet's, with their level of stability: Prometheus warns if one metric has several.
	nodeCPU = prometheus.NewDesc("node_cpu_usage_seconds_total",
		"[STABLE] Cumulative cpu time consumed by the node in core-seconds", nil, nil)
	nodeMemory = prometheus.NewDesc("node_memory_working_set_bytes",
		"[STABLE] Current working set of the node in bytes", nil, nil)
	nodeSwap = prometheus.NewDesc("node_swap_usage_bytes",
		"[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems", nil, nil)
	podCPU = prometheus.NewDesc("pod_cpu_usage_seconds_total",
		"[STABLE] Cumulative cpu time consumed by the pod in core-seconds", podLabels, nil)
	podMemory = prometheus.NewDesc("pod_memory_working_set_bytes",
		"[STABLE] Current working set of the pod in bytes", podLabels, nil)
	podSwap = prometheus.NewDesc("pod_swap_usage_bytes",
		"[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", podLabels, nil)
	containerCPU = prometheus.NewDesc("container_cpu_usage_seconds_total",
		"[STABLE] Cumulative cpu time consumed by the container in core-seconds", containerLabels, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes",
		"[STABLE] Current working set of the container in bytes", containerLabels, nil)
	containerSwap = prometheus.NewDesc("container_swap_usage_bytes",
		"[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems", containerLabels, nil)
	containerSwapLimit = prometheus.NewDesc("container_swap_limit_bytes",
		"[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", containerLabels, nil)
	containerStart = prometheus.NewDesc("container_start_time_seconds",
		"[STABLE] Start time of the container since unix epoch in seconds", containerLabels, nil)
	scrapeError = prometheus.NewDesc("resource_scrape_error",
		"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// Describe implements prometheus.Collector.
func (m resourceMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		nodeCPU, nodeMemory, nodeSwap, podCPU, podMemory, podSwap, containerCPU, containerMemory, containerSwap,
		containerSwapLimit, containerStart, scrapeError,
	} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (m resourceMetrics) Collect(metrics chan<- prometheus.Metric) {
	machine, machineAt := m.collector.Machine()
	pods, podsAt := m.collector.PodSamples()
	failed := 0.0
	if machineAt.IsZero() || podsAt.IsZero() {
		failed = 1
	}
	metrics <- prometheus.MustNewConstMetric(scrapeError, prometheus.GaugeValue, failed)
	send := sender{metrics: metrics, at: machineAt}
	send.counter(nodeCPU, difference(machine.CPUBusy, machine.CPUSteal))
	send.gauge(nodeMemory, machine.WorkingSet)
	send.gauge(nodeSwap, machine.Detail.Swap)
	for _, pod := range pods {
		send.at = measuredAt(pod.Usage, podsAt)
		labels := []string{pod.Name.Name, pod.Name.Namespace}
		send.counter(podCPU, pod.Usage.CPUSeconds, labels...)
		send.gauge(podMemory, pod.Usage.WorkingSet, labels...)
		send.gauge(podSwap, pod.Usage.Swap, labels...)
		for _, container := range pod.Containers {
			send.at = measuredAt(container.Usage, podsAt)
			m.collectContainer(send, pod.UID, container, append([]string{container.Name}, labels...))
		}
	}
}

func (m resourceMetrics) collectContainer(send sender, uid podid.UID, container load.ContainerSample, labels []string) {
	send.counter(containerCPU, container.Usage.CPUSeconds, labels...)
	send.gauge(containerMemory, container.Usage.WorkingSet, labels...)
	send.gauge(containerSwap, container.Usage.Swap, labels...)
	send.gauge(containerSwapLimit, container.Usage.Swap.Plus(container.Usage.SwapAvailable), labels...)
	if m.startedAt == nil {
		return
	}
	if start := m.startedAt(uid, container.ID); !start.IsZero() {
		send.at = time.Time{} // a start is no measurement: metrics-server compares it with the times of the others
		send.gauge(containerStart, load.Known(float64(start.UnixNano())/float64(time.Second)), labels...)
	}
}

// measuredAt returns when the runtime measured, or when it was asked.
func measuredAt(usage load.Usage, askedAt time.Time) time.Time {
	if usage.At.IsZero() {
		return askedAt
	}
	return usage.At
}

// sender sends known values with the time of their measurement.
type sender struct {
	metrics chan<- prometheus.Metric
	at      time.Time
}

func (s sender) counter(desc *prometheus.Desc, value load.Value, labels ...string) {
	s.send(desc, prometheus.CounterValue, value, labels)
}

func (s sender) gauge(desc *prometheus.Desc, value load.Value, labels ...string) {
	s.send(desc, prometheus.GaugeValue, value, labels)
}

func (s sender) send(desc *prometheus.Desc, kind prometheus.ValueType, value load.Value, labels []string) {
	number, known := value.Get()
	if !known {
		return
	}
	metric := prometheus.MustNewConstMetric(desc, kind, number, labels...)
	if !s.at.IsZero() {
		metric = prometheus.NewMetricWithTimestamp(s.at, metric)
	}
	s.metrics <- metric
}
