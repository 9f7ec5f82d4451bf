package summary_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats/summary"
)

var update = flag.Bool("update", false, "write testdata")

var at = time.Date(2026, 11, 15, 14, 0, 0, 0, time.UTC)

func fileSystem(name string, size float64) load.FileSystem {
	return load.FileSystem{
		Name: name, Capacity: load.Known(size), Used: load.Known(size / 2), Available: load.Known(size / 4), Inodes: load.Known(100),
		InodeUsed: load.Known(10),
	}
}

// input returns a node with a pod of which everything was measured, and one that has just started.
func input() summary.Input {
	eth0 := load.Network{RxBytes: load.Known(5), TxBytes: load.Known(6), RxErrors: load.Known(0), TxErrors: load.Known(1)}
	stalls := load.Stalls{
		CPU:    &load.Stall{Some: load.StallTimes{Avg10: 1, Avg60: 2, Avg300: 3, Total: time.Second}},
		Memory: &load.Stall{Full: load.StallTimes{Avg10: 4, Total: time.Millisecond}}, IO: &load.Stall{},
	}
	usage := load.Usage{
		At: at.Add(-time.Second), CPUSeconds: load.Known(2.5), WorkingSet: load.Known(100), Memory: load.Known(150), RSS: load.Known(80),
		Available: load.Known(900), Swap: load.Known(0), SwapAvailable: load.Known(7), PageFaults: load.Known(11), MajorFaults: load.Known(1),
		Stalls: stalls,
	}
	web := load.PodSample{
		UID: "uid-1", Name: podid.FullName{Namespace: "shop", Name: "web"}, Usage: usage, Network: eth0,
		Interfaces: []load.Interface{{Name: "eth0", Network: eth0}, {Name: "net1"}}, PIDs: load.Known(3),
		Containers: []load.ContainerSample{{
			Name: "main", ID: "c1", Usage: usage, WritableLayer: load.Known(4096), WritableInodes: load.Known(2),
		}},
	}
	used := load.UsageLoad{CPU: load.Windows{OneMinute: load.Window{Mean: load.Known(.25)}}}
	return summary.Input{
		NodeName: "n1", MachineAt: at, Cores: load.Known(1.5),
		Machine: load.MachineSample{
			CPUBusy: load.Known(100), CPUSteal: load.Known(1), MemoryTotal: load.Known(1000), WorkingSet: load.Known(400),
			PIDs: load.Known(200), MaxPIDs: load.Known(32768), Network: eth0,
			FileSystems: []load.FileSystem{
				fileSystem("data", 10000), fileSystem("images", 20000), fileSystem("containers", 30000), fileSystem("logs", 40000),
			},
			Detail: load.MachineDetail{
				BootedAt: at.Add(-time.Hour), Memory: load.Known(500), RSS: load.Known(300), Swap: load.Known(0), SwapFree: load.Known(0), PageFaults: load.Known(99),
				MajorFaults: load.Known(9), Interfaces: []load.Interface{{Name: "eth0", Network: eth0}}, Stalls: stalls,
			},
		},
		AllPods: &load.Usage{At: at, CPUSeconds: load.Known(7), WorkingSet: load.Known(120), Memory: load.Known(130)},
		FileSystems: summary.FileSystems{
			Data: "data", Logs: "logs", Images: "images", Containers: "containers",
			ImageUsage: &summary.Usage{At: at, Bytes: load.Known(1234), Inodes: load.Known(12)},
		},
		Pods: []summary.Pod{
			{
				Sample: web, SampledAt: at, CreatedAt: at.Add(-time.Minute),
				Load:                load.Pod{UsageLoad: used, Containers: []load.Container{{Name: "main", UsageLoad: used}}},
				ContainersCreatedAt: map[string]time.Time{"c1": at.Add(-50 * time.Second)},
				Disk: &summary.Disk{
					Volumes: []summary.Volume{
						{Name: "cache", IsLocal: true, FileSystem: fileSystem("", 10000), Usage: summary.Usage{At: at, Bytes: load.Known(8192), Inodes: load.Known(3)}},
						{Name: "token", FileSystem: fileSystem("", 100), Usage: summary.Usage{At: at, Bytes: load.Known(12), Inodes: load.Known(5)}},
					},
					Logs:  map[string]summary.Usage{"main": {At: at, Bytes: load.Known(512), Inodes: load.Known(1)}},
					Files: summary.Usage{At: at, Bytes: load.Known(64), Inodes: load.Known(1)},
				},
			},
			{
				Sample: load.PodSample{
					UID: "uid-2", Name: podid.FullName{Namespace: "shop", Name: "starting"}, Containers: []load.ContainerSample{{Name: "main", ID: "c2"}},
				},
				SampledAt: at,
			},
		},
	}
}

func requireGolden(t *testing.T, file string, in summary.Input) {
	t.Helper()
	got, err := json.MarshalIndent(summary.Build(in), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestRES19_Summary(t *testing.T) { requireGolden(t, "testdata/summary.json", input()) }

func TestRES30_OnlyCPUAndMemory(t *testing.T) {
	in := input()
	in.OnlyCPUAndMemory = true
	requireGolden(t, "testdata/cpu_and_memory.json", in)
}

// What was not measured is absent, not zero.
func TestRES29_NothingMeasured(t *testing.T) {
	requireGolden(t, "testdata/nothing.json", summary.Input{NodeName: "n1", Pods: []summary.Pod{{
		Sample: load.PodSample{UID: "u", Name: podid.FullName{Namespace: "a", Name: "b"}, Containers: []load.ContainerSample{{Name: "c"}}},
	}}})
}

func TestRES27_Rlimit(t *testing.T) {
	in := input()
	if limit := summary.Build(in).Node.Rlimit; limit == nil || *limit.MaxPID != 32768 || *limit.NumOfRunningProcesses != 200 {
		t.Errorf("got %+v", limit)
	}
	in.Machine.PIDs, in.Machine.MaxPIDs = load.Value{}, load.Value{}
	if limit := summary.Build(in).Node.Rlimit; limit != nil {
		t.Errorf("not measured: got %+v", limit)
	}
}

func TestRES24_EphemeralStorage(t *testing.T) {
	stats := summary.Build(input()).Pods[1].EphemeralStorage
	// The writable layer, the logs, the local volume and the other files, on the file system of the node's data.
	if stats == nil || *stats.UsedBytes != 4096+512+8192+64 || *stats.InodesUsed != 2+1+3+1 || *stats.CapacityBytes != 10000 {
		t.Errorf("got %+v", stats)
	}
}
