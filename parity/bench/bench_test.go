package bench_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/parity/bench"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// TestMain silences the kubelet's code, which logs when a measurement ends.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// newTinyEnvironment returns the smallest profile that makes both sides do the work.
func newTinyEnvironment(t *testing.T) *bench.Environment {
	return &bench.Environment{ManifestDir: t.TempDir(), Progress: t.Output(), Profile: bench.Profile{
		CallRounds: 1, CallTime: 1, ProbeRounds: 1, BurstRounds: 1, BurstPods: 10, QueuedChanges: 10, ReadinessSamples: 3, KubeletReadinessSamples: 1, IdlePods: 1000, MemoryPods: 10,
		RestingPods: 2, RestingPeriod: 2 * time.Second, AgentRounds: 1, AgentPods: 2, AgentIdle: 3 * time.Second, SingleStarts: 1,
		HistoryBytes: 6 << 20, HistoryStorm: 100 * time.Millisecond, HistoryIdle: time.Millisecond,
		AlertPods: 2, AlertTime: 5 * time.Second,
		Server: bench.ServerProfile{Rounds: 1, LogBytes: 1 << 20, Followers: 3, Execs: 2, RequestTime: 1},
	}}
}

func resultNames(results []bench.Result) []string {
	var names []string
	for _, result := range results {
		names = append(names, result.Name)
	}
	return names
}

func TestRun_LocalCases(t *testing.T) {
	results, err := bench.Run(t.Context(), newTinyEnvironment(t), bench.LocalCases())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pod_by_uid", "manifests_unchanged", "set_unchanged_allocs", "bytes_per_pod", "idle1k_pass_ms", "probe_cpu"} {
		if !slices.Contains(resultNames(results), want) {
			t.Errorf("got results %v, want %s among them", resultNames(results), want)
		}
	}
}

func TestRun_HistoryCases(t *testing.T) {
	results, err := bench.Run(t.Context(), newTinyEnvironment(t), bench.HistoryCases())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"history_set_changed", "history_append_us", "history_raw_bytes", "history_sealed_bytes", "history_open_ms", "history_last100_ms",
		"history_scan_s", "history_storm", "history_storm_rss", "history_syncs_storm", "history_syncs_idle",
	}; !slices.Equal(resultNames(results), want) {
		t.Errorf("got results %v, want %v", resultNames(results), want)
	}
	for _, result := range results {
		if name := result.Name; (name == "history_raw_bytes" || name == "history_sealed_bytes") && result.Value <= 0 {
			t.Errorf("%s: got %v, want a size", name, result.Value)
		}
	}
}

func TestRun_AlertCases(t *testing.T) {
	results, err := bench.Run(t.Context(), newTinyEnvironment(t), bench.AlertCases())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"alert_eval_rule_us", "alert_eval_pack_us", "alert_idle_evaluations", "alert_edge_to_webhook_ms",
	}; !slices.Equal(resultNames(results), want) {
		t.Errorf("got results %v, want %v", resultNames(results), want)
	}
	for _, result := range results {
		if result.Name == "alert_idle_evaluations" && result.Value != 0 {
			t.Errorf("got %v evaluations of rules although nothing happened", result.Value)
		}
	}
}

func TestRun_AlertAgentCases(t *testing.T) {
	results, err := bench.Run(t.Context(), newTinyEnvironment(t), bench.AlertAgentCases())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"alert_cpu", "alert_messages"}; !slices.Equal(resultNames(results), want) {
		t.Fatalf("got results %v, want %v", resultNames(results), want)
	}
	if value := results[0].Value; math.IsNaN(value) || math.IsInf(value, 0) || value <= 0 {
		t.Errorf("got %v, want a ratio", value)
	}
}

