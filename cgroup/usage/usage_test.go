package usage_test

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/load"
)

func requireValue(t *testing.T, what string, got load.Value, want float64) {
	t.Helper()
	if value, known := got.Get(); !known || math.Abs(value-want) > 1e-9*max(want, 1) {
		t.Errorf("%s: got %v (known %v), want %v", what, value, known, want)
	}
}

func TestRES21_Version1(t *testing.T) {
	pod := usage.Reader{Mount: "testdata/v1"}.Group("/pod")
	sample := pod.Read()
	requireValue(t, "CPU", sample.CPUSeconds, .461368731)
	requireValue(t, "memory", sample.Memory, 21831680)
	requireValue(t, "working set", sample.WorkingSet, 21831680-21057536)
	requireValue(t, "available", sample.Available, 67108864-(21831680-21057536))
	requireValue(t, "RSS", sample.RSS, 106496)
	requireValue(t, "swap", sample.Swap, 0)
	requireValue(t, "faults", sample.PageFaults, 864)
	requireValue(t, "major faults", sample.MajorFaults, 1)
	requireValue(t, "processes", sample.PIDs, 1)
	requireValue(t, "read", sample.IO.Read, 0)
	if sample.Pressure != (load.Pressure{}) || sample.At.IsZero() {
		t.Errorf("got pressure %+v at %v; version 1 has none", sample.Pressure, sample.At)
	}
	if names := pod.Children(); !slices.Equal(names, []string{"c1"}) {
		t.Fatalf("got children %v", names)
	}
	container := pod.Child("c1").Read()
	requireValue(t, "periods", container.Throttling.Periods, 25)
	requireValue(t, "throttled periods", container.Throttling.Throttled, 21)
	requireValue(t, "throttled", container.Throttling.Seconds, 1.125760542)
	requireValue(t, "read", container.IO.Read, 4096+512)
	requireValue(t, "written", container.IO.Written, 20971520+1024)
	if container.Available.IsKnown() {
		t.Errorf("a container without a limit has %v available", container.Available)
	}
}

func TestRES21_Version2(t *testing.T) {
	pod := usage.Reader{Mount: "testdata/v2", V2: true}.Group("/pod")
	sample := pod.Read()
	requireValue(t, "CPU", sample.CPUSeconds, 81.234567)
	requireValue(t, "memory", sample.Memory, 27262976)
	requireValue(t, "working set", sample.WorkingSet, 27262976-12582912)
	requireValue(t, "available", sample.Available, 67108864-(27262976-12582912))
	requireValue(t, "RSS", sample.RSS, 5242880)
	requireValue(t, "swap", sample.Swap, 8192)
	requireValue(t, "faults", sample.PageFaults, 6543)
	requireValue(t, "major faults", sample.MajorFaults, 21)
	requireValue(t, "periods", sample.Throttling.Periods, 0)
	requireValue(t, "processes", sample.PIDs, 7)
	requireValue(t, "read", sample.IO.Read, 1048576+1024)
	requireValue(t, "written", sample.IO.Written, 4096)
	for what, pressure := range map[string][2]load.Value{
		"CPU":    {sample.Pressure.CPU, load.Known(.125)},
		"memory": {sample.Pressure.Memory, load.Known(.015)}, "memory full": {sample.Pressure.MemoryFull, load.Known(.005)},
		"IO": {sample.Pressure.IO, load.Known(.03)}, "IO full": {sample.Pressure.IOFull, load.Known(.0025)},
	} {
		want, _ := pressure[1].Get()
		requireValue(t, "pressure of "+what, pressure[0], want)
	}
	container := pod.Child("c1")
	sample = container.Read()
	requireValue(t, "periods", sample.Throttling.Periods, 400)
	requireValue(t, "throttled periods", sample.Throttling.Throttled, 100)
	requireValue(t, "throttled", sample.Throttling.Seconds, 2.5)
	requireValue(t, "written", sample.IO.Written, 0) // the file has no lines
	if sample.WorkingSet.IsKnown() || sample.PIDs.IsKnown() || sample.Available.IsKnown() || sample.Pressure.IO.IsKnown() {
		t.Errorf("got %+v; want unknown what has no file", sample)
	}
	if pids := container.Processes(); !slices.Equal(pids, []int{17, 23}) {
		t.Errorf("got processes %v; 0 is not visible", pids)
	}
}

