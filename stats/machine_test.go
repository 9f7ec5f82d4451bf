package stats_test

import (
	"math"
	"testing"
	"time"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/stats"
)

func newMachine(t *testing.T, root string) *stats.Machine {
	t.Helper()
	machine, err := stats.NewMachine(root)
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

func requireValue(t *testing.T, what string, got load.Value, want float64) {
	t.Helper()
	if value, known := got.Get(); !known || math.Abs(value-want) > 1e-9 {
		t.Errorf("%s: got %v (known %v), want %v", what, value, known, want)
	}
}

func TestMachine_Sample(t *testing.T) {
	sample, err := newMachine(t, "testdata/ok").Sample(map[string]string{stats.DataFileSystem: t.TempDir(), stats.LogsFileSystem: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	requireValue(t, "CPUs", sample.CPUs, 2)
	requireValue(t, "busy", sample.CPUBusy, 15.6) // without the guests, which count as user
	requireValue(t, "total", sample.CPUTotal, 69.6)
	requireValue(t, "iowait", sample.CPUIOWait, 4)
	requireValue(t, "steal", sample.CPUSteal, .3)
	requireValue(t, "memory", sample.MemoryTotal, 1000<<10)
	requireValue(t, "available", sample.MemoryAvailable, 550<<10)
	requireValue(t, "working set", sample.WorkingSet, 450<<10)
	requireValue(t, "swap", sample.Detail.Swap, 40<<10)
	requireValue(t, "OOM kills", sample.OOMKills, 4)
	requireValue(t, "CPU pressure", sample.Pressure.CPU, .25)
	requireValue(t, "memory pressure", sample.Pressure.MemoryFull, .05)
	requireValue(t, "IO pressure", sample.Pressure.IO, .02)
	requireValue(t, "processes", sample.PIDs, 345)
	requireValue(t, "limit of processes", sample.MaxPIDs, 1000)
	requireValue(t, "received", sample.Network.RxBytes, 1234) // of the default route with the lowest metric
	requireValue(t, "errors", sample.Network.TxErrors, 8)
	if names := sample.FileSystems; len(names) != 2 || names[0].Name != stats.DataFileSystem || names[1].Name != stats.LogsFileSystem {
		t.Fatalf("got file systems %+v", names)
	}
	if capacity, known := sample.FileSystems[0].Capacity.Get(); !known || capacity <= 0 {
		t.Errorf("got capacity %v (known %v)", capacity, known)
	}
}

func TestRES25_MachineDetail(t *testing.T) {
	sample, err := newMachine(t, "testdata/ok").Sample(nil)
	if err != nil {
		t.Fatal(err)
	}
	detail := sample.Detail
	requireValue(t, "memory", detail.Memory, 700<<10)
	requireValue(t, "RSS", detail.RSS, 120<<10)
	requireValue(t, "free swap", detail.SwapFree, 60<<10)
	requireValue(t, "page faults", detail.PageFaults, 700)
	requireValue(t, "major faults", detail.MajorFaults, 7)
	if detail.BootedAt.Unix() != 1700000000 {
		t.Errorf("got boot time %v", detail.BootedAt)
	}
	if len(detail.Interfaces) != 2 || detail.Interfaces[0].Name != "eth0" || detail.Interfaces[1].Name != "eth1" {
		t.Errorf("got interfaces %+v, want eth0 and eth1", detail.Interfaces)
	}
	want := load.Stall{
		Some: load.StallTimes{Avg10: 1, Avg60: 10, Avg300: 3, Total: time.Microsecond}, Full: load.StallTimes{Avg60: 5},
	}
	if detail.Stalls.Memory == nil || *detail.Stalls.Memory != want {
		t.Errorf("got stalls of memory %+v, want %+v", detail.Stalls.Memory, want)
	}
}

func TestMachine_KernelWithoutPressure(t *testing.T) {
	sample, err := newMachine(t, "testdata/nopsi").Sample(nil)
	if err != nil || sample.Pressure != (load.Pressure{}) {
		t.Errorf("got %+v, error %v; want unknown pressure", sample.Pressure, err)
	}
	requireValue(t, "CPUs", sample.CPUs, 2)
}

func TestL3_BrokenFiles(t *testing.T) {
	sample, err := newMachine(t, "testdata/broken").Sample(map[string]string{stats.DataFileSystem: "/does/not/exist"})
	if err == nil {
		t.Error("got no error")
	}
	if sample.CPUTotal.IsKnown() || sample.MemoryTotal.IsKnown() || sample.WorkingSet.IsKnown() || sample.PIDs.IsKnown() ||
		sample.Pressure.Memory.IsKnown() || sample.Network.RxBytes.IsKnown() || len(sample.FileSystems) != 0 {
		t.Errorf("broken files have the values %+v", sample)
	}
}

func TestMachine_ThisMachine(t *testing.T) {
	sample, err := newMachine(t, "/").Sample(map[string]string{stats.DataFileSystem: "/"})
	if err != nil {
		t.Fatal(err)
	}
	total, _ := sample.MemoryTotal.Get()
	workingSet, known := sample.WorkingSet.Get()
	if !known || workingSet <= 0 || workingSet > total {
		t.Errorf("got working set %v of %v", workingSet, total)
	}
	if pids, _ := sample.PIDs.Get(); pids < 1 {
		t.Errorf("got %v processes", pids)
	}
}

func BenchmarkMachine_Sample(b *testing.B) {
	machine, err := stats.NewMachine("/")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := machine.Sample(map[string]string{stats.DataFileSystem: "/", stats.LogsFileSystem: "/"}); err != nil {
			b.Fatal(err)
		}
	}
}
