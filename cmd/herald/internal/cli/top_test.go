package cli_test

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/view"
)

// flat returns windows with the same mean, and a maximum in the last 15 minutes.
func flat(mean, largest float64) *view.Windows {
	window := view.Window{Mean: mean, Max: mean}
	return &view.Windows{Last1m: window, Last5m: window, Last15m: view.Window{Mean: mean, Max: largest}}
}

// busyLoad is the load of a node whose memory is short, with one file system for data and logs that fills, and a read-only one.
func busyLoad() *view.NodeLoad {
	gib := func(n int64) *int64 { return new(n << 30) }
	data := view.FileSystemLoad{
		Name: "data", CapacityBytes: gib(100), UsedBytes: gib(91), AvailableBytes: gib(9), Use: new(.91), InodeUse: new(.02), HoursToFull: new(3.5),
	}
	logs := data
	logs.Name = "logs"
	return &view.NodeLoad{
		Saturation: new(.83), Culprit: "memory", Level: "busy", Since: ago(4*time.Minute + 30*time.Second),
		CPU: view.NodeCPULoad{Use: flat(.31, .6), IOWait: flat(0, 0), Cores: new(1.24)},
		Memory: view.NodeMemoryLoad{
			Use: flat(.45, .45), WorkingSetBytes: gib(7), AvailableBytes: gib(1), OOMKills: new(int64(2)), Pressure: &view.Pressure{Some: new(.34)},
		},
		Network: view.NetworkLoad{ReceivedBytesPerSecond: flat(1234, 5_600_000)},
		FileSystems: []view.FileSystemLoad{
			data, {Name: "images", CapacityBytes: gib(10), UsedBytes: gib(1), AvailableBytes: gib(9), ReadOnly: true, Use: new(.1)}, logs,
		},
	}
}

func TestTop_Node(t *testing.T) {
	node := view.NodeView{Kind: "NodeView", Metadata: view.Metadata{Name: "n1"}, Load: busyLoad()}
	responses := map[string]any{"GET /herald/v1/node": node}
	_, address := startCannedAgent(t, responses)
	got := runHerald("top", "node", "-s", address)
	got.stdout = regexp.MustCompile(`busy for 4m\d+s`).ReplaceAllString(got.stdout, "busy for 4m30s")
	want := result{0, `NODE   LOAD                           CPU(cores)   MEMORY(bytes)   AVAILABLE   OOM KILLS
n1     0.83 memory (busy for 4m30s)   1240m        7168Mi          1024Mi      2

SIGNAL     1m         5m         15m        MAX        PRESSURE
cpu        31%        31%        31%        60%        -
  iowait   0%         0%         0%         0%
  steal    -          -          -          -
memory     45%        45%        45%        45%        34%
io         -          -          -          -          -
pids       -          -          -          -
received   1.2 kB/s   1.2 kB/s   1.2 kB/s   5.6 MB/s
sent       -          -          -          -

FILE SYSTEM   USE   INODES   AVAILABLE   FULL IN
data+logs     91%   2%       9216Mi      3.5h
images        10%   -        9216Mi      -         read-only
`, ""}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
	if got := runHerald("top", "node", "-s", address, "-o", "jsonpath={.load.saturation} {.load.culprit}"); got.stdout != "0.83 memory" {
		t.Errorf("got %q", got.stdout)
	}
	node.Load = &view.NodeLoad{Level: "unknown"} // before the first sample
	responses["GET /herald/v1/node"] = node
	got = runHerald("top", "node", "-s", address)
	if !strings.Contains(got.stdout, "no sample yet") || strings.Contains(got.stdout, "0") {
		t.Errorf("got %s, want no number before the first sample", got.stdout)
	}
	node.Load.Level, node.Load.Since = "busy", ago(time.Hour) // samples fail
	responses["GET /herald/v1/node"] = node
	if got := runHerald("top", "node", "-s", address); !strings.Contains(got.stdout, "no recent sample (busy for 60m)") {
		t.Errorf("got %s", got.stdout)
	}
	node.Load = nil // an older agent
	responses["GET /herald/v1/node"] = node
	if got := runHerald("top", "node", "-s", address); got.stdout != "n1: the agent does not measure its load\n" || got.status != 0 {
		t.Errorf("got %v", got)
	}
}

// topPods returns a pod that uses much memory, one that uses much CPU, one without a sample and one that has ended.
func topPods() []view.PodView {
	usage := func(cores, bytes float64) view.UsageLoad {
		return view.UsageLoad{CPU: view.CPULoad{Cores: flat(cores, cores)}, Memory: view.MemoryLoad{WorkingSetBytes: flat(bytes, bytes)}}
	}
	cart, web := crashingView(), readyView()
	cart.Load = &view.PodLoad{UsageLoad: usage(.0004, 600<<20), Containers: []view.ContainerLoad{{Name: "web", UsageLoad: usage(0, 600<<20)}}}
	cart.Load.Memory.OfLimit, cart.Load.CPU.Throttled = new(.923), flat(.5, .5)
	web.Load = &view.PodLoad{UsageLoad: usage(1.5, 100<<20), Containers: []view.ContainerLoad{{Name: "proxy", UsageLoad: usage(.5, 10<<20)}, {Name: "web"}}}
	fresh, job, waits := readyView(), readyView(), crashingView()
	waits.Metadata.Name, waits.Metadata.Namespace, waits.Load = "waits", "batch", &view.PodLoad{} // only its sandbox was measured
	fresh.Metadata.Name, job.Metadata.Name, job.Metadata.Namespace = "fresh", "job", "batch"
	job.Local.Status = v1.PodStatus{Phase: v1.PodSucceeded}
	return []view.PodView{fresh, cart, job, waits, web}
}

