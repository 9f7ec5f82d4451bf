package status_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestSM31_TerminatedContainers(t *testing.T) {
	registry := prometheus.NewRegistry()
	withHarness(t, withMetrics(registry), func(t *testing.T, h *harness) {
		pod := h.addPod("job")
		h.SetPodStatus(pod, runningStatus())
		for range 3 {
			h.SetPodStatus(pod, succeededStatus())
		}
		want := `
			# HELP kubelet_terminated_containers_total Terminated containers.
			# TYPE kubelet_terminated_containers_total counter
			kubelet_terminated_containers_total{container_type="container",exit_code="0",reason="Completed"} 1
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_terminated_containers_total"); err != nil {
			t.Fatal(err)
		}
	})
}

// readLatency returns the number and the sum of the latency samples.
func readLatency(t *testing.T, registry *prometheus.Registry) (samples uint64, seconds float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "kubelet_pod_status_sync_duration_seconds" {
			histogram := family.GetMetric()[0].GetHistogram()
			return histogram.GetSampleCount(), histogram.GetSampleSum()
		}
	}
	t.Fatal("the latency is not registered")
	return 0, 0
}

// TestBUG5_Latency also covers SM-35 and SM-62: there is one sample per change, whatever the age of the pod.
func TestBUG5_Latency(t *testing.T) {
	registry := prometheus.NewRegistry()
	withHarness(t, withMetrics(registry), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		for i := range 3 {
			h.SetPodStatus(pod, runningWithReason("%d", i))
			time.Sleep(2 * time.Second)
		}
		if samples, seconds := readLatency(t, registry); samples != 3 || seconds != 0 {
			t.Fatalf("got %d samples, %vs, want 3, 0s", samples, seconds)
		}
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Delay(3 * time.Second))
		h.SetPodStatus(pod, runningWithReason("slow"))
		time.Sleep(time.Second)
		h.SetPodStatus(pod, runningWithReason("during the request"))
		time.Sleep(time.Minute)
		if samples, seconds := readLatency(t, registry); samples != 5 || seconds != 3+2 {
			t.Fatalf("got %d samples, %vs, want 5, 5s", samples, seconds)
		}
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Reason = "drift" })
		synctest.Wait()
		if samples, _ := readLatency(t, registry); samples != 5 {
			t.Fatal("a repair was counted as a change")
		}
	})
}

func TestMetrics_Backlog(t *testing.T) {
	registry := prometheus.NewRegistry()
	withHarness(t, func(c *status.Config) { c.Metrics, c.Workers = registry, 1 }, func(t *testing.T, h *harness) {
		pods := h.addPods(4)
		h.faults.Add(fault.On("PATCH", "/pods/").Hang())
		h.SetPodStatus(pods[0], runningStatus())
		synctest.Wait()
		h.SetPodStatus(pods[1], runningStatus())
		h.SetPodStatus(pods[2], succeededStatus())
		h.SetPodStatus(pods[3], succeededStatus())
		time.Sleep(3 * time.Second)
		want := `
			# HELP herald_status_oldest_unsent_seconds Age of the oldest change that the API server does not have yet.
			# TYPE herald_status_oldest_unsent_seconds gauge
			herald_status_oldest_unsent_seconds 3
			# HELP herald_status_queue_depth Pods that wait for a status sync.
			# TYPE herald_status_queue_depth gauge
			herald_status_queue_depth{priority="normal"} 0
			herald_status_queue_depth{priority="readiness"} 1
			herald_status_queue_depth{priority="terminal"} 2
			herald_status_queue_depth{priority="phase"} 0
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "herald_status_queue_depth", "herald_status_oldest_unsent_seconds"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMetrics_MissingObject(t *testing.T) {
	registry := prometheus.NewRegistry()
	withHarness(t, withMetrics(registry), func(t *testing.T, h *harness) {
		h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusNotFound))
		h.SetPodStatus(h.addPod("web"), runningStatus())
		time.Sleep(time.Minute)
		want := `
			# HELP herald_status_oldest_unsent_seconds Age of the oldest change that the API server does not have yet.
			# TYPE herald_status_oldest_unsent_seconds gauge
			herald_status_oldest_unsent_seconds 0
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "herald_status_oldest_unsent_seconds"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMetrics_Requests(t *testing.T) {
	registry := prometheus.NewRegistry()
	withHarness(t, withMetrics(registry), func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusTooManyRequests))
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict))
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Refuse())
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(time.Minute)
		want := `
			# HELP herald_status_requests_total Requests of the status manager by verb and result.
			# TYPE herald_status_requests_total counter
			herald_status_requests_total{result="success",verb="get"} 1
			herald_status_requests_total{result="success",verb="patch"} 1
			herald_status_requests_total{result="failed",verb="patch"} 1
			herald_status_requests_total{result="conflict",verb="patch"} 1
			herald_status_requests_total{result="throttled",verb="patch"} 1
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "herald_status_requests_total"); err != nil {
			t.Fatal(err)
		}
	})
}
