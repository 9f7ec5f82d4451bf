package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// newID is as long as containerd's.
func newID() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// CreateContainer puts the container on record; nothing runs before StartContainer.
func (s *Server) CreateContainer(
	_ context.Context, request *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	box, err := s.findSandbox(request.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	config := request.GetConfig()
	if config.GetMetadata().GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "config.metadata.name is empty")
	}
	if err := s.facts.refuseContainer(config); err != nil {
		return nil, err
	}
	made := &container{
		record: &containerRecord{ID: newID(), Sandbox: box.id, Created: time.Now(), LogPath: logPath(box.config, config)},
		config: config, name: containerName(box.config, config), changed: make(chan struct{}),
	}
	if made.record.Config, err = encodeConfig(config); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "container %q: encode its config: %v", made.name, err)
	}
	if err := s.reserve(made.name, made.record.ID); err != nil {
		return nil, err
	}
	if err := s.makeContainer(made); err != nil {
		s.release(made.name, made.record.ID)
		return nil, status.Errorf(codes.Internal, "create container %q: %v", made.name, err)
	}
	s.tell(made.record.ID, made.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: made.record.ID}, nil
}

// makeContainer writes container.json last: before that there is no container.
func (s *Server) makeContainer(made *container) error {
	folder := s.containerFolder(made.record.ID)
	err := os.Mkdir(folder, 0o700)
	if err == nil {
		err = linkMounts(filepath.Join(folder, rootFolder), made.config.GetMounts())
	}
	if err == nil {
		err = writeRecord(filepath.Join(folder, containerFile), made.record)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	if s.adopt(made) {
		return nil
	}
	err = errors.New("its pod sandbox is stopped or was removed")
	return errors.Join(err, removeFolder(folder, filepath.Join(folder, containerFile)))
}

// adopt makes the container known, unless its sandbox went away while the files were written.
func (s *Server) adopt(made *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if box := s.sandboxes[made.record.Sandbox]; box == nil || box.stopped {
		return false
	}
	s.containers[made.record.ID] = made
	return true
}

// containerName is unique while the container exists, as in containerd.
func containerName(box *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) string {
	pod := box.GetMetadata()
	return joinName(config.GetMetadata().GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(),
		fmt.Sprint(config.GetMetadata().GetAttempt()))
}

func sandboxName(box *runtimeapi.PodSandboxConfig) string {
	pod := box.GetMetadata()
	return joinName(pod.GetName(), pod.GetNamespace(), pod.GetUid(), fmt.Sprint(pod.GetAttempt()))
}

// joinName cannot mix two up: no part has an underscore, and sandboxes' names have fewer parts.
func joinName(parts ...string) string { return strings.Join(parts, "_") }

func logPath(box *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) string {
	if box.GetLogDirectory() == "" || config.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(box.GetLogDirectory(), config.GetLogPath())
}