func TestRun_ClusterCases(t *testing.T) {
	env := newTinyEnvironment(t)
	env.ControlPlane = controlplane.ForTest(t)
	results, err := bench.Run(t.Context(), env, bench.ClusterCases())
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		if strings.HasPrefix(result.Name, "requests_per_change") && (result.Kubelet != "2.00" || result.Herald != "1.00") {
			t.Errorf("%s: got kubelet %s, Herald %s; want 2.00 and 1.00", result.Name, result.Kubelet, result.Herald)
		}
		if strings.HasPrefix(result.Name, "objects_at_rest") && result.Herald != "0.0" {
			t.Errorf("%s: got %s requests a minute, want none", result.Name, result.Herald)
		}
	}
	if _, err := bench.MeasureWorkers(t.Context(), env, 1, 2); err != nil {
		t.Error(err)
	}
	if points, err := bench.MeasureCurve(t.Context(), env, 1, 2); err != nil || len(points) != 2 {
		t.Errorf("MeasureCurve: got %v, %v; want 2 points", points, err)
	}
}

func TestRun_AgentCases(t *testing.T) {
	needs.Containers(t)
	env := newTinyEnvironment(t)
	env.ControlPlane = controlplane.ForTest(t)
	results, err := bench.Run(t.Context(), env, slices.Concat(bench.AgentCases(), bench.LifeCases(), bench.StartCases()))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"agent_2pods_ready", "agent_rss", "agent_idle_cpu", "agent_2pods_limit", "requests_per_pod_life", "start_over_cri_1", "start_over_cri_2",
	}; !slices.Equal(resultNames(results), want) {
		t.Errorf("got results %v, want %v", resultNames(results), want)
	}
	for _, result := range results {
		if math.IsNaN(result.Value) || math.IsInf(result.Value, 0) {
			t.Errorf("%s: got %v (kubelet %s, Herald %s), want a finite number", result.Name, result.Value, result.Kubelet, result.Herald)
		}
	}
}

func TestRun_ServerCases(t *testing.T) {
	needs.Containers(t)
	env := newTinyEnvironment(t)
	env.ControlPlane = controlplane.ForTest(t)
	results, err := bench.Run(t.Context(), env, bench.ServerCases())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"server_followers_rss", "server_followers_served", "server_log", "server_log_cpu", "server_log_http2", "server_log_http2_cpu",
		"server_log_follow", "server_log_follow_cpu", "server_exec_p50", "server_exec_p99",
		"server_pods", "server_pods_cpu", "server_metrics", "server_metrics_cpu",
	}; !slices.Equal(resultNames(results), want) {
		t.Errorf("got results %v, want %v", resultNames(results), want)
	}
	for _, result := range results {
		if result.Name == "server_followers_served" && result.Herald != "3" {
			t.Errorf("got %s followers that were served, want 3", result.Herald)
		}
	}
}

var testReport = bench.Report{
	Results: []bench.Result{
		{Name: "slow", Description: "do it slowly", Kubelet: "1.0 s", Herald: "2.0 s", Value: 0.5, Goal: bench.AtLeast(1)},
		{Name: "small", Description: "do little", Kubelet: "3", Herald: "2", Value: 2, Goal: bench.AtMost(8)},
	},
	Workers: []bench.WorkersResult{{Workers: 4, ReadinessP95: 0.25}},
	Curve:   []bench.Point{{Pods: 10, Kubelet: 0.5, Herald: 0.1}, {Pods: 300, Kubelet: 6.5, Herald: 1.1}},
}

func TestReport_Print(t *testing.T) {
	var out bytes.Buffer
	if err := testReport.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nRATIO slow 0.50\n", "RATIO small 2.00\n", "do it slowly", ">= 1, missed", "<= 8 ", "250.0 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out.String(), want)
		}
	}
}

func TestReport_Write(t *testing.T) {
	dir := t.TempDir()
	if err := testReport.Write(dir, "make bench"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil || !strings.Contains(string(page), "| slow | 1.0 s | 2.0 s | 0.50 | >= 1, missed | do it slowly |") {
		t.Errorf("got %v and\n%s\nwant the row of slow", err, page)
	}
	picture, err := os.Open(filepath.Join(dir, "benchmarks.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	elements := map[string]int{}
	for tokens := xml.NewDecoder(picture); ; {
		token, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, is := token.(xml.StartElement); is {
			elements[start.Name.Local]++
		}
	}
	if elements["polyline"] != 2 || elements["circle"] != 4 {
		t.Errorf("got elements %v, want 2 polylines and 4 circles", elements)
	}
}