// Numbers that are cut off or none are unknown: half a number is a wrong number.
func TestL3_BrokenFiles(t *testing.T) {
	for _, reader := range []usage.Reader{{Mount: "testdata/broken1"}, {Mount: "testdata/broken2", V2: true}} {
		group := reader.Group("/pod")
		if !group.Exists() {
			t.Fatal("cgroup does not exist")
		}
		sample := group.Read()
		delta := sample.RSS // its line is whole in one of the two
		sample.RSS = load.Value{}
		if number, known := delta.Get(); known && number != 5242880 {
			t.Errorf("%s: got RSS %v", reader.Mount, number)
		}
		requireUnknown(t, reader.Mount, reflect.ValueOf(sample))
	}
}

// requireUnknown fails for each load.Value that is known.
func requireUnknown(t *testing.T, path string, value reflect.Value) {
	t.Helper()
	for i := range value.NumField() {
		field, name := value.Field(i), path+"."+value.Type().Field(i).Name
		switch typed := field.Interface().(type) {
		case load.Value:
			if number, known := typed.Get(); known {
				t.Errorf("%s: got %v, want unknown", name, number)
			}
		case load.Usage, load.Pressure, load.IO, load.Throttling:
			requireUnknown(t, name, field)
		}
	}
}

// Prefixes of every recorded file: what is cut off never has another value than the whole.
func TestL3_TruncatedFiles(t *testing.T) {
	for _, root := range []string{"testdata/v1", "testdata/v2"} {
		whole := usage.Reader{Mount: root, V2: root == "testdata/v2"}.Group("/pod").Read()
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.Contains(path, "c1") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(root)); err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			for size := 0; size < len(content); size += 1 + len(content)/100 {
				if err := os.WriteFile(filepath.Join(copied, relative), content[:size], 0o600); err != nil {
					return err
				}
				cut := usage.Reader{Mount: copied, V2: root == "testdata/v2"}.Group("/pod").Read()
				requireEqualOrUnknown(t, path+"["+strconv.Itoa(size)+"]", reflect.ValueOf(cut), reflect.ValueOf(whole))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func requireEqualOrUnknown(t *testing.T, path string, got, want reflect.Value) {
	t.Helper()
	for i := range got.NumField() {
		field, name := got.Field(i), path+"."+got.Type().Field(i).Name
		switch typed := field.Interface().(type) {
		case load.Value:
			// Bytes of disks are a sum over lines: a file that lacks devices cannot be told from one of a cgroup that used fewer.
			if typed.IsKnown() && typed != want.Field(i).Interface() && !strings.Contains(name, ".IO.") {
				t.Errorf("%s: got %v, want %v or unknown", name, typed, want.Field(i).Interface())
			}
		case load.Usage, load.Pressure, load.IO, load.Throttling:
			requireEqualOrUnknown(t, name, field, want.Field(i))
		}
	}
}

func TestFill_KeepsKnownValues(t *testing.T) {
	sample := usage.Sample{Usage: load.Usage{CPUSeconds: load.Known(1), WorkingSet: load.Known(2)}}
	usage.Reader{Mount: "testdata/v2", V2: true}.Group("/pod").Fill(&sample)
	requireValue(t, "CPU", sample.CPUSeconds, 1)
	requireValue(t, "working set", sample.WorkingSet, 2)
	requireValue(t, "RSS", sample.RSS, 5242880)
	before := sample
	usage.Reader{Mount: "testdata/v2", V2: true}.Group("/does/not/exist").Fill(&sample)
	if sample != before {
		t.Errorf("a missing cgroup changed the sample to %+v", sample)
	}
}

// This process is in some cgroup of this machine, whichever version it has.
func TestOfProcess(t *testing.T) {
	all := func(string) bool { return true }
	found := false
	for _, reader := range []usage.Reader{{}, {V2: true}, {Mount: "/sys/fs/cgroup/unified", V2: true}} {
		group := reader.OfProcess(os.Getpid(), all)
		if !group.Exists() {
			continue
		}
		if seconds, known := group.Read().CPUSeconds.Get(); known && seconds > 0 {
			found = true
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		if _, err := os.Stat("/sys/fs/cgroup/cpuacct"); err != nil {
			t.Skip("no cgroups are mounted")
		}
	}
	if !found {
		t.Error("no cgroup of this process has a CPU time")
	}
	if (usage.Reader{}).OfProcess(os.Getpid(), func(string) bool { return false }).Exists() {
		t.Error("got a cgroup that was rejected")
	}
}

func BenchmarkRead(b *testing.B) {
	group := usage.Reader{}.Group("/")
	b.ReportAllocs()
	for b.Loop() {
		group.Read()
	}
}
