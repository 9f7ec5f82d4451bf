package metrics_test

import (
	"fmt"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
)

// TestMetrics compares the metrics of the real kubelet and of Herald after both have run the same pods.
func TestMetrics(t *testing.T) {
	e := startNodes(t)
	var kubelet, herald map[string]family
	heraldtest.Eventually(t, func() (err error) {
		if kubelet, err = e.kubelet.scrape(t.Context()); err != nil {
			return err
		}
		if herald, err = e.herald.scrape(t.Context()); err != nil {
			return err
		}
		for _, name := range []string{ // the containers are measured from time to time, and the first scrape is counted in the second
			"container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "kubelet_http_requests_duration_seconds",
		} {
			if kubelet[name].kind == "" || herald[name].kind == "" {
				return fmt.Errorf("no %s yet: kubelet %+v, herald %+v", name, kubelet[name], herald[name])
			}
		}
		for _, name := range []string{"herald_actions_total", "herald_notification_latency_seconds"} { // of the alert of the pod that crashes
			if herald[name].kind == "" {
				return fmt.Errorf("no %s yet", name)
			}
		}
		return nil
	})
	t.Run("names", func(t *testing.T) { compareNames(t, kubelet, herald) })
	t.Run("deploy", func(t *testing.T) { checkDeployedNames(t, herald) })
	t.Run("prometheus", func(t *testing.T) {
		prometheus := startPrometheus(t, e.cluster.ControlPlane, e.kubelet, e.herald)
		prometheus.awaitScrapes(t, 2*len(paths))
		compareExpressions(t, prometheus)
		evaluateDashboard(t, prometheus)
	})
}
