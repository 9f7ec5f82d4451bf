package kubeapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/kubeapi"
)

// TestRegisterMetrics is the only test that may register: client-go has one set of hooks.
func TestRegisterMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if err := kubeapi.RegisterMetrics(registry); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client, err := kubeapi.New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseConnections()
	if _, err := client.GetNode(t.Context(), "a"); err == nil {
		t.Fatal("got no error from a server without API")
	}
	for _, name := range []string{"rest_client_requests_total", "rest_client_request_duration_seconds"} {
		if count, err := testutil.GatherAndCount(registry, name); err != nil || count == 0 {
			t.Errorf("%s: got %d series (%v), want one", name, count, err)
		}
	}
	if err := kubeapi.RegisterMetrics(registry); err == nil {
		t.Error("registering twice: got no error")
	}
}
