package process

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup/usage"
	"github.com/heraldnode/herald/load"
)

// ContainerStats fails for a container that is not running, as in containerd.
func (s *Server) ContainerStats(
	_ context.Context, request *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	all, err := s.listStats(func(other *container) bool { return other == c })
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
	all, err := s.listStats(func(c *container) bool {
		return matchesID(filter.GetId(), c.record.ID) && matchesID(filter.GetPodSandboxId(), c.record.Sandbox) &&
			hasLabels(c.config.GetLabels(), filter.GetLabelSelector())
	})
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

// listStats returns the stats of the selected containers that run, in the order of their creation.
func (s *Server) listStats(selected func(*container) bool) ([]*runtimeapi.ContainerStats, error) {
	samples, err := s.measure(selected)
	var all []*runtimeapi.ContainerStats
	for _, sample := range samples {
		all = append(all, sample.container.stats(sample.Sample))
	}
	return all, err
}

// PodSandboxStats fails for a sandbox that was stopped.
func (s *Server) PodSandboxStats(
	_ context.Context, request *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	sb, err := s.findSandbox(request.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	all, err := s.listSandboxStats(func(other *sandbox) bool { return other == sb })
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "pod sandbox %q is stopped", sb.id)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: all[0]}, nil
}

// ListPodSandboxStats lists the stats of sandboxes that were not stopped.
func (s *Server) ListPodSandboxStats(
	_ context.Context, request *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	filter := request.GetFilter()
	all, err := s.listSandboxStats(func(sb *sandbox) bool {
		return matchesID(filter.GetId(), sb.id) && hasLabels(sb.config.GetLabels(), filter.GetLabelSelector())
	})
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: all}, err
}

func (s *Server) listSandboxStats(selected func(*sandbox) bool) ([]*runtimeapi.PodSandboxStats, error) {
	var sandboxes []*sandbox
	s.mu.Lock()
	for _, sb := range s.sandboxes {
		if !sb.stopped && selected(sb) {
			sandboxes = append(sandboxes, sb)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(sandboxes, func(a, b *sandbox) int { return a.created.Compare(b.created) })
	samples, err := s.measure(func(c *container) bool {
		return slices.ContainsFunc(sandboxes, func(sb *sandbox) bool { return sb.id == c.record.Sandbox })
	})
	if err != nil {
		return nil, err
	}
	var all []*runtimeapi.PodSandboxStats
	for _, sb := range sandboxes {
		all = append(all, s.sandboxStats(sb, samples))
	}
	return all, nil
}

// sandboxStats adds up the containers of a sandbox. It has no network of its own. The CPU time includes that of containers that have
// exited or were removed, as far as it was measured: it never decreases.
func (s *Server) sandboxStats(sb *sandbox, samples []containerSample) *runtimeapi.PodSandboxStats {
	total := usage.Sample{PIDs: load.Known(0), Usage: load.Usage{WorkingSet: load.Known(0), Memory: load.Known(0), RSS: load.Known(0)}}
	linux := &runtimeapi.LinuxPodSandboxStats{}
	for _, sample := range samples {
		if sample.container.record.Sandbox != sb.id {
			continue
		}
		linux.Containers = append(linux.Containers, sample.container.stats(sample.Sample))
		total.WorkingSet = total.WorkingSet.Plus(sample.WorkingSet)
		total.Memory = total.Memory.Plus(sample.Memory)
		total.RSS = total.RSS.Plus(sample.RSS)
		total.PIDs = total.PIDs.Plus(sample.PIDs)
	}
	total.At = time.Now()
	total.CPUSeconds = load.Known(s.cpuOf(sb).Seconds())
	linux.Cpu, linux.Memory = cpuUsage(total), memoryUsage(total)
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: total.At.UnixNano(), ProcessCount: number(total.PIDs, 1)}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: sb.id, Metadata: sb.config.GetMetadata(), Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(),
		},
		Linux: linux,
	}
}

// cpuOf returns the CPU time of all containers that the sandbox has had, as last measured.
func (s *Server) cpuOf(sb *sandbox) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := sb.removedCPU
	for _, c := range s.containers {
		if c.record.Sandbox == sb.id {
			total += c.cpu.total
		}
	}
	return total
}

func (c *container) stats(sample usage.Sample) *runtimeapi.ContainerStats {
	stats := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.record.ID, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		Cpu: cpuUsage(sample), Memory: memoryUsage(sample),
	}
	if sample.Swap.IsKnown() {
		stats.Swap = &runtimeapi.SwapUsage{Timestamp: sample.At.UnixNano(), SwapUsageBytes: number(sample.Swap, 1)}
	}
	return stats
}

func cpuUsage(sample usage.Sample) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{
		Timestamp: sample.At.UnixNano(), UsageCoreNanoSeconds: number(sample.CPUSeconds, float64(time.Second)),
	}
}

func memoryUsage(sample usage.Sample) *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{
		Timestamp: sample.At.UnixNano(), WorkingSetBytes: number(sample.WorkingSet, 1), UsageBytes: number(sample.Memory, 1),
		RssBytes: number(sample.RSS, 1), AvailableBytes: number(sample.Available, 1),
		PageFaults: number(sample.PageFaults, 1), MajorPageFaults: number(sample.MajorFaults, 1),
	}
}

// number returns a value in another unit, nil if it is unknown.
func number(value load.Value, factor float64) *runtimeapi.UInt64Value {
	known, ok := value.Get()
	if !ok {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: uint64(known*factor + .5)}
}

// sortByCreation sorts samples by the creation of their containers.
func sortByCreation(samples []containerSample) {
	slices.SortFunc(samples, func(a, b containerSample) int {
		return cmp.Or(a.container.record.Created.Compare(b.container.record.Created), cmp.Compare(a.container.record.ID, b.container.record.ID))
	})
}
