package process

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox is in the order of creation.
func (s *Server) ListPodSandbox(
	_ context.Context, request *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := request.GetFilter()
	response := &runtimeapi.ListPodSandboxResponse{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, box := range s.sandboxes {
		full := box.statusLocked()
		if !matches(filter.GetId(), full.GetId()) || !hasLabels(full.GetLabels(), filter.GetLabelSelector()) ||
			filter.GetState() != nil && filter.GetState().GetState() != full.GetState() {
			continue
		}
		response.Items = append(response.Items, &runtimeapi.PodSandbox{
			Id: full.GetId(), Metadata: full.GetMetadata(), State: full.GetState(), CreatedAt: full.GetCreatedAt(),
			Labels: full.GetLabels(), Annotations: full.GetAnnotations(),
		})
	}
	slices.SortFunc(response.Items, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return response, nil
}

// ListContainers is in the order of creation.
func (s *Server) ListContainers(
	_ context.Context, request *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	filter := request.GetFilter()
	response := &runtimeapi.ListContainersResponse{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		state := c.stateLocked()
		if !matches(filter.GetId(), c.record.ID) || !matches(filter.GetPodSandboxId(), c.record.Sandbox) ||
			!hasLabels(c.config.GetLabels(), filter.GetLabelSelector()) ||
			filter.GetState() != nil && filter.GetState().GetState() != state {
			continue
		}
		response.Containers = append(response.Containers, &runtimeapi.Container{
			Id: c.record.ID, PodSandboxId: c.record.Sandbox, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			State: state, CreatedAt: c.record.Created.UnixNano(),
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	slices.SortFunc(response.Containers, func(a, b *runtimeapi.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return response, nil
}

func matches(wanted, have string) bool { return wanted == "" || wanted == have }

func hasLabels(have, wanted map[string]string) bool {
	for name, value := range wanted {
		if there, found := have[name]; !found || there != value {
			return false
		}
	}
	return true
}

// PodSandboxStatus has no addresses: the pod's are the machine's.
func (s *Server) PodSandboxStatus(
	_ context.Context, request *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	box, containers := s.describeSandbox(request.GetPodSandboxId())
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %q: not found", request.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: box, ContainersStatuses: containers, Timestamp: time.Now().UnixNano(),
	}, nil
}

// describeSandbox has nil for a sandbox that is not there.
func (s *Server) describeSandbox(id string) (*runtimeapi.PodSandboxStatus, []*runtimeapi.ContainerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	box := s.sandboxes[id]
	if box == nil {
		return nil, nil
	}
	var containers []*runtimeapi.ContainerStatus
	for _, c := range s.containers {
		if c.record.Sandbox == id {
			containers = append(containers, c.statusLocked())
		}
	}
	slices.SortFunc(containers, func(a, b *runtimeapi.ContainerStatus) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return box.statusLocked(), containers
}

func (b *sandbox) statusLocked() *runtimeapi.PodSandboxStatus {
	state := runtimeapi.PodSandboxState_SANDBOX_READY
	if b.stopped {
		state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &runtimeapi.PodSandboxStatus{
		Id: b.id, Metadata: b.config.GetMetadata(), State: state, CreatedAt: b.created.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: b.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
		Labels: b.config.GetLabels(), Annotations: b.config.GetAnnotations(),
	}
}

// ContainerStatus with verbose names, as containerd does, the PID in JSON under "info".
func (s *Server) ContainerStatus(
	ctx context.Context, request *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.waitFor(ctx, c, c.isSettled); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &runtimeapi.ContainerStatusResponse{Status: c.statusLocked()}
	if request.GetVerbose() {
		info := verboseInfo{Root: filepath.Join(s.containerFolder(c.record.ID), rootFolder)}
		if c.started != nil {
			info.PID, info.ShimPID = c.started.Main.PID, c.started.Shim.PID
		}
		text, err := json.Marshal(info)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "container %q: encode its details: %v", c.record.ID, err)
		}
		response.Info = map[string]string{"info": string(text)}
	}
	return response, nil
}

type verboseInfo struct {
	PID     int    `json:"pid,omitempty"`
	ShimPID int    `json:"shimPID,omitempty"`
	Root    string `json:"root"`
}

// statusLocked leaves the image's reference empty: the machine has no digest.
func (c *container) statusLocked() *runtimeapi.ContainerStatus {
	full := &runtimeapi.ContainerStatus{
		Id: c.record.ID, Metadata: c.config.GetMetadata(), State: c.stateLocked(), CreatedAt: c.record.Created.UnixNano(),
		Image: c.config.GetImage(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		Mounts: c.config.GetMounts(), LogPath: c.record.LogPath, StopSignal: c.config.GetStopSignal(),
	}
	if c.started != nil {
		full.StartedAt = c.started.Started.UnixNano()
	}
	if c.exit != nil {
		full.FinishedAt = c.exit.Finished.UnixNano()
		full.ExitCode, full.Reason, full.Message = c.exit.Code, c.exit.Reason, c.exit.Message
	}
	return full
}
