package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a pod sandbox: a record that containers belong to. Only stopped, to true, and removedCPU change, guarded by Server.mu.
type sandbox struct {
	id      string
	created time.Time
	config  *runtimeapi.PodSandboxConfig
	encoded encodedConfig // config
	name    string
	stopped bool
	ended   chan struct{} // closed when it is stopped
	// removedCPU is the CPU time of containers that were removed.
	removedCPU time.Duration
}

func (sb *sandbox) record(stopped bool) *sandboxRecord {
	return &sandboxRecord{ID: sb.id, Created: sb.created, Stopped: stopped, Config: sb.encoded}
}

func (sb *sandbox) statusLocked() *runtimeapi.PodSandboxStatus {
	state := runtimeapi.PodSandboxState_SANDBOX_READY
	if sb.stopped {
		state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &runtimeapi.PodSandboxStatus{
		Id: sb.id, Metadata: sb.config.GetMetadata(), State: state, CreatedAt: sb.created.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
		Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(),
	}
}

// sandboxName is unique while the sandbox exists.
func sandboxName(config *runtimeapi.PodSandboxConfig) string {
	pod := config.GetMetadata()
	return joinName(pod.GetName(), pod.GetNamespace(), pod.GetUid(), fmt.Sprint(pod.GetAttempt()))
}

// joinName is unambiguous: no part contains an underscore, and sandbox names have fewer parts than container names.
func joinName(parts ...string) string { return strings.Join(parts, "_") }

// reserveName reserves a name for an ID. The error has containerd's wording: after a lost response, the caller finds the
// ID of what it created in it (F22).
func (s *Server) reserveName(name, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, taken := s.names[name]; taken {
		return status.Errorf(codes.AlreadyExists, "name %q is reserved for %q", name, owner)
	}
	s.names[name] = id
	return nil
}

func (s *Server) releaseName(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseNameLocked(name, id)
}

func (s *Server) releaseNameLocked(name, id string) {
	if s.names[name] == id {
		delete(s.names, name)
	}
}

// RunPodSandbox records a sandbox. Nothing is started: the sandbox uses the host network.
func (s *Server) RunPodSandbox(
	_ context.Context, request *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	config := request.GetConfig()
	if pod := config.GetMetadata(); pod.GetName() == "" || pod.GetNamespace() == "" || pod.GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "config.metadata: name, namespace and uid are required")
	}
	if err := s.host.checkSandbox(request); err != nil {
		return nil, err
	}
	encoded, err := encodeConfig(config)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "pod sandbox %q: encode config: %v", sandboxName(config), err)
	}
	sb := &sandbox{
		id: newID(), created: time.Now(), config: config, encoded: encoded, name: sandboxName(config), ended: make(chan struct{}),
	}
	if err := s.reserveName(sb.name, sb.id); err != nil {
		return nil, err
	}
	if err := s.addSandbox(sb); err != nil {
		s.releaseName(sb.name, sb.id)
		return nil, status.Errorf(codes.Internal, "run pod sandbox %q: %v", sb.name, err)
	}
	s.sendEvent(sb.id, sb.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	s.sendEvent(sb.id, sb.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

func (s *Server) addSandbox(sb *sandbox) error {
	dir := s.sandboxDir(sb.id)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = writeRecord(filepath.Join(dir, sandboxFile), sb.record(false))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[sb.id] = sb
	return nil
}

func (s *Server) findSandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb := s.sandboxes[id]; sb != nil {
		return sb, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod sandbox %q: not found", id)
}

// StopPodSandbox kills the sandbox's containers. No container can be started in it any more.
func (s *Server) StopPodSandbox(
	ctx context.Context, request *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	sb, err := s.findSandbox(request.GetPodSandboxId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	if err == nil {
		err = s.stopSandbox(ctx, sb)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Server) stopSandbox(ctx context.Context, sb *sandbox) error {
	changed, err := s.markStopped(sb)
	if err != nil {
		return status.Errorf(codes.Internal, "stop pod sandbox %q: %v", sb.id, err)
	}
	for _, c := range s.sandboxContainers(sb.id) {
		if err := s.stopContainer(ctx, c, 0); err != nil {
			return err
		}
	}
	if changed {
		s.sendEvent(sb.id, sb.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// markStopped reports whether this call stopped the sandbox.
func (s *Server) markStopped(sb *sandbox) (changed bool, err error) {
	s.mu.Lock()
	stopped := sb.stopped
	s.mu.Unlock()
	if stopped {
		return false, nil
	}
	if err := writeRecord(filepath.Join(s.sandboxDir(sb.id), sandboxFile), sb.record(true)); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !sb.stopped
	sb.stopped = true
	if changed {
		close(sb.ended)
	}
	return changed, nil
}

func (s *Server) sandboxContainers(sandboxID string) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var containers []*container
	for _, c := range s.containers {
		if c.record.Sandbox == sandboxID {
			containers = append(containers, c)
		}
	}
	return containers
}

// RemovePodSandbox stops the sandbox if necessary and removes it with its containers.
func (s *Server) RemovePodSandbox(
	ctx context.Context, request *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	sb, err := s.findSandbox(request.GetPodSandboxId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if err == nil {
		err = s.removeSandbox(ctx, sb)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *Server) removeSandbox(ctx context.Context, sb *sandbox) error {
	if err := s.stopSandbox(ctx, sb); err != nil {
		return err
	}
	for _, c := range s.sandboxContainers(sb.id) {
		if err := s.removeContainer(ctx, c); err != nil {
			return err
		}
	}
	if err := removeDir(s.sandboxDir(sb.id), sandboxFile); err != nil {
		return status.Errorf(codes.Internal, "remove pod sandbox %q: %v", sb.id, err)
	}
	s.sendEvent(sb.id, sb.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, sb.id)
	s.releaseNameLocked(sb.name, sb.id)
	return nil
}

// ListPodSandbox lists sandboxes by creation time.
func (s *Server) ListPodSandbox(
	_ context.Context, request *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := request.GetFilter()
	response := &runtimeapi.ListPodSandboxResponse{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		full := sb.statusLocked()
		if !matchesID(filter.GetId(), full.GetId()) || !hasLabels(full.GetLabels(), filter.GetLabelSelector()) ||
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

// matchesID reports whether an ID matches a filter. An empty filter matches all.
func matchesID(filter, id string) bool { return filter == "" || filter == id }

func hasLabels(labels, selector map[string]string) bool {
	for name, want := range selector {
		if value, found := labels[name]; !found || value != want {
			return false
		}
	}
	return true
}

// PodSandboxStatus reports no addresses: pods use the host's.
func (s *Server) PodSandboxStatus(
	_ context.Context, request *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	sandboxStatus, containerStatuses := s.podStatus(request.GetPodSandboxId())
	if sandboxStatus == nil {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %q: not found", request.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: sandboxStatus, ContainersStatuses: containerStatuses, Timestamp: time.Now().UnixNano(),
	}, nil
}

// podStatus returns the status of a sandbox and its containers, or nil if the sandbox does not exist.
func (s *Server) podStatus(sandboxID string) (*runtimeapi.PodSandboxStatus, []*runtimeapi.ContainerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxes[sandboxID]
	if sb == nil {
		return nil, nil
	}
	var containers []*runtimeapi.ContainerStatus
	for _, c := range s.containers {
		if c.record.Sandbox == sandboxID {
			containers = append(containers, c.statusLocked())
		}
	}
	slices.SortFunc(containers, func(a, b *runtimeapi.ContainerStatus) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return sb.statusLocked(), containers
}
