package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RequestMetrics are the kubelet's metrics of a server's requests. Nil counts nothing.
type RequestMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
}

// serverType is the value of the label server_type, in which the kubelet has readwrite or readonly.
const serverType = "local"

// NewRequestMetrics returns metrics that are registered.
func NewRequestMetrics(registry prometheus.Registerer) (*RequestMetrics, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &RequestMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Number of requests to the local server.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration of requests to the local server.", Buckets: prometheus.DefBuckets,
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Number of requests that the local server is answering.",
		}, labels),
	}
	if err := errors.Join(registry.Register(m.requests), registry.Register(m.duration), registry.Register(m.inflight)); err != nil {
		return nil, fmt.Errorf("server: register metrics: %w", err)
	}
	return m, nil
}

// observe returns a handler that counts the requests of the mux. The label path is a pattern of the mux, so that clients cannot create
// series.
func (m *RequestMetrics) observe(mux *http.ServeMux) http.Handler {
	if m == nil {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		labels := []string{methodLabel(r.Method), pathLabel(mux, r), serverType, strconv.FormatBool(isLongRunning(r))}
		m.requests.WithLabelValues(labels...).Inc()
		inflight := m.inflight.WithLabelValues(labels...)
		inflight.Inc()
		begin := time.Now()
		defer func() {
			inflight.Dec()
			m.duration.WithLabelValues(labels...).Observe(time.Since(begin).Seconds())
		}()
		mux.ServeHTTP(w, r)
	})
}

func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return method
	default:
		return otherLabel
	}
}

// otherLabel stands for methods and paths that the server does not have.
const otherLabel = "other"

// pathLabel returns the path of the handler as the kubelet writes it: without the leading slash, and without what names an object.
func pathLabel(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	_, path, found := strings.Cut(pattern, " /")
	if !found {
		return otherLabel
	}
	path, _, _ = strings.Cut(path, "/{")
	path, _, _ = strings.Cut(path, "{$}")
	return path
}

// isLongRunning reports whether the request is a watch, which ends with its client.
func isLongRunning(r *http.Request) bool {
	isWatch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
	return isWatch || r.URL.Path == apiPrefix+"watch"
}
