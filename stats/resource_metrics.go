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
		"CPU time of the node since it booted, in seconds of one core.", nil, nil)
	nodeMemory = prometheus.NewDesc("node_memory_working_set_bytes",
		"Memory of the node that cannot be reclaimed at once, in bytes.", nil, nil)
	nodeSwap = prometheus.NewDesc("node_swap_usage_bytes",
		"Swap that the node uses, in bytes.", nil, nil)
	podCPU = prometheus.NewDesc("pod_cpu_usage_seconds_total",
		"CPU time of the pod since it started, in seconds of one core.", podLabels, nil)
	podMemory = prometheus.NewDesc("pod_memory_working_set_bytes",
		"Memory of the pod that cannot be reclaimed at once, in bytes.", podLabels, nil)
	podSwap = prometheus.NewDesc("pod_swap_usage_bytes",
		"Swap that the pod uses, in bytes.", podLabels, nil)
	containerCPU = prometheus.NewDesc("container_cpu_usage_seconds_total",
		"CPU time of the container since it started, in seconds of one core.", containerLabels, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes",
		"Memory of the container that cannot be reclaimed at once, in bytes.", containerLabels, nil)
	containerSwap = prometheus.NewDesc("container_swap_usage_bytes",
		"Swap that the container uses, in bytes.", containerLabels, nil)
	containerSwapLimit = prometheus.NewDesc("container_swap_limit_bytes",
		"Swap that the container may use, in bytes.", containerLabels, nil)
	containerStart = prometheus.NewDesc("container_start_time_seconds",
		"Unix time at which the container started.", containerLabels, nil)
	scrapeError = prometheus.NewDesc("resource_scrape_error",
		"1 if the pods could not be measured, 0 otherwise.", nil, nil)
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
