package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// RegisterMetrics registers the kubelet's metrics of API requests: rest_client_requests_total and the histograms of durations and
// sizes. They count all requests of the process, because client-go has one set of hooks for all its clients. Only the first call in a
// process has an effect on what is counted; a program calls it once, before its first request.
func RegisterMetrics(registry prometheus.Registerer) error {
	durations := []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}
	sizes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rest_client_" + name, Help: help, Buckets: buckets},
			[]string{"verb", "host"})
	}
	m := &requestMetrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Number of requests to the API server, by status code, method and host.",
		}, []string{"code", "method", "host"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_request_retries_total", Help: "Number of requests that client-go repeated, by status code, verb and host.",
		}, []string{"code", "verb", "host"}),
	}
	latency := histogram("request_duration_seconds", "Duration of requests to the API server, without waiting for the limit.", durations)
	waiting := histogram("rate_limiter_duration_seconds", "Time that requests waited for the limit of their client.", durations)
	requestSize := histogram("request_size_bytes", "Size of the bodies of requests to the API server.", sizes)
	responseSize := histogram("response_size_bytes", "Size of the bodies of the API server's responses.", sizes)
	var errs []error
	for _, collector := range []prometheus.Collector{m.results, m.retries, latency, waiting, requestSize, responseSize} {
		errs = append(errs, registry.Register(collector))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kubeapi: register metrics: %w", err)
	}
	metrics.Register(metrics.RegisterOpts{
		RequestLatency: latencies{latency}, RateLimiterLatency: latencies{waiting},
		RequestSize: bodySizes{requestSize}, ResponseSize: bodySizes{responseSize},
		RequestResult: m, RequestRetry: m,
	})
	return nil
}

// requestMetrics implements client-go's hooks for results and retries.
type requestMetrics struct{ results, retries *prometheus.CounterVec }

func (m *requestMetrics) Increment(_ context.Context, code, method, host string) {
	m.results.WithLabelValues(code, method, host).Inc()
}

func (m *requestMetrics) IncrementRetry(_ context.Context, code, verb, host string) {
	m.retries.WithLabelValues(code, verb, host).Inc()
}

// latencies implements client-go's hook for durations.
type latencies struct{ *prometheus.HistogramVec }

func (l latencies) Observe(_ context.Context, verb string, u url.URL, latency time.Duration) { //nolint:gocritic // client-go's type
	l.WithLabelValues(verb, u.Host).Observe(latency.Seconds())
}

// bodySizes implements client-go's hook for sizes.
type bodySizes struct{ *prometheus.HistogramVec }

func (s bodySizes) Observe(_ context.Context, verb, host string, size float64) {
	s.WithLabelValues(verb, host).Observe(size)
}
