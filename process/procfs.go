package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// identity names a process for ever: a PID alone is used again.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot
	Boot  string `json:"boot"`
}

// stat is what the runtime reads of /proc/PID/stat.
type stat struct {
	pid, parent, group int
	state              byte
	ticks              uint64 // of CPU, with those of children that were waited for
	childTicks         uint64 // the part of ticks that children used
	start              uint64
	residentPages      uint64
}

// The fields of /proc/PID/stat that follow the name in parentheses, as proc(5) counts them, less three.
const (
	statState, statParent, statGroup             = 0, 1, 2
	statUser, statSystem, statChildU, statChildS = 11, 12, 13, 14
	statStart, statResident                      = 19, 21
)

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return stat{}, err
	}
	return parseStat(pid, string(data))
}

// parseStat looks for the last parenthesis: a process may choose a name with several.
func parseStat(pid int, line string) (stat, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) <= statResident {
		return stat{}, fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	var failed error
	number := func(at int) uint64 {
		n, err := strconv.ParseUint(fields[at], 10, 64)
		failed = errors.Join(failed, err)
		return n
	}
	s := stat{
		pid: pid, state: fields[statState][0],
		parent: int(number(statParent)), group: int(number(statGroup)),
		childTicks: number(statChildU) + number(statChildS),
		start:      number(statStart), residentPages: number(statResident),
	}
	s.ticks = number(statUser) + number(statSystem) + s.childTicks
	return s, failed
}

// ended reports a process that only waits for its parent to notice its end.
func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

// identify describes a process that cannot go away meanwhile: a child that was not waited for, or the caller.
func identify(pid int) (identity, error) {
	s, err := readStat(pid)
	if err != nil {
		return identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	boot, err := bootID()
	return identity{PID: pid, Start: s.start, Boot: boot}, err
}

// exists reports whether the PID still is that process, which may have ended without having been waited for. It fails when
// nobody knows.
func (i identity) exists() (bool, error) {
	s, err := readStat(i.PID)
	if err != nil || s.start != i.Start {
		return false, unlessAbsent(err)
	}
	boot, err := bootID()
	return err == nil && boot == i.Boot, err
}

// unlessAbsent is the error unless it says that there is no such process, or none that this one may look into. All others,
// such as that of a server without descriptors, tell nothing about the process (F28).
func unlessAbsent(err error) error {
	for _, absent := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ESRCH} {
		if errors.Is(err, absent) {
			return nil
		}
	}
	return err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// processes is every process that may be looked at; one that ends meanwhile is left out.
func processes() ([]stat, error) {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if unlessAbsent(err) != nil {
			return nil, err
		}
		if err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// hasVariable reports whether the process was started with that variable, given as NAME=VALUE. One that has ended, or may
// not be looked into, has none.
func hasVariable(pid int, variable string) (bool, error) {
	data, err := os.ReadFile(procFile(pid, "environ"))
	if err != nil {
		return false, unlessAbsent(err)
	}
	for one := range bytes.SplitSeq(data, []byte{0}) {
		if string(one) == variable {
			return true, nil
		}
	}
	return false, nil
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }
