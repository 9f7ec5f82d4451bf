package cri

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's series about its runtime.
type metrics struct {
	calls, callErrors                  *prometheus.CounterVec
	callDuration                       *prometheus.HistogramVec
	startedPods, startedPodErrors      prometheus.Counter
	startedContainers                  *prometheus.CounterVec
	startedContainerErrors             *prometheus.CounterVec
	sandboxDuration                    *prometheus.HistogramVec
	sandboxErrors                      *prometheus.CounterVec
	hookHTTPFallbacks, hookSleepsBroke prometheus.Counter
	imagePulls                         *prometheus.HistogramVec
	imageRequests                      *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help})
	}
	durations := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{label})
	}
	m := &metrics{
		calls:             counters("runtime_operations_total", "Calls of the runtime.", "operation_type"),
		callErrors:        counters("runtime_operations_errors_total", "Calls of the runtime that failed.", "operation_type"),
		callDuration:      durations("runtime_operations_duration_seconds", "How long calls took.", "operation_type"),
		startedPods:       counter("started_pods_total", "Pods whose sandbox was asked for."),
		startedPodErrors:  counter("started_pods_errors_total", "Pods whose sandbox could not be made."),
		startedContainers: counters("started_containers_total", "Containers that were asked for.", "container_type"),
		startedContainerErrors: counters("started_containers_errors_total", "Containers that could not be started.",
			"container_type", "code"),
		sandboxDuration:   durations("run_podsandbox_duration_seconds", "How long sandboxes took.", "runtime_handler"),
		sandboxErrors:     counters("run_podsandbox_errors_total", "Sandboxes that could not be made.", "runtime_handler"),
		hookHTTPFallbacks: counter("lifecycle_handler_http_fallbacks_total", "HTTPS hooks that only answered plain HTTP."),
		hookSleepsBroke:   counter("sleep_action_terminated_early_total", "Sleep hooks that did not sleep to their end."),
		imagePulls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "How long pods waited for an image that was pulled.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
		imageRequests: counters("image_manager_ensure_image_requests_total", "Containers that asked for their image.",
			"pull_policy", "present_locally", "pull_required"),
	}
	if registry == nil {
		return m, nil
	}
	var err error
	for _, c := range []prometheus.Collector{
		m.calls, m.callErrors, m.callDuration, m.startedPods, m.startedPodErrors, m.startedContainers,
		m.startedContainerErrors, m.sandboxDuration, m.sandboxErrors, m.hookHTTPFallbacks, m.hookSleepsBroke,
		m.imagePulls, m.imageRequests,
	} {
		err = errors.Join(err, registry.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("register the metrics of the runtime: %w", err)
	}
	return m, nil
}

func (m *metrics) countCall(operation string, took time.Duration, err error) {
	m.calls.WithLabelValues(operation).Inc()
	m.callDuration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.callErrors.WithLabelValues(operation).Inc()
	}
}

// operationType is the kubelet's label for a call: CreateContainer is create_container, RunPodSandbox run_podsandbox.
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
