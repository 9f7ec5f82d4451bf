package agents

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process uses of the machine.
type Usage struct {
	// CPUTime is the user and system time since the process started.
	CPUTime time.Duration
	// ResidentBytes is the resident set size.
	ResidentBytes int64
}

// clockTick is the unit of times in /proc/PID/stat. Linux reports 100 per second on every architecture that Go
// supports.
const clockTick = time.Second / 100

// ProcessUsage reads the usage of a process from /proc.
func ProcessUsage(pid int) (Usage, error) {
	var usage Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage, err
	}
	if usage.CPUTime, err = ParseStat(string(stat)); err != nil {
		return usage, fmt.Errorf("process %d: %w", pid, err)
	}
	if usage.ResidentBytes, err = ParseStatus(string(status)); err != nil {
		return usage, fmt.Errorf("process %d: %w", pid, err)
	}
	return usage, nil
}

// ParseStat returns utime plus stime, fields 14 and 15 of /proc/PID/stat. The second field is the program's name in
// parentheses and may itself contain spaces and parentheses.
func ParseStat(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, fmt.Errorf("parse stat %q: want more than 15 fields", stat)
	}
	userTicks, err := strconv.ParseInt(fields[user], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse utime: %w", err)
	}
	systemTicks, err := strconv.ParseInt(fields[system], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse stime: %w", err)
	}
	return time.Duration(userTicks+systemTicks) * clockTick, nil
}

// ParseStatus returns VmRSS of /proc/PID/status in bytes. A process that has exited has none.
func ParseStatus(status string) (int64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "VmRSS:")
		if !found {
			continue
		}
		number, isKB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		kilobytes, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !isKB {
			return 0, fmt.Errorf("parse VmRSS %q: want a number of kB", strings.TrimSpace(value))
		}
		return kilobytes << 10, nil
	}
	return 0, errors.New("no VmRSS in status: process may have exited")
}
