package stats

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/heraldnode/herald/load"
)

// Machine reads the state of the machine from /proc and the file systems. It is safe for concurrent use.
type Machine struct {
	root string
	proc procfs.FS
}

// NewMachine returns a Machine that reads /proc below root, usually "/".
func NewMachine(root string) (*Machine, error) {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return &Machine{root: root, proc: proc}, nil
}

// Sample measures the machine. What cannot be read is unknown; the error says what, and the sample has the rest.
func (m *Machine) Sample(fileSystems map[string]string) (load.MachineSample, error) {
	var sample load.MachineSample
	errs := []error{m.readCPU(&sample), m.readMemory(&sample), m.readPressure(&sample), m.readPIDs(&sample), m.readNetwork(&sample)}
	for _, name := range fileSystemNames {
		dir, found := fileSystems[name]
		if !found {
			continue
		}
		fileSystem, err := statFileSystem(name, dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		sample.FileSystems = append(sample.FileSystems, fileSystem)
	}
	return sample, errors.Join(errs...)
}

// The file systems of a node, in the order in which they are shown.
const (
	DataFileSystem       = "data"
	ImagesFileSystem     = "images"
	ContainersFileSystem = "containers"
	LogsFileSystem       = "logs"
)

var fileSystemNames = []string{DataFileSystem, ImagesFileSystem, ContainersFileSystem, LogsFileSystem}

func (m *Machine) readCPU(sample *load.MachineSample) error {
	stat, err := m.proc.Stat()
	if err != nil {
		return fmt.Errorf("read CPU times: %w", err)
	}
	cpu := stat.CPUTotal
	idle := cpu.Idle + cpu.Iowait
	busy := cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ + cpu.Steal // user and nice include the guests
	sample.CPUs = load.Known(float64(len(stat.CPU)))
	sample.CPUTotal, sample.CPUBusy = load.Known(busy+idle), load.Known(busy)
	sample.CPUIOWait, sample.CPUSteal = load.Known(cpu.Iowait), load.Known(cpu.Steal)
	sample.Detail.BootedAt = time.Unix(int64(stat.BootTime), 0) //nolint:gosec // seconds
	return nil
}

// readMemory computes the working set as the kubelet does without cgroups: all memory that is neither free nor inactive page cache.
func (m *Machine) readMemory(sample *load.MachineSample) error {
	info, err := m.proc.Meminfo()
	if err != nil {
		return fmt.Errorf("read memory: %w", err)
	}
	total, available := bytesOf(info.MemTotalBytes), bytesOf(info.MemAvailableBytes)
	sample.MemoryTotal, sample.MemoryAvailable = total, available
	sample.WorkingSet = difference(total, bytesOf(info.MemFreeBytes), bytesOf(info.InactiveFileBytes))
	sample.Detail.Swap = difference(bytesOf(info.SwapTotalBytes), bytesOf(info.SwapFreeBytes))
	sample.Detail.Memory = difference(total, bytesOf(info.MemFreeBytes))
	sample.Detail.RSS, sample.Detail.SwapFree = bytesOf(info.AnonPagesBytes), bytesOf(info.SwapFreeBytes)
	m.readVMStat(map[string]*load.Value{
		"oom_kill": &sample.OOMKills, "pgfault": &sample.Detail.PageFaults, "pgmajfault": &sample.Detail.MajorFaults,
	})
	return nil
}

func bytesOf(number *uint64) load.Value {
	if number == nil {
		return load.Value{}
	}
	return load.Known(float64(*number))
}

// difference returns a minus all others, at least 0. It is unknown if one of them is.
func difference(a load.Value, others ...load.Value) load.Value {
	number, known := a.Get()
	for _, other := range others {
		subtract, ok := other.Get()
		number, known = number-subtract, known && ok
	}
	if !known {
		return load.Value{}
	}
	return load.Known(max(number, 0))
}

// readVMStat reads counters of /proc/vmstat by their names. Old kernels do not have all of them.
func (m *Machine) readVMStat(counters map[string]*load.Value) {
	content, err := os.ReadFile(filepath.Join(m.root, "proc/vmstat"))
	if err != nil {
		return
	}
	for line := range bytes.Lines(content) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if counter, found := counters[key]; found {
			*counter = parse(value)
		}
	}
}

func parse(text string) load.Value {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return load.Value{}
	}
	return load.Known(number)
}

