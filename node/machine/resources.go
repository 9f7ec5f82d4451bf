package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/node/report"
)

// cpus counts those that are online; the file has ranges such as 0-3,8.
func (m *Machine) cpus() (int64, error) {
	const name = "sys/devices/system/cpu/online"
	content, err := os.ReadFile(m.path(name))
	if err != nil {
		return 0, err
	}
	var count int64
	for part := range strings.SplitSeq(strings.TrimSpace(string(content)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 32)
		to, err2 := strconv.ParseInt(last, 10, 32)
		if err != nil || err2 != nil || from < 0 || to < from {
			return 0, fmt.Errorf("%s: %q is no range of CPUs", m.path(name), part)
		}
		count += to - from + 1
	}
	return count, nil
}

// memory is what programs can have without swapping, as the kernel estimates it.
func (m *Machine) memory() (report.Amount, error) {
	content, err := os.ReadFile(m.path("proc/meminfo"))
	if err != nil {
		return report.Amount{}, err
	}
	var amount report.Amount
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kibibytes, err := strconv.ParseInt(fields[1], 10, 53)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			amount.Total = kibibytes << 10
		case "MemAvailable:":
			amount.Available = kibibytes << 10
		}
	}
	if amount.Total <= 0 {
		return report.Amount{}, fmt.Errorf("%s: no line MemTotal", m.path("proc/meminfo"))
	}
	return amount, nil
}

// pids are the processes and threads that can still be started. Nothing is known if a file cannot be read.
func (m *Machine) pids() report.Amount {
	limit := min(m.number("proc/sys/kernel/pid_max"), m.number("proc/sys/kernel/threads-max"))
	load := strings.Fields(m.first("proc/loadavg"))
	if limit <= 0 || len(load) < 4 {
		return report.Amount{}
	}
	_, tasks, _ := strings.Cut(load[3], "/") // runnable/all
	used, err := strconv.ParseInt(tasks, 10, 64)
	if err != nil {
		return report.Amount{}
	}
	return report.Amount{Total: limit, Available: max(limit-used, 0)}
}

func (m *Machine) number(name string) int64 {
	value, err := strconv.ParseInt(m.first(name), 10, 64)
	if err != nil {
		return 0
	}
	return value
}

// storage is the state of the file system that the folder is on. Some file systems do not count inodes.
func storage(folder string) (bytes, inodes report.Amount, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return bytes, inodes, fmt.Errorf("state of the file system of %s: %w", folder, err)
	}
	size := int64(stat.Bsize) //nolint:unconvert // its type differs between architectures
	bytes = report.Amount{Total: int64(stat.Blocks) * size, Available: int64(stat.Bavail) * size}
	inodes = report.Amount{Total: int64(stat.Files), Available: int64(stat.Ffree)}
	return bytes, inodes, nil
}
