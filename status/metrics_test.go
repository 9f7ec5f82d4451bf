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

func countIn(registry *prometheus.Registry) func(*status.Config) {
	return func(c *status.Config) { c.Metrics = registry }
}

// latency reads how many changes were timed, and how long they took together.
func latency(t *testing.T, registry *prometheus.Registry) (samples uint64, seconds float64) {
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
	t.Fatal("there is no latency")
	return 0, 0
}

func TestBUG5TheLatencyIsThatOfEachChangeNotTheAgeOfThePod(t *testing.T) { // SM-35, SM-62
	registry := prometheus.NewRegistry()
	onNode(t, countIn(registry), func(t *testing.T, n *node) {
		p := n.bound("web")
		for i := range 3 {
			n.SetPodStatus(p, withReason("%d", i))
			time.Sleep(2 * time.Second)
		}
		if samples, seconds := latency(t, registry); samples != 3 || seconds != 0 {
			t.Fatalf("%d samples, %v s; three changes were shown at once", samples, seconds)
		}
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Delay(3 * time.Second))
		n.SetPodStatus(p, withReason("slow"))
		time.Sleep(time.Second)
		n.SetPodStatus(p, withReason("and another, meanwhile"))
		time.Sleep(time.Minute)
		if samples, seconds := latency(t, registry); samples != 5 || seconds != 3+2 {
			t.Fatalf("%d samples, %v s; want 5, and 3 + 2 s", samples, seconds)
		}
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Reason = "drift" })
		synctest.Wait()
		if samples, _ := latency(t, registry); samples != 5 {
			t.Fatal("a repair is no change of ours")
		}
	})
}

func TestTheBacklogIsVisible(t *testing.T) {
	registry := prometheus.NewRegistry()
	onNode(t, func(c *status.Config) { c.Metrics, c.Workers = registry, 1 }, func(t *testing.T, n *node) {
		pods := n.boundMany(4)
		n.faults.Add(fault.On("PATCH", "/pods/").Hang())
		n.SetPodStatus(pods[0], runningStatus())
		synctest.Wait()
		n.SetPodStatus(pods[1], runningStatus())
		n.SetPodStatus(pods[2], succeededStatus())
		n.SetPodStatus(pods[3], succeededStatus())
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

func TestAPodThatIsGoneIsNoBacklog(t *testing.T) {
	registry := prometheus.NewRegistry()
	onNode(t, countIn(registry), func(t *testing.T, n *node) {
		n.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusNotFound))
		n.SetPodStatus(n.bound("web"), runningStatus())
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

func TestRequestsAreCountedByWhatBecameOfThem(t *testing.T) {
	registry := prometheus.NewRegistry()
	onNode(t, countIn(registry), func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusTooManyRequests))
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusConflict))
		n.faults.Add(fault.On("PATCH", "/pods/").Times(1).Refuse())
		n.SetPodStatus(p, runningStatus())
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
