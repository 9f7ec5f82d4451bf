package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is a container of a sandbox. record, config and name never change; Server.mu guards the rest.
type container struct {
	record *containerRecord
	config *runtimeapi.ContainerConfig
	name   string

	operation operation
	started   *startedRecord
	exit      *exitRecord
	changed   chan struct{} // closed and replaced at each change
	cpu       cpuTime
	removed   bool
}

// operation is the exclusive operation that is in progress on a container.
type operation int

const (
	noOperation operation = iota
	starting
	removing
)

func (c *container) stateLocked() runtimeapi.ContainerState {
	switch {
	case c.exit != nil:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case c.started != nil:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	}
}

// isSettledLocked reports whether no start is in progress. A container that is being started must not be reported as
// merely created: an agent whose predecessor requested the start and was killed would start a second one.
func (c *container) isSettledLocked() bool { return c.operation != starting }

func (c *container) hasExitedLocked() bool { return c.exit != nil }

func (c *container) notifyLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// statusLocked leaves the image reference empty: the host image has no digest.
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

// newID returns a random ID of the length of containerd's.
func newID() string {
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// containerName is unique while the container exists, as in containerd.
func containerName(sandboxConfig *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) string {
	pod := sandboxConfig.GetMetadata()
	return joinName(config.GetMetadata().GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(),
		fmt.Sprint(config.GetMetadata().GetAttempt()))
}

func logPath(sandboxConfig *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) string {
	if sandboxConfig.GetLogDirectory() == "" || config.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(sandboxConfig.GetLogDirectory(), config.GetLogPath())
}

// CreateContainer records a container. Nothing runs before StartContainer.
func (s *Server) CreateContainer(
	_ context.Context, request *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	sb, err := s.findSandbox(request.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	config := request.GetConfig()
	if config.GetMetadata().GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "config.metadata: name is required")
	}
	if err := s.host.checkContainer(config); err != nil {
		return nil, err
	}
	c := &container{
		record: &containerRecord{ID: newID(), Sandbox: sb.id, Created: time.Now(), LogPath: logPath(sb.config, config)},
		config: config, name: containerName(sb.config, config), changed: make(chan struct{}),
	}
	if c.record.Config, err = encodeConfig(config); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "container %q: encode config: %v", c.name, err)
	}
	if err := s.reserveName(c.name, c.record.ID); err != nil {
		return nil, err
	}
	if err := s.addContainer(c); err != nil {
		s.releaseName(c.name, c.record.ID)
		return nil, status.Errorf(codes.Internal, "create container %q: %v", c.name, err)
	}
	s.sendEvent(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.record.ID}, nil
}

var errSandboxGone = errors.New("pod sandbox was stopped or removed")

// addContainer writes container.json last: the container exists from then on. It fails if the sandbox is stopped or
// removed while the files are written.
func (s *Server) addContainer(c *container) error {
	dir := s.containerDir(c.record.ID)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = linkMounts(filepath.Join(dir, rootDir), c.config.GetMounts())
	}
	if err == nil {
		err = writeRecord(filepath.Join(dir, containerFile), c.record)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if !s.publishContainer(c) {
		return errors.Join(errSandboxGone, removeDir(dir, containerFile))
	}
	return nil
}

// publishContainer reports false if the sandbox does not accept containers any more.
func (s *Server) publishContainer(c *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb := s.sandboxes[c.record.Sandbox]; sb == nil || sb.stopped {
		return false
	}
	s.containers[c.record.ID] = c
	return true
}

func (s *Server) findContainer(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q: not found", id)
}

func (s *Server) isRunning(c *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.stateLocked() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// waitUntil waits until the condition holds. It calls conditionLocked with Server.mu held.
func (s *Server) waitUntil(ctx context.Context, c *container, conditionLocked func() bool) error {
	for {
		s.mu.Lock()
		changed, done := c.changed, conditionLocked()
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-s.stopped:
			return status.Error(codes.Unavailable, "the runtime is stopping")
		case <-ctx.Done():
			return status.FromContextError(fmt.Errorf("container %q: %w", c.record.ID, ctx.Err())).Err()
		}
	}
}

// ListContainers lists containers by creation time.
func (s *Server) ListContainers(
	_ context.Context, request *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	filter := request.GetFilter()
	response := &runtimeapi.ListContainersResponse{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		state := c.stateLocked()
		if !matchesID(filter.GetId(), c.record.ID) || !matchesID(filter.GetPodSandboxId(), c.record.Sandbox) ||
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

// verboseInfo is the JSON below "info" in a verbose status.
type verboseInfo struct {
	PID     int    `json:"pid,omitempty"`
	ShimPID int    `json:"shimPID,omitempty"`
	Root    string `json:"root"`
}

// ContainerStatus waits for a start that is in progress. The verbose form includes the PID, as in containerd.
func (s *Server) ContainerStatus(
	ctx context.Context, request *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.waitUntil(ctx, c, c.isSettledLocked); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &runtimeapi.ContainerStatusResponse{Status: c.statusLocked()}
	if request.GetVerbose() {
		info := verboseInfo{Root: filepath.Join(s.containerDir(c.record.ID), rootDir)}
		if c.started != nil {
			info.PID, info.ShimPID = c.started.Main.PID, c.started.Shim.PID
		}
		text, err := json.Marshal(info)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "container %q: encode verbose status: %v", c.record.ID, err)
		}
		response.Info = map[string]string{"info": string(text)}
	}
	return response, nil
}

// ReopenContainerLog creates the log file after a rotation. The shim writes its next line there.
func (s *Server) ReopenContainerLog(
	_ context.Context, request *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !s.isRunning(c) {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.record.ID)
	}
	if c.record.LogPath == "" {
		return &runtimeapi.ReopenContainerLogResponse{}, nil
	}
	var file *os.File
	if file, err = openLogFile(c.record.LogPath); err == nil {
		err = file.Close()
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reopen log of container %q: %v", c.record.ID, err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
