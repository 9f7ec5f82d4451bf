package process

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// tick is the unit of CPU time in /proc, whatever the kernel's own.
const tick = 10 * time.Millisecond

// ContainerStats fails for a container that is not running, as containerd does.
func (s *Server) ContainerStats(
	_ context.Context, request *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	all, err := s.stats(func(one *container) bool { return one == c })
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.record.ID)
	}
	return &runtimeapi.ContainerStatsResponse{Stats: all[0]}, nil
}

// ListContainerStats is of running containers.
func (s *Server) ListContainerStats(
	_ context.Context, request *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	filter := request.GetFilter()
	all, err := s.stats(func(c *container) bool {
		return matches(filter.GetId(), c.record.ID) && matches(filter.GetPodSandboxId(), c.record.Sandbox) &&
			hasLabels(c.config.GetLabels(), filter.GetLabelSelector())
	})
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

// stats looks at all processes once, for however many containers.
func (s *Server) stats(wanted func(*container) bool) ([]*runtimeapi.ContainerStats, error) {
	shims := map[*container]int{}
	s.mu.Lock()
	for _, c := range s.containers {
		if c.stateLocked() == runtimeapi.ContainerState_CONTAINER_RUNNING && wanted(c) {
			shims[c] = c.started.Shim.PID
		}
	}
	s.mu.Unlock()
	all, err := processes()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "read /proc: %v", err)
	}
	children := map[int][]stat{}
	for _, one := range all {
		children[one.parent] = append(children[one.parent], one)
	}
	now := time.Now().UnixNano()
	var found []*runtimeapi.ContainerStats
	for c, shim := range shims {
		found = append(found, c.usage(now, usageBelow(shim, children)))
	}
	return found, nil
}

type usage struct{ cpu, memory uint64 }

// usageBelow sums what the shim's descendants use, and what those used that it has waited for: a sum that never falls.
func usageBelow(shim int, children map[int][]stat) usage {
	var sum usage
	if s, err := readStat(shim); err == nil {
		sum.cpu = s.childTicks * uint64(tick)
	}
	for below := children[shim]; len(below) > 0; {
		one := below[0]
		below = append(below[1:], children[one.pid]...)
		sum.cpu += one.ticks * uint64(tick)
		sum.memory += one.residentPages * uint64(os.Getpagesize())
	}
	return sum
}

func (c *container) usage(now int64, sum usage) *runtimeapi.ContainerStats {
	memory := &runtimeapi.UInt64Value{Value: sum.memory}
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.record.ID, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		Cpu:    &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: sum.cpu}},
		Memory: &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: memory, UsageBytes: memory, RssBytes: memory},
	}
}
