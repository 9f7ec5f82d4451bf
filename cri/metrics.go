package cri

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/latency"
)

// metrics are the kubelet's metrics about its runtime.
type metrics struct {
	calls, callErrors                        *prometheus.CounterVec
	callDuration                             callDurations
	startedPods, startedPodErrors            prometheus.Counter
	startedContainers                        *prometheus.CounterVec
	startedContainerErrors                   *prometheus.CounterVec
	sandboxDuration                          *prometheus.HistogramVec
	sandboxErrors                            *prometheus.CounterVec
	hookHTTPFallbacks, interruptedSleepHooks prometheus.Counter
	imagePulls                               *prometheus.HistogramVec
	imageRequests, imageChecks               *prometheus.CounterVec
	events                                   *eventMetrics
}

// callDurations are the durations of calls to the runtime. recent leaves out those that wait for something else.
type callDurations struct {
	*prometheus.HistogramVec
	recent *latency.Recent
}

// waitingCalls wait for a registry, a process or a grace period.
var waitingCalls = []string{"pull_image", "exec_sync", "stop_container", "stop_podsandbox", "run_podsandbox"}

// CallP99 returns the duration that 99 of 100 calls to the runtime in the last 15 minutes did not exceed, without those that wait for
// something else. It returns false if there was none.
func (r *Runtime) CallP99(now time.Time) (time.Duration, bool) {
	return r.metrics.callDuration.recent.P99(now)
}

// eventMetrics are the kubelet's metrics about the runtime's event stream.
type eventMetrics struct {
	streams prometheus.Counter
	latency prometheus.Histogram
}

func newEventMetrics() *eventMetrics {
	return &eventMetrics{
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_success_count", Help: "Number of times the runtime's event stream was opened.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_evented_pleg_connection_latency_seconds", Help: "Age of the runtime's events when they arrive.",
			Buckets: prometheus.DefBuckets,
		}),
	}
}

// observe observes an event. The stream is known to work at its first one.
func (m *eventMetrics) observe(createdAt int64, isFirst bool) {
	if isFirst {
		m.streams.Inc()
	}
	if createdAt > 0 {
		m.latency.Observe(time.Since(time.Unix(0, createdAt)).Seconds())
	}
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help})
	}
	durations := func(name, help, label string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_" + name, Help: help, Buckets: buckets}, []string{label})
	}
	m := &metrics{
		calls:      counters("runtime_operations_total", "Number of calls to the runtime.", "operation_type"),
		callErrors: counters("runtime_operations_errors_total", "Number of failed calls to the runtime.", "operation_type"),
		callDuration: callDurations{durations("runtime_operations_duration_seconds", "Duration of calls to the runtime.", "operation_type",
			prometheus.ExponentialBuckets(.005, 2.5, 14)), &latency.Recent{}},
		startedPods:       counter("started_pods_total", "Number of sandbox starts."),
		startedPodErrors:  counter("started_pods_errors_total", "Number of failed sandbox starts."),
		startedContainers: counters("started_containers_total", "Number of container starts.", "container_type"),
		startedContainerErrors: counters("started_containers_errors_total", "Number of failed container starts.",
			"container_type", "code"),
		sandboxDuration: durations("run_podsandbox_duration_seconds", "Duration of RunPodSandbox calls.", "runtime_handler",
			prometheus.DefBuckets),
		sandboxErrors:         counters("run_podsandbox_errors_total", "Number of failed RunPodSandbox calls.", "runtime_handler"),
		hookHTTPFallbacks:     counter("lifecycle_handler_http_fallbacks_total", "Number of HTTPS hooks that fell back to HTTP."),
		interruptedSleepHooks: counter("sleep_action_terminated_early_total", "Number of sleep hooks that ended early."),
		imagePulls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "Duration of image pulls, including waiting.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
		imageRequests: counters("image_manager_ensure_image_requests_total", "Number of images requested by containers.",
			"pull_policy", "present_locally", "pull_required"),
		imageChecks: counters("imagemanager_image_mustpull_checks_total",
			"Number of checks whether a pod may use an image that the node has.", "result"),
		events: newEventMetrics(),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	for _, c := range []prometheus.Collector{
		m.calls, m.callErrors, m.callDuration, m.startedPods, m.startedPodErrors, m.startedContainers,
		m.startedContainerErrors, m.sandboxDuration, m.sandboxErrors, m.hookHTTPFallbacks, m.interruptedSleepHooks,
		m.imagePulls, m.imageRequests, m.imageChecks, m.events.streams, m.events.latency,
	} {
		err = errors.Join(err, registry.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("cri: register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) observeCall(operation string, duration time.Duration, err error) {
	m.calls.WithLabelValues(operation).Inc()
	m.callDuration.WithLabelValues(operation).Observe(duration.Seconds())
	if !slices.Contains(waitingCalls, operation) {
		m.callDuration.recent.Observe(time.Now(), duration)
	}
	if err != nil {
		m.callErrors.WithLabelValues(operation).Inc()
	}
}

// operationType returns the kubelet's label of a call: CreateContainer is create_container, RunPodSandbox run_podsandbox.
func operationType(call string) string {
	call = strings.Replace(call, "PodSandbox", "Podsandbox", 1)
	var label strings.Builder
	for i, letter := range call {
		if unicode.IsUpper(letter) && i > 0 {
			label.WriteByte('_')
		}
		label.WriteRune(unicode.ToLower(letter))
	}
	return label.String()
}

// imageRequestLabels are the labels of an image request; nil is unknown.
type imageRequestLabels struct {
	policy        v1.PullPolicy
	present, pull *bool
}

func (m *metrics) countImageRequest(labels imageRequestLabels) {
	m.imageRequests.WithLabelValues(strings.ToLower(string(labels.policy)), boolLabel(labels.present), boolLabel(labels.pull)).Inc()
}

func boolLabel(value *bool) string {
	if value == nil {
		return "unknown"
	}
	return strconv.FormatBool(*value)
}

// sizeLabel returns the kubelet's label for the size of an image.
func sizeLabel(bytes uint64) string {
	const mega, giga = 1 << 20, 1 << 30
	if bytes == 0 {
		return "N/A"
	}
	for _, bucket := range []struct {
		upTo  uint64
		label string
	}{
		{10 * mega, "0-10MB"}, {100 * mega, "10MB-100MB"}, {500 * mega, "100MB-500MB"}, {giga, "500MB-1GB"},
		{5 * giga, "1GB-5GB"}, {10 * giga, "5GB-10GB"}, {20 * giga, "10GB-20GB"}, {30 * giga, "20GB-30GB"},
		{40 * giga, "30GB-40GB"}, {60 * giga, "40GB-60GB"}, {100 * giga, "60GB-100GB"},
	} {
		if bytes <= bucket.upTo {
			return bucket.label
		}
	}
	return "GT100GB"
}
