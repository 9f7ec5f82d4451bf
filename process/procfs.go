package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// clockTick is the unit of CPU time in /proc on all architectures.
const clockTick = 10 * time.Millisecond

// ContainerStats fails for a container that is not running, as in containerd.
func (s *Server) ContainerStats(
	_ context.Context, request *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	all, err := s.collectStats(func(other *container) bool { return other == c })
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.record.ID)
	}
	return &runtimeapi.ContainerStatsResponse{Stats: all[0]}, nil
}

// ListContainerStats lists the stats of running containers.
func (s *Server) ListContainerStats(
	_ context.Context, request *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	filter := request.GetFilter()
	all, err := s.collectStats(func(c *container) bool {
		return matchesID(filter.GetId(), c.record.ID) && matchesID(filter.GetPodSandboxId(), c.record.Sandbox) &&
			hasLabels(c.config.GetLabels(), filter.GetLabelSelector())
	})
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

// collectStats scans /proc once for all selected containers.
func (s *Server) collectStats(selected func(*container) bool) ([]*runtimeapi.ContainerStats, error) {
	shimPIDs := map[*container]int{}
	s.mu.Lock()
	for _, c := range s.containers {
		if c.stateLocked() == runtimeapi.ContainerState_CONTAINER_RUNNING && selected(c) {
			shimPIDs[c] = c.started.Shim.PID
		}
	}
	s.mu.Unlock()
	processes, err := listProcesses()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "read /proc: %v", err)
	}
	children := map[int][]procfs.ProcStat{}
	for _, stat := range processes {
		children[stat.PPID] = append(children[stat.PPID], stat)
	}
	now := time.Now().UnixNano()
	var all []*runtimeapi.ContainerStats
	for c, shimPID := range shimPIDs {
		all = append(all, c.stats(now, sumUsage(shimPID, children)))
	}
	return all, nil
}

// usage is CPU time in nanoseconds and resident memory in bytes.
type usage struct{ cpu, memory uint64 }

// sumUsage sums the usage of the shim's descendants, including those that the shim has reaped, so the CPU time never
// decreases.
func sumUsage(shimPID int, children map[int][]procfs.ProcStat) usage {
	var sum usage
	if shim, err := readStat(shimPID); err == nil {
		sum.cpu = childTicks(shim) * uint64(clockTick)
	}
	for queue := children[shimPID]; len(queue) > 0; {
		stat := queue[0]
		queue = append(queue[1:], children[stat.PID]...)
		sum.cpu += (uint64(stat.UTime) + uint64(stat.STime) + childTicks(stat)) * uint64(clockTick)
		sum.memory += uint64(stat.ResidentMemory())
	}
	return sum
}

// childTicks returns the CPU time of the reaped children of a process.
func childTicks(stat procfs.ProcStat) uint64 { return uint64(stat.CUTime) + uint64(stat.CSTime) }

func (c *container) stats(now int64, sum usage) *runtimeapi.ContainerStats {
	memory := &runtimeapi.UInt64Value{Value: sum.memory}
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.record.ID, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		Cpu:    &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: sum.cpu}},
		Memory: &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: memory, UsageBytes: memory, RssBytes: memory},
	}
}
