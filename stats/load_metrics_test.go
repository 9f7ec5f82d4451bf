package stats_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heraldnode/herald/stats"
)

func TestLoadMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collector := startCollector(t, stats.Config{})
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(collector.LoadMetrics())
		time.Sleep(21 * time.Second) // two samples
		synctest.Wait()
		const want = `
# HELP herald_node_load_level 1 for the level of the node's load, 0 for the others: idle, normal, busy, saturated.
# TYPE herald_node_load_level gauge
herald_node_load_level{level="busy"} 0
herald_node_load_level{level="idle"} 0
herald_node_load_level{level="normal"} 1
herald_node_load_level{level="saturated"} 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "herald_node_load_level"); err != nil {
			t.Error(err)
		}
		for name, series := range map[string]int{ // the counters of CPU time do not change, so the use of the CPUs is unknown
			"herald_node_load_saturation": 3, "herald_node_usage_ratio": 2, "herald_node_pressure_ratio": 5,
		} {
			if got, err := testutil.GatherAndCount(registry, name); err != nil || got != series {
				t.Errorf("%s: got %d series (%v), want %d", name, got, err, series)
			}
		}
	})
}

func TestL3_LoadMetricsWithoutMeasurements(t *testing.T) {
	machine, err := stats.NewMachine("/")
	if err != nil {
		t.Fatal(err)
	}
	collector, err := stats.New(stats.Config{Machine: machine})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector.LoadMetrics())
	if found, err := registry.Gather(); err != nil || len(found) != 0 {
		t.Errorf("got %d metrics (%v), want none", len(found), err)
	}
}
