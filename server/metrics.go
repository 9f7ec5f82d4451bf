package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/internal/httpmetrics"
)

// RequestMetrics are the kubelet's metrics of the requests to all servers of the agent. Nil counts nothing.
type RequestMetrics = httpmetrics.Requests

// serverType is the value of the label server_type, in which the kubelet has readwrite or readonly.
const serverType = "local"

// NewRequestMetrics returns metrics that are registered.
func NewRequestMetrics(registry prometheus.Registerer) (*RequestMetrics, error) {
	return httpmetrics.New(registry)
}

// observe returns a handler that counts the requests of the mux. The label path is a pattern of the mux, so that clients cannot create
// series.
func observe(metrics *RequestMetrics, mux *http.ServeMux) http.Handler {
	return metrics.Observe(httpmetrics.Server{
		Type: serverType, Methods: []string{http.MethodGet, http.MethodHead, http.MethodPost}, IsLongRunning: isLongRunning,
		Path: func(r *http.Request) string { return pathLabel(mux, r) },
	}, mux)
}

// pathLabel returns the path of the handler as the kubelet writes it: without the leading slash, and without what names an object.
func pathLabel(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	_, path, found := strings.Cut(pattern, "/")
	if !found {
		return httpmetrics.Other
	}
	path, _, _ = strings.Cut(path, "/{")
	path, _, _ = strings.Cut(path, "{$}")
	return strings.TrimSuffix(path, "/")
}

// isLongRunning reports whether the request is a watch or a stream of a container, which end with their clients.
func isLongRunning(r *http.Request) bool {
	isWatch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
	return isWatch || r.URL.Path == apiPrefix+"watch" || isContainerStream(r.URL.Path)
}