func TestTop_Pods(t *testing.T) {
	agent, address := startCannedAgent(t, map[string]any{"GET /herald/v1/pods": view.PodViewList{Items: topPods()}})
	for args, want := range map[string]result{
		"-A": {0, `NAMESPACE   NAME      CPU(cores)      MEMORY(bytes)   CPU/LIMIT   MEMORY/LIMIT   THROTTLED
batch       job       not running     not running     -           -              -
batch       waits     not running     not running     -           -              -
shop        cart-n1   0m              600Mi           -           92%            50%
shop        fresh     no sample yet   no sample yet   -           -              -
shop        web-n1    1500m           100Mi           -           -              -
`, ""},
		"-n shop --sort-by cpu --no-headers": {0, `web-n1    1500m           100Mi           -     -     -
cart-n1   0m              600Mi           -     92%   50%
fresh     no sample yet   no sample yet   -     -     -
`, ""},
		"-n shop --containers --sort-by memory": {0, `POD       NAME    CPU(cores)      MEMORY(bytes)   CPU/LIMIT   MEMORY/LIMIT   THROTTLED
cart-n1   web     0m              600Mi           -           -              -
web-n1    proxy   500m            10Mi            -           -              -
web-n1    web     no sample yet   no sample yet   -           -              -
fresh             no sample yet   no sample yet   -           -              -
`, ""},
		"-n batch --containers --no-headers": {0, `job           not running   not running   -     -     -
waits         not running   not running   -     -     -
`, ""},
		"web-n1 -n shop -o jsonpath={.items[*].load.cpu.cores.last1m.mean}": {0, "1.5", ""},
		"-n other":         {0, "", "No resources found in other namespace.\n"},
		"web -n shop":      {1, "", "herald: pods \"web\" not found; did you mean the static pod web-n1?\n"},
		"--sort-by disk":   {2, "", "herald: --sort-by disk: must be cpu or memory\n"},
		"-w --interval 0s": {2, "", "herald: --interval 0s: must be positive\n"},
		"pod/web":          {2, "", "herald: \"pod/web\" is not the name of a pod\nSee 'herald top pods --help' for usage\n"},
	} {
		got := runHerald(append(append([]string{"top", "pods"}, strings.Fields(args)...), "-s", address)...)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
	if agent.query != "load=true" {
		t.Errorf("got query %q, want one for the loads", agent.query)
	}
}

func TestTop_History(t *testing.T) {
	hours := func(values ...float64) view.Points { // every half hour; the last is not over
		return append(slices.Repeat(view.Points{math.NaN()}, 48-len(values)), values...)
	}
	history := view.LoadHistory{
		Kind: "LoadHistory", Start: ago(24*time.Hour - 15*time.Minute), StepMs: 30 * 60 * 1000, Signals: []view.LoadSignal{
			{Name: "saturation", Values: hours(0, .125, .25, .5, .99, 1)}, {Name: "cpu", Values: hours(.5, math.NaN(), .1)},
			{Name: "cpuMax", Values: hours(0, 0, .5, 1.5)}, {Name: "memoryMax", Values: hours(0, 50<<20)},
		},
	}
	responses := map[string]any{"GET /herald/v1/load": history, "GET /herald/v1/pods": view.PodViewList{Items: topPods()[4:]}}
	agent, address := startCannedAgent(t, responses)
	dots := func(n int) string { return strings.Repeat("·", n) }
	got := runHerald("top", "node", "--history", "-s", address)
	for _, want := range []string{
		"saturation        " + dots(42) + "▁▂▃▅██   100%   48%    100%\n", "cpu               " + dots(45) + "▅·▁   10%    30%    50%\n",
		"disk              " + dots(48) + "   -      -      -\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got\n%s, want %q", got.stdout, want)
		}
	}
	if agent.query != "since=24h0m0s" {
		t.Errorf("got query %s", agent.query)
	}
	got = runHerald("top", "pods", "-n", "shop", "--history", "--no-headers", "-s", address)
	want := "web-n1   " + dots(22) + "▁█   1500m   " + dots(23) + "█   50Mi\n"
	if got.stdout != want || agent.query != "namespace=shop&pod=web-n1&since=24h0m0s" {
		t.Errorf("got %q, want %q; query %s", got.stdout, want, agent.query)
	}
	history.Start, history.Signals = nil, nil
	responses["GET /herald/v1/load"] = history
	if got := runHerald("top", "pods", "-A", "--history=6h", "-s", address); !strings.Contains(got.stdout, "shop        web-n1   "+dots(24)+" ") {
		t.Errorf("got %s, want no values", got.stdout)
	}
	for _, duration := range []string{"30m", "25h", "-1h"} {
		if got := runHerald("top", "node", "--history="+duration); got.status != 2 {
			t.Errorf("%s: got %v, want an error of the command line", duration, got)
		}
	}
}
