package node

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	reports, renewals *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, name string) (*metrics, error) {
	m := &metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_node_status_reports_total",
			Help: "Attempts to keep the Node's status, by what became of them: told, unchanged, failed, rival.",
		}, []string{"result"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_node_lease_renewals_total",
			Help: "Attempts to renew the node's lease, by what became of them: renewed, failed.",
		}, []string{"result"}),
	}
	if registry == nil {
		return m, nil
	}
	named := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_node_name", Help: "The node's name. The count is always 1.", ConstLabels: prometheus.Labels{"node": name},
	})
	named.Set(1)
	for _, c := range []prometheus.Collector{m.reports, m.renewals, named} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("node: register metrics: %w", err)
		}
	}
	return m, nil
}
