// Package httpmetrics counts the requests to the agent's HTTP servers in the kubelet's metrics.
package httpmetrics

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Other stands for methods and paths that a server does not have.
const Other = "other"

// Requests are the metrics of all servers of the agent. Nil counts nothing.
type Requests struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
}

// New returns metrics that are registered.
func New(registry prometheus.Registerer) (*Requests, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &Requests{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Number of requests to the agent's servers.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration of requests to the agent's servers.", Buckets: prometheus.DefBuckets,
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Number of requests that the agent's servers are answering.",
		}, labels),
	}
	if err := errors.Join(registry.Register(m.requests), registry.Register(m.duration), registry.Register(m.inflight)); err != nil {
		return nil, fmt.Errorf("httpmetrics: register metrics: %w", err)
	}
	return m, nil
}

// Server describes a server in the labels of its requests. Clients must not be able to create series: Path returns one of a fixed set.
type Server struct {
	// Type is the label server_type.
	Type string
	// Methods are the methods that are not Other.
	Methods []string
	// Path returns the label path of a request.
	Path func(*http.Request) string
	// IsLongRunning reports whether the request ends with its client.
	IsLongRunning func(*http.Request) bool
}

// Observe returns a handler that counts the requests to next.
func (m *Requests) Observe(server Server, next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := Other
		if slices.Contains(server.Methods, r.Method) {
			method = r.Method
		}
		labels := []string{method, server.Path(r), server.Type, strconv.FormatBool(server.IsLongRunning(r))}
		m.requests.WithLabelValues(labels...).Inc()
		inflight := m.inflight.WithLabelValues(labels...)
		inflight.Inc()
		begin := time.Now()
		defer func() {
			inflight.Dec()
			m.duration.WithLabelValues(labels...).Observe(time.Since(begin).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}
