package auth

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the kubelet, by name.
type metrics struct {
	tokenReviews, accessReviews requestMetrics
	tokenLookups                *prometheus.CounterVec
}

// requestMetrics are about the requests of one kind to the API server.
type requestMetrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		tokenReviews:  newRequestMetrics("authn", "token reviews"),
		accessReviews: newRequestMetrics("authz", "access reviews"),
		tokenLookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_token_cache_request_total", Help: "Number of tokens looked up in the cache, by hit and miss.",
		}, []string{"status"}),
	}
	if registry == nil {
		return m, nil
	}
	var errs []error
	for _, collector := range []prometheus.Collector{
		m.tokenReviews.total, m.tokenReviews.duration, m.accessReviews.total, m.accessReviews.duration, m.tokenLookups,
	} {
		errs = append(errs, registry.Register(collector))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("auth: register metrics: %w", err)
	}
	return m, nil
}

func newRequestMetrics(kind, what string) requestMetrics {
	name := "apiserver_delegated_" + kind + "_request_"
	return requestMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name + "total", Help: "Number of " + what + " sent to the API server, by status code.",
		}, []string{"code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name + "duration_seconds", Help: "Duration of " + what + " sent to the API server, by status code.",
			Buckets: []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10},
		}, []string{"code"}),
	}
}

func (m requestMetrics) observe(code string, duration time.Duration) {
	m.total.WithLabelValues(code).Inc()
	m.duration.WithLabelValues(code).Observe(duration.Seconds())
}

func (m *metrics) countTokenLookup(isHit bool) {
	status := "miss"
	if isHit {
		status = "hit"
	}
	m.tokenLookups.WithLabelValues(status).Inc()
}
