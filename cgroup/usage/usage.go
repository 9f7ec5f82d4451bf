// Package usage reads what the processes of a cgroup use from the files of cgroup versions 1 and 2. What cannot be read is unknown,
// never zero.
package usage

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/cgroup/host"
	"github.com/heraldnode/herald/load"
)

// Reader finds cgroups below a mount. It is a value and safe for concurrent use.
type Reader struct {
	// Mount is where cgroups are mounted. Defaults to host.Mount.
	Mount string
	// V2 is true for the unified hierarchy of version 2.
	V2 bool
}

// Sample is what a cgroup, with those below it, uses.
type Sample struct {
	load.Usage
	PIDs load.Value
}

// Group is a cgroup. The zero value does not exist.
type Group struct {
	v2   bool
	dirs map[string]string // by controller; those without a directory are missing. Version 2 has one, for all.
}

// controllers are those of version 1 with files that are read.
var controllers = []string{"cpu", "cpuacct", "memory", "pids", "blkio"}

// unified is the key of the directory of version 2.
const unified = ""

// Group returns the cgroup with this path below the mounts.
func (r Reader) Group(path string) Group {
	return r.find(func(string) string { return path })
}

// OfProcess returns the cgroup of a process, without the controllers for which accept rejects its path. accept tells the own cgroup
// of a process from those that it shares with others.
func (r Reader) OfProcess(pid int, accept func(path string) bool) Group {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return Group{}
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // ID:controllers:path
		if len(fields) != 3 || !accept(fields[2]) {
			continue
		}
		for name := range strings.SplitSeq(fields[1], ",") {
			paths[name] = fields[2]
		}
	}
	return r.find(func(controller string) string { return paths[controller] })
}

// find returns the cgroup with a path for each controller. The path "" means that it has none there.
func (r Reader) find(path func(controller string) string) Group {
	mount := cmp.Or(r.Mount, host.Mount)
	group := Group{v2: r.V2, dirs: map[string]string{}}
	names := controllers
	if r.V2 {
		names = []string{unified}
	}
	for _, name := range names {
		if path := path(name); path != "" {
			group.add(name, filepath.Join(mount, name, path))
		}
	}
	return group
}

func (g Group) add(controller, dir string) {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		g.dirs[controller] = dir
	}
}

// Exists reports whether the cgroup existed when it was looked up.
func (g Group) Exists() bool { return len(g.dirs) > 0 }

// dir returns a directory of the cgroup, whichever controller it belongs to, or "".
func (g Group) dir() string {
	for _, controller := range append([]string{unified}, controllers...) {
		if dir, found := g.dirs[controller]; found {
			return dir
		}
	}
	return ""
}

