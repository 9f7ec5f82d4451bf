package process

import (
	"context"
	"os"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeName is the runtime's name, and so the scheme of its containers' IDs in a pod's status.
const runtimeName = "process"

// Version has the version of this module as the program was built with it.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:     "0.1.0", // of the kubelet's API; every runtime answers so
		RuntimeName: runtimeName, RuntimeVersion: buildVersion(), RuntimeApiVersion: "v1",
	}, nil
}

const module = "github.com/heraldnode/herald"

func buildVersion() string {
	const unknown = "v0.0.0"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, candidate := range append(info.Deps, &info.Main) {
		if candidate.Path == module && candidate.Version != "" && candidate.Version != "(devel)" {
			return candidate.Version
		}
	}
	return unknown
}

// Status is always ready: it needs nothing but the machine.
func (s *Server) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// UpdateRuntimeConfig takes the pods' address range and has no use for it: every pod has the machine's network.
func (s *Server) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// RuntimeConfig names the driver that needs nobody else: no cgroup is made.
func (s *Server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// UpdateContainerResources is refused: a process group has no limits that could be changed.
func (s *Server) UpdateContainerResources(
	_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return nil, status.Errorf(codes.InvalidArgument,
		"spec.containers[*].resources of container %q must not change: %s (CRI field linux)", request.GetContainerId(), whyNoLimits)
}

// ReopenContainerLog makes a new file where the log was moved away; the shim goes on there with its next line.
func (s *Server) ReopenContainerLog(
	_ context.Context, request *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if s.isDown(c) {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.record.ID)
	}
	if c.record.LogPath == "" {
		return &runtimeapi.ReopenContainerLogResponse{}, nil
	}
	var file *os.File
	if file, err = createLog(c.record.LogPath); err == nil {
		err = file.Close()
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reopen log of container %q: %v", c.record.ID, err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
