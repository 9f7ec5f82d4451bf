package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heraldnode/herald/server"
)

func TestRequestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	requests, err := server.NewRequestMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	probes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "probes") })
	s, err := server.New(server.Config{Agent: &fakeAgent{}, ProbeMetrics: probes, Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics/probes", "/pods", "/absent/1", "/absent/2", "/"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
		response := httptest.NewRecorder()
		s.ServeHTTP(response, request)
		if path == "/metrics/probes" && response.Body.String() != "probes" {
			t.Errorf("%s: got %d %q", path, response.Code, response.Body)
		}
	}
	const want = `
# HELP kubelet_http_requests_total Number of requests to the agent's servers.
# TYPE kubelet_http_requests_total counter
kubelet_http_requests_total{long_running="false",method="GET",path="",server_type="local"} 1
kubelet_http_requests_total{long_running="false",method="GET",path="metrics/probes",server_type="local"} 1
kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="local"} 2
kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="local"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_http_requests_total"); err != nil {
		t.Error(err)
	}
	if count, err := testutil.GatherAndCount(registry, "kubelet_http_inflight_requests"); err != nil || count != 4 {
		t.Errorf("got %d series of requests in flight, error %v, want 4", count, err)
	}
}
