package cli

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heraldnode/herald/server"
)

// metrics are the metrics of the process, by the path that serves them. Those of probes have their own, as in the kubelet, because
// there are several for each container.
type metrics struct {
	agent, probes *prometheus.Registry
	requests      *server.RequestMetrics
}

func newMetrics() (*metrics, error) {
	m := &metrics{agent: prometheus.NewRegistry(), probes: prometheus.NewRegistry()}
	m.agent.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	requests, err := server.NewRequestMetrics(m.agent)
	m.requests = requests
	return m, err
}

func handlerOf(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
