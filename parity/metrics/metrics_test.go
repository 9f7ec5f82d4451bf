package metrics_test

import (
	"testing"
)

// TestMetrics compares the metrics of the real kubelet and of Herald after both have run the same pods.
func TestMetrics(t *testing.T) {
	e := startNodes(t)
	var kubelet, herald map[string]family
	for range 2 { // the second one finds the first among the requests
		var err error
		if kubelet, err = e.kubelet.scrape(t.Context()); err != nil {
			t.Fatal(err)
		}
		if herald, err = e.herald.scrape(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("names", func(t *testing.T) { compareNames(t, kubelet, herald) })
	t.Run("deploy", func(t *testing.T) { checkDeployedNames(t, herald) })
	t.Run("prometheus", func(t *testing.T) {
		prometheus := startPrometheus(t, e.cluster.ControlPlane, e.kubelet, e.herald)
		prometheus.awaitScrapes(t, 2*len(paths))
		compareExpressions(t, prometheus)
		evaluateDashboard(t, prometheus)
	})
}
