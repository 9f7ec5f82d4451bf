package process

import (
	"path"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/load"
)

// clockTick is the unit of CPU time in /proc on all architectures.
const clockTick = 10 * time.Millisecond

// cpuTime is the CPU time of a container. Server.mu guards it.
type cpuTime struct {
	total time.Duration    // the largest that was measured
	execs map[int]struct{} // PIDs of the shims of running commands of ExecSync
	ended time.Duration    // of commands of ExecSync that have ended
}

// containerSample is a measurement of a container.
type containerSample struct {
	container *container
	usage.Sample
}

// target is a container to measure.
type target struct {
	container *container
	shim      processIdentity
	execs     []int
	ended     time.Duration
}

// measure measures the selected containers that run: in the cgroups of their scopes, and else in /proc, which is read once for all.
func (s *Server) measure(selected func(*container) bool) ([]containerSample, error) {
	var targets []target
	s.mu.Lock()
	for _, c := range s.containers {
		if c.stateLocked() != runtimeapi.ContainerState_CONTAINER_RUNNING || !selected(c) {
			continue
		}
		t := target{container: c, shim: c.started.Shim, ended: c.cpu.ended}
		for pid := range c.cpu.execs {
			t.execs = append(t.execs, pid)
		}
		targets = append(targets, t)
	}
	s.mu.Unlock()
	processes, err := listProcesses()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "read /proc: %v", err)
	}
	tree := newProcessTree(processes)
	var samples []containerSample
	for _, t := range targets {
		if shim, found := tree.processes[t.shim.PID]; !found || shim.Starttime != t.shim.Start {
			continue // it exited meanwhile
		}
		sample := s.cgroups.OfProcess(t.shim.PID, func(cgroup string) bool {
			return path.Base(cgroup) == scopeName(t.container.record.ID)
		}).Read()
		tree.fill(&sample, t)
		sample.CPUSeconds = s.recordCPU(t.container, sample.CPUSeconds)
		samples = append(samples, containerSample{t.container, sample})
	}
	sortByCreation(samples)
	return samples, nil
}

// recordCPU returns the CPU time of a container, at least what was measured before: processes whose parent ignores their exit
// disappear from /proc with their CPU time, and /proc is not read in one moment.
func (s *Server) recordCPU(c *container, seconds load.Value) load.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number, known := seconds.Get(); known {
		c.cpu.total = max(c.cpu.total, time.Duration(number*float64(time.Second)))
	}
	return load.Known(c.cpu.total.Seconds())
}

// trackExec counts a command of ExecSync as part of the container until the returned function is called with what it used.
func (s *Server) trackExec(c *container, shimPID int) (ended func(syscall.Rusage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cpu.execs == nil {
		c.cpu.execs = map[int]struct{}{}
	}
	c.cpu.execs[shimPID] = struct{}{}
	return func(used syscall.Rusage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(c.cpu.execs, shimPID)
		c.cpu.ended += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
}

// processTree has the processes of the machine.
type processTree struct {
	processes map[int]procfs.ProcStat
	children  map[int][]procfs.ProcStat
}

func newProcessTree(processes []procfs.ProcStat) processTree {
	tree := processTree{map[int]procfs.ProcStat{}, map[int][]procfs.ProcStat{}}
	for _, stat := range processes {
		tree.processes[stat.PID] = stat
		tree.children[stat.PPID] = append(tree.children[stat.PPID], stat)
	}
	return tree
}

// processUsage is what processes use.
type processUsage struct {
	cpu                             time.Duration
	memory, threads, faults, majors float64
}

// add adds the descendants of a process, including those that it or they have reaped.
func (u *processUsage) add(tree processTree, pid int) {
	u.cpu += ticks(tree.processes[pid].CUTime, tree.processes[pid].CSTime)
	for queue := tree.children[pid]; len(queue) > 0; {
		stat := queue[0]
		queue = append(queue[1:len(queue):len(queue)], tree.children[stat.PID]...)
		u.cpu += ticks(int(stat.UTime), int(stat.STime), stat.CUTime, stat.CSTime)
		u.memory += float64(stat.ResidentMemory())
		u.threads += float64(stat.NumThreads)
		u.faults += float64(stat.MinFlt + stat.CMinFlt + stat.MajFlt + stat.CMajFlt)
		u.majors += float64(stat.MajFlt + stat.CMajFlt)
	}
}

func ticks(counts ...int) (sum time.Duration) {
	for _, count := range counts {
		sum += time.Duration(count) * clockTick
	}
	return sum
}

// fill adds what the cgroup of the container does not have. The memory of processes is that of each, although they share parts.
func (t processTree) fill(sample *usage.Sample, of target) {
	used := processUsage{cpu: of.ended}
	used.add(t, of.shim.PID)
	for _, shim := range of.execs {
		used.cpu += ticks(int(t.processes[shim].UTime), int(t.processes[shim].STime)) // as in what it used when it has ended
		used.add(t, shim)
	}
	for _, value := range []struct {
		to   *load.Value
		from float64
	}{
		{&sample.CPUSeconds, used.cpu.Seconds()},
		{&sample.WorkingSet, used.memory},
		{&sample.Memory, used.memory},
		{&sample.RSS, used.memory},
		{&sample.PageFaults, used.faults},
		{&sample.MajorFaults, used.majors},
		{&sample.PIDs, used.threads},
	} {
		if !value.to.IsKnown() {
			*value.to = load.Known(value.from)
		}
	}
	if sample.At.IsZero() {
		sample.At = time.Now()
	}
}
