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

// TestMain silences the kubelet's code, which complains when a measurement ends.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// tiny is enough to see that both sides do the work.
func tiny(t *testing.T) *bench.Lab {
	return &bench.Lab{Folder: t.TempDir(), Progress: t.Output(), Effort: bench.Effort{
		Calls: 1, CallTime: 1, Probes: 1, Bursts: 1, BurstPods: 10, Waiting: 10, Tries: 3, KubeletTries: 1, IdlePods: 1000, MemoryPods: 10,
		Agents: 1, AgentPods: 2, AgentIdle: 3 * time.Second,
	}}
}

func names(rows []bench.Row) []string {
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

func TestCallsAreMeasuredWithoutAnAPIServer(t *testing.T) {
	rows, err := bench.Run(t.Context(), tiny(t), bench.Calls())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pod_by_uid", "manifests_unchanged", "set_unchanged_allocs", "bytes_per_pod", "idle1k_pass_ms", "probe_cpu"} {
		if !slices.Contains(names(rows), want) {
			t.Errorf("no %s in %v", want, names(rows))
		}
	}
}

func TestBurstsAreMeasuredOnARealAPIServer(t *testing.T) {
	lab := tiny(t)
	lab.Cluster = controlplane.ForTest(t)
	rows, err := bench.Run(t.Context(), lab, bench.OnCluster())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if strings.HasPrefix(r.Name, "requests_per_change") && (r.Kubelet != "2.00" || r.Herald != "1.00") {
			t.Errorf("%s: kubelet %s, Herald %s; want 2.00 and 1.00", r.Name, r.Kubelet, r.Herald)
		}
	}
	if _, err := bench.Workers(t.Context(), lab, 1, 2); err != nil {
		t.Error(err)
	}
	if points, err := bench.Curve(t.Context(), lab, 1, 2); err != nil || len(points) != 2 {
		t.Errorf("%v, %v", points, err)
	}
}

func TestWholeAgentsAreMeasuredOnRealContainers(t *testing.T) {
	needs.Containers(t)
	lab := tiny(t)
	lab.Cluster = controlplane.ForTest(t)
	rows, err := bench.Run(t.Context(), lab, bench.OnContainers())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"agent_2pods_ready", "agent_rss", "agent_idle_cpu"}; !slices.Equal(names(rows), want) {
		t.Errorf("rows %v, want %v", names(rows), want)
	}
	for _, r := range rows {
		if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
			t.Errorf("%s is %v: kubelet %s, Herald %s", r.Name, r.Value, r.Kubelet, r.Herald)
		}
	}
}

var report = bench.Report{
	Rows: []bench.Row{
		{Name: "slow", What: "do it slowly", Kubelet: "1.0 s", Herald: "2.0 s", Value: 0.5, Goal: bench.AtLeast(1)},
		{Name: "small", What: "do little", Kubelet: "3", Herald: "2", Value: 2, Goal: bench.AtMost(8)},
	},
	Workers: []bench.WorkersResult{{Workers: 4, Readiness95: 0.25}},
	Curve:   []bench.Point{{Pods: 10, Kubelet: 0.5, Herald: 0.1}, {Pods: 300, Kubelet: 6.5, Herald: 1.1}},
}

func TestAReportIsPrintedForPeopleAndForMachines(t *testing.T) {
	var out bytes.Buffer
	if err := report.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nRATIO slow 0.50\n", "RATIO small 2.00\n", "do it slowly", ">= 1, missed", "<= 8 ", "250.0 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestAReportIsWrittenAsAPageWithAPicture(t *testing.T) {
	dir := t.TempDir()
	if err := report.Write(dir, "make bench"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil || !strings.Contains(string(page), "| slow | 1.0 s | 2.0 s | 0.50 | >= 1, missed | do it slowly |") {
		t.Errorf("%v:\n%s", err, page)
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
		t.Errorf("two lines of two points each, want; the picture has %v", elements)
	}
}
