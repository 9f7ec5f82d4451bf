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

	"github.com/prometheus/procfs"
)

// processIdentity identifies a process unambiguously. A PID alone can be reused.
type processIdentity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot
	Boot  string `json:"boot"`
}

// identify returns the identity of a process that cannot disappear meanwhile: the caller, or a child that is not reaped.
func identify(pid int) (processIdentity, error) {
	stat, err := readStat(pid)
	if err != nil {
		return processIdentity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	boot, err := bootID()
	return processIdentity{PID: pid, Start: stat.Starttime, Boot: boot}, err
}

// exists reports whether the PID still belongs to that process, which may be a zombie. It fails if that cannot be
// determined.
func (p processIdentity) exists() (bool, error) {
	stat, err := readStat(p.PID)
	if err != nil || stat.Starttime != p.Start {
		return false, ignoreMissing(err)
	}
	boot, err := bootID()
	return err == nil && boot == p.Boot, err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (procfs.ProcStat, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return proc.Stat()
}

// hasExited reports whether the process is a zombie or dead: it only waits to be reaped.
func hasExited(stat procfs.ProcStat) bool { return stat.State == "Z" || stat.State == "X" }

// listProcesses returns all visible processes. A process that exits meanwhile is omitted.
func listProcesses() ([]procfs.ProcStat, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	stats := make([]procfs.ProcStat, 0, len(procs))
	for _, proc := range procs {
		stat, err := proc.Stat()
		if ignoreMissing(err) != nil {
			return nil, err
		}
		if err == nil {
			stats = append(stats, stat)
		}
	}
	return stats, nil
}

// hasEnv reports whether the process was started with an environment variable, given as NAME=VALUE. It reports false for
// a process that has exited or is not accessible. procfs reads at most 1 MiB of an environment, which can be larger.
func hasEnv(pid int, pair string) (bool, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false, ignoreMissing(err)
	}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		if string(entry) == pair {
			return true, nil
		}
	}
	return false, nil
}

// ignoreMissing returns nil for errors that mean that the process does not exist or is not accessible. Other errors, such
// as running out of file descriptors, say nothing about the process (F28).
func ignoreMissing(err error) error {
	for _, missing := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ESRCH} {
		if errors.Is(err, missing) {
			return nil
		}
	}
	return err
}