// Children returns the names of the cgroups directly below.
func (g Group) Children() []string {
	if !g.Exists() {
		return nil
	}
	entries, _ := os.ReadDir(g.dir()) // it may be gone
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// Child returns the cgroup of this name directly below.
func (g Group) Child(name string) Group {
	child := Group{v2: g.v2, dirs: map[string]string{}}
	for controller, dir := range g.dirs {
		child.add(controller, filepath.Join(dir, name))
	}
	return child
}

// Processes returns the processes in the cgroup itself that are visible here.
func (g Group) Processes() []int {
	if !g.Exists() {
		return nil
	}
	content, _ := os.ReadFile(filepath.Join(g.dir(), "cgroup.procs")) // it may be gone
	var pids []int
	for word := range strings.FieldsSeq(string(content)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Read returns what the cgroup uses now.
func (g Group) Read() Sample {
	var sample Sample
	g.Fill(&sample)
	return sample
}

// Fill reads what the sample does not have. Files whose values it has are not read: the kernel sums up the statistics of a cgroup
// whenever they are read.
func (g Group) Fill(sample *Sample) {
	if !g.Exists() {
		return
	}
	found := Sample{}
	if g.v2 {
		g.readV2(&sample.Usage, &found)
	} else {
		g.readV1(&sample.Usage, &found)
	}
	for _, value := range pairs(sample, &found) {
		if !value.to.IsKnown() {
			*value.to = *value.from
		}
	}
	for _, stall := range []struct{ to, from **load.Stall }{
		{&sample.Stalls.CPU, &found.Stalls.CPU}, {&sample.Stalls.Memory, &found.Stalls.Memory}, {&sample.Stalls.IO, &found.Stalls.IO},
	} {
		*stall.to = cmp.Or(*stall.to, *stall.from)
	}
	if sample.At.IsZero() {
		sample.At = time.Now()
	}
}

type pair struct{ to, from *load.Value }

// pairs returns the values of both samples that cgroups have.
func pairs(to, from *Sample) []pair {
	return []pair{
		{&to.CPUSeconds, &from.CPUSeconds},
		{&to.WorkingSet, &from.WorkingSet},
		{&to.Memory, &from.Memory},
		{&to.RSS, &from.RSS},
		{&to.Available, &from.Available},
		{&to.Swap, &from.Swap},
		{&to.PageFaults, &from.PageFaults},
		{&to.MajorFaults, &from.MajorFaults},
		{&to.SwapAvailable, &from.SwapAvailable},
		{&to.Throttling.Periods, &from.Throttling.Periods},
		{&to.Throttling.Throttled, &from.Throttling.Throttled},
		{&to.Throttling.Seconds, &from.Throttling.Seconds},
		{&to.IO.Read, &from.IO.Read},
		{&to.IO.Written, &from.IO.Written},
		{&to.Pressure.CPU, &from.Pressure.CPU},
		{&to.Pressure.Memory, &from.Pressure.Memory},
		{&to.Pressure.MemoryFull, &from.Pressure.MemoryFull},
		{&to.Pressure.IO, &from.Pressure.IO},
		{&to.Pressure.IOFull, &from.Pressure.IOFull},
		{&to.PIDs, &from.PIDs},
	}
}

// hasMemory reports whether all values of memory.stat are known.
func hasMemory(have *load.Usage) bool {
	return have.WorkingSet.IsKnown() && have.Memory.IsKnown() && have.RSS.IsKnown() && have.MajorFaults.IsKnown()
}

func (g Group) readV2(have *load.Usage, sample *Sample) {
	dir := g.dirs[unified]
	file := func(name string) string { return filepath.Join(dir, name) }
	cpu := readTable(file("cpu.stat"))
	sample.CPUSeconds = divide(cpu["usage_usec"], 1e6)
	sample.Throttling = throttling(cpu, "throttled_usec", 1e6)
	if !hasMemory(have) {
		memory := readTable(file("memory.stat"))
		sample.Memory = readNumber(file("memory.current"))
		sample.WorkingSet = minus(sample.Memory, memory["inactive_file"])
		sample.Available = minus(readNumber(file("memory.max")), sample.WorkingSet)
		sample.RSS, sample.PageFaults, sample.MajorFaults = memory["anon"], memory["pgfault"], memory["pgmajfault"]
	}
	if !have.Swap.IsKnown() {
		sample.Swap = readNumber(file("memory.swap.current"))
		sample.SwapAvailable = minus(readNumber(file("memory.swap.max")), sample.Swap)
	}
	sample.PIDs = readNumber(file("pids.current"))
	sample.IO = readIOStat(file("io.stat"))
	if !have.Pressure.CPU.IsKnown() {
		sample.Stalls.CPU, sample.Pressure.CPU, _ = readPressure(file("cpu.pressure"))
		sample.Stalls.Memory, sample.Pressure.Memory, sample.Pressure.MemoryFull = readPressure(file("memory.pressure"))
		sample.Stalls.IO, sample.Pressure.IO, sample.Pressure.IOFull = readPressure(file("io.pressure"))
	}
}

// throttling returns the part of cpu.stat about the CPU limit. The two versions measure the time in different units.
func throttling(cpu map[string]load.Value, duration string, perSecond float64) load.Throttling {
	return load.Throttling{
		Periods: cpu["nr_periods"], Throttled: cpu["nr_throttled"], Seconds: divide(cpu[duration], perSecond),
	}
}

func (g Group) readV1(have *load.Usage, sample *Sample) {
	file := func(controller, name string) string {
		if g.dirs[controller] == "" {
			return ""
		}
		return filepath.Join(g.dirs[controller], name)
	}
	sample.CPUSeconds = divide(readNumber(file("cpuacct", "cpuacct.usage")), 1e9)
	cpu := readTable(file("cpu", "cpu.stat"))
	sample.Throttling = throttling(cpu, "throttled_time", 1e9)
	if !hasMemory(have) || !have.Swap.IsKnown() {
		memory := readTable(file("memory", "memory.stat"))
		sample.Memory = readNumber(file("memory", "memory.usage_in_bytes"))
		sample.WorkingSet = minus(sample.Memory, memory["total_inactive_file"])
		if limit, known := readNumber(file("memory", "memory.limit_in_bytes")).Get(); known && limit < noLimit {
			sample.Available = minus(load.Known(limit), sample.WorkingSet)
		}
		sample.RSS, sample.Swap = memory["total_rss"], memory["total_swap"]
		sample.PageFaults, sample.MajorFaults = memory["total_pgfault"], memory["total_pgmajfault"]
	}
	sample.PIDs = readNumber(file("pids", "pids.current"))
	sample.IO = readServiceBytes(file("blkio", "blkio.throttle.io_service_bytes_recursive"))
}

// noLimit is less than the limit in bytes of a cgroup of version 1 that has none, and more than any machine has.
const noLimit = 1 << 62
