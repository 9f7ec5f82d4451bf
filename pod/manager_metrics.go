package pod

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/podid"
)

// census counts what a Manager holds at the moment of the scrape, so that no number can drift from what it counts
// (PM-9).
type census struct {
	of                         *Manager
	desired, mirror, ephemeral *prometheus.Desc
}

// Collector offers the Manager's numbers for registration, under the kubelet's names: kubelet_desired_pods,
// kubelet_mirror_pods and kubelet_managed_ephemeral_containers.
func (m *Manager) Collector() prometheus.Collector {
	return census{
		of: m,
		desired: prometheus.NewDesc("kubelet_desired_pods",
			"Number of pods that this node should run. static is true for those that do not come from the API server.",
			[]string{"static"}, nil),
		mirror: prometheus.NewDesc("kubelet_mirror_pods",
			"Number of mirror pods that the API server shows for this node.", nil, nil),
		ephemeral: prometheus.NewDesc("kubelet_managed_ephemeral_containers",
			"Number of ephemeral containers in the pods that this node should run.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c census) Describe(into chan<- *prometheus.Desc) {
	into <- c.desired
	into <- c.mirror
	into <- c.ephemeral
}

// Collect implements prometheus.Collector.
func (c census) Collect(into chan<- prometheus.Metric) {
	api, static, mirrors, ephemeral := c.of.count()
	send := func(desc *prometheus.Desc, value int, labels ...string) {
		into <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	send(c.desired, api, "")
	send(c.desired, static, "true")
	send(c.mirror, mirrors)
	send(c.ephemeral, ephemeral)
}

func (m *Manager) count() (api, static, mirrors, ephemeral int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, pod := range m.pods {
		ephemeral += len(pod.Spec.EphemeralContainers)
		if podid.IsStatic(pod) {
			static++
		}
	}
	return len(m.pods) - static, static, len(m.mirrors), ephemeral
}
