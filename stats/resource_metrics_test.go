package stats_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats"
)

type listFunc func(ctx context.Context) ([]load.PodSample, error)

func (f listFunc) ListPodStats(ctx context.Context) ([]load.PodSample, error) { return f(ctx) }

func TestRES15_ResourceMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		measured := time.Now()
		pods := listFunc(func(context.Context) ([]load.PodSample, error) {
			return []load.PodSample{{
				UID: "a", Name: podid.FullName{Namespace: "shop", Name: "web"},
				Usage: load.Usage{At: measured, CPUSeconds: load.Known(3), WorkingSet: load.Known(100)},
				Containers: []load.ContainerSample{
					{Name: "main", ID: "1", Usage: load.Usage{At: measured, CPUSeconds: load.Known(2), WorkingSet: load.Known(0)}},
					{Name: "starting", ID: "2"}, // not measured yet
				},
			}}, nil
		})
		collector := startCollector(t, stats.Config{Pods: pods})
		time.Sleep(time.Second)
		synctest.Wait()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(collector.ResourceMetrics(func(uid podid.UID, id string) time.Time {
			if uid == "a" && id == "1" {
				return time.Unix(1700000000, 0)
			}
			return time.Time{}
		}))
		const want = `
# HELP container_cpu_usage_seconds_total CPU time of the container since it started, in seconds of one core.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 2 946684800000
# HELP container_memory_working_set_bytes Memory of the container that cannot be reclaimed at once, in bytes.
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 0 946684800000
# HELP container_start_time_seconds Unix time at which the container started.
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="main",namespace="shop",pod="web"} 1.7e+09
# HELP node_cpu_usage_seconds_total CPU time of the node since it booted, in seconds of one core.
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 15.299999999999999 946684800000
# HELP node_memory_working_set_bytes Memory of the node that cannot be reclaimed at once, in bytes.
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 460800 946684800000
# HELP node_swap_usage_bytes Swap that the node uses, in bytes.
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 40960 946684800000
# HELP pod_cpu_usage_seconds_total CPU time of the pod since it started, in seconds of one core.
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 3 946684800000
# HELP pod_memory_working_set_bytes Memory of the pod that cannot be reclaimed at once, in bytes.
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="shop",pod="web"} 100 946684800000
# HELP resource_scrape_error 1 if the pods could not be measured, 0 otherwise.
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

func TestRES15_NodeWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := listFunc(func(context.Context) ([]load.PodSample, error) { return nil, nil })
		collector := startCollector(t, stats.Config{Pods: pods})
		time.Sleep(time.Second)
		synctest.Wait()
		if _, at := collector.PodSamples(); at.IsZero() {
			t.Error("a node without pods counts as not measured")
		}
	})
}

func TestL3_ResourceMetricsWithoutMeasurements(t *testing.T) {
	collector, err := stats.New(stats.Config{Machine: newMachine(t, "testdata/ok")})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector.ResourceMetrics(nil))
	const want = `
# HELP resource_scrape_error 1 if the pods could not be measured, 0 otherwise.
# TYPE resource_scrape_error gauge
resource_scrape_error 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