// readPressure reads the pressure stall information. A kernel without it has none, which is no error.
func (m *Machine) readPressure(sample *load.MachineSample) error {
	var errs []error
	for _, resource := range []struct {
		name       string
		some, full *load.Value
		stall      **load.Stall
	}{
		{"cpu", &sample.Pressure.CPU, nil, &sample.Detail.Stalls.CPU},
		{"memory", &sample.Pressure.Memory, &sample.Pressure.MemoryFull, &sample.Detail.Stalls.Memory},
		{"io", &sample.Pressure.IO, &sample.Pressure.IOFull, &sample.Detail.Stalls.IO},
	} {
		stats, err := m.proc.PSIStatsForResource(resource.name)
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.EOPNOTSUPP):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("read pressure of %s: %w", resource.name, err))
			continue
		}
		*resource.stall = &load.Stall{Some: stallTimes(stats.Some), Full: stallTimes(stats.Full)}
		if stats.Some != nil {
			*resource.some = load.Known(stats.Some.Avg60 / 100)
		}
		if stats.Full != nil && resource.full != nil {
			*resource.full = load.Known(stats.Full.Avg60 / 100)
		}
	}
	return errors.Join(errs...)
}

// readPIDs counts processes and threads. The limit is the smaller of the two that the kernel has.
func (m *Machine) readPIDs(sample *load.MachineSample) error {
	content, err := os.ReadFile(filepath.Join(m.root, "proc/loadavg"))
	if err != nil {
		return fmt.Errorf("read processes: %w", err)
	}
	fields := strings.Fields(string(content))
	if len(fields) < 4 {
		return fmt.Errorf("read processes: unexpected content of loadavg: %q", content)
	}
	_, tasks, _ := strings.Cut(fields[3], "/") // runnable/all
	sample.PIDs = parse(tasks)
	for _, name := range []string{"pid_max", "threads-max"} {
		content, err := os.ReadFile(filepath.Join(m.root, "proc/sys/kernel", name))
		if err != nil {
			return fmt.Errorf("read limit of processes: %w", err)
		}
		limit := parse(strings.TrimSpace(string(content)))
		number, known := limit.Get()
		if current, found := sample.MaxPIDs.Get(); known && (!found || number < current) {
			sample.MaxPIDs = limit
		}
	}
	return nil
}

// readNetwork reads the counters of the interface of the default route, which not every machine has, and of the machine's others.
func (m *Machine) readNetwork(sample *load.MachineSample) error {
	devices, err := m.proc.NetDev()
	if err != nil {
		return fmt.Errorf("read network: %w", err)
	}
	sample.Detail.Interfaces = ownInterfaces(devices)
	name, err := m.defaultInterface()
	if err != nil || name == "" {
		return err
	}
	if device, found := devices[name]; found {
		sample.Network = networkCounters(device)
	}
	return nil
}

// defaultInterface returns the interface of the IPv4 default route with the lowest metric, or "".
func (m *Machine) defaultInterface() (string, error) {
	content, err := os.ReadFile(filepath.Join(m.root, "proc/net/route"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read routes: %w", err)
	}
	name, lowest := "", 0
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line) // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
		if len(fields) < 8 || fields[1] != "00000000" || fields[7] != "00000000" {
			continue
		}
		if metric, err := strconv.Atoi(fields[6]); err == nil && (name == "" || metric < lowest) {
			name, lowest = fields[0], metric
		}
	}
	return name, nil
}

// statFileSystem measures the file system of a directory. Some file systems do not count inodes.
func statFileSystem(name, dir string) (load.FileSystem, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return load.FileSystem{}, fmt.Errorf("read file system of %s: %w", dir, err)
	}
	size := float64(stat.Bsize)
	fileSystem := load.FileSystem{
		Name: name, Capacity: load.Known(float64(stat.Blocks) * size), Used: load.Known(float64(stat.Blocks-stat.Bfree) * size),
		Available: load.Known(float64(stat.Bavail) * size), ReadOnly: stat.Flags&syscall.MS_RDONLY != 0,
	}
	if stat.Files > 0 {
		fileSystem.Inodes, fileSystem.InodeUsed = load.Known(float64(stat.Files)), load.Known(float64(stat.Files-stat.Ffree))
	}
	return fileSystem, nil
}
