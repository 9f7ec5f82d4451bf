package agents

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process uses of the machine.
type Usage struct {
	// Processor is the time that it has used since it began, in its own code and in the kernel.
	Processor time.Duration
	// Resident is how many bytes of its memory are in the machine's.
	Resident int64
}

// tick is the unit of the times in /proc/PID/stat. Linux shows 100 to a second on every architecture that Go knows.
const tick = time.Second / 100

// UsageOf asks the kernel about a process.
func UsageOf(pid int) (Usage, error) {
	var u Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	if u.Processor, err = ParseStat(string(stat)); err != nil {
		return u, fmt.Errorf("process %d: %w", pid, err)
	}
	if u.Resident, err = ParseStatus(string(status)); err != nil {
		return u, fmt.Errorf("process %d: %w", pid, err)
	}
	return u, nil
}

// ParseStat returns utime and stime, the 14th and 15th field of /proc/PID/stat. The second field is the program's name in
// parentheses, in which there may be spaces and parentheses.
func ParseStat(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, fmt.Errorf("stat is %q: want more than 15 fields", stat)
	}
	inUser, err := strconv.ParseInt(fields[user], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("utime in stat: %w", err)
	}
	inSystem, err := strconv.ParseInt(fields[system], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stime in stat: %w", err)
	}
	return time.Duration(inUser+inSystem) * tick, nil
}

// ParseStatus returns VmRSS of /proc/PID/status in bytes. A process that has ended has none.
func ParseStatus(status string) (int64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "VmRSS:")
		if !found {
			continue
		}
		number, isKB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		kilobytes, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !isKB {
			return 0, fmt.Errorf("VmRSS is %q: want a number of kB", strings.TrimSpace(value))
		}
		return kilobytes << 10, nil
	}
	return 0, fmt.Errorf("no VmRSS in status: has it ended?")
}
