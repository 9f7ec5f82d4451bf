package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox puts a sandbox on record. There is nothing to run: its network is the machine's.
func (s *Server) RunPodSandbox(
	_ context.Context, request *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	config := request.GetConfig()
	if pod := config.GetMetadata(); pod.GetName() == "" || pod.GetNamespace() == "" || pod.GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "config.metadata needs name, namespace and uid")
	}
	if err := s.facts.refuseSandbox(request); err != nil {
		return nil, err
	}
	encoded, err := encodeConfig(config)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "pod sandbox %q: encode its config: %v", sandboxName(config), err)
	}
	made := &sandbox{id: newID(), created: time.Now(), config: config, encoded: encoded, name: sandboxName(config)}
	if err := s.reserve(made.name, made.id); err != nil {
		return nil, err
	}
	if err := s.makeSandbox(made); err != nil {
		s.release(made.name, made.id)
		return nil, status.Errorf(codes.Internal, "run pod sandbox %q: %v", made.name, err)
	}
	s.tell(made.id, made.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	s.tell(made.id, made.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: made.id}, nil
}

func (s *Server) makeSandbox(made *sandbox) error {
	folder := s.sandboxFolder(made.id)
	err := os.Mkdir(folder, 0o700)
	if err == nil {
		err = writeRecord(filepath.Join(folder, sandboxFile), made.record(false))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[made.id] = made
	return nil
}

// StopPodSandbox kills what runs in the sandbox; nothing can be started in it any more.
func (s *Server) StopPodSandbox(
	ctx context.Context, request *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	box, err := s.findSandbox(request.GetPodSandboxId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	if err == nil {
		err = s.stopSandbox(ctx, box)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Server) stopSandbox(ctx context.Context, box *sandbox) error {
	first, err := s.markStopped(box)
	if err != nil {
		return status.Errorf(codes.Internal, "stop pod sandbox %q: %v", box.id, err)
	}
	for _, c := range s.containersOf(box.id) {
		if err := s.stop(ctx, c, 0); err != nil {
			return err
		}
	}
	if first {
		s.tell(box.id, box.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// markStopped reports whether this call was the one that did it.
func (s *Server) markStopped(box *sandbox) (bool, error) {
	s.mu.Lock()
	stopped := box.stopped
	s.mu.Unlock()
	if stopped {
		return false, nil
	}
	if err := writeRecord(filepath.Join(s.sandboxFolder(box.id), sandboxFile), box.record(true)); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !box.stopped
	box.stopped = true
	return first, nil
}

func (s *Server) containersOf(sandbox string) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*container
	for _, c := range s.containers {
		if c.record.Sandbox == sandbox {
			found = append(found, c)
		}
	}
	return found
}

// RemovePodSandbox stops the sandbox if need be, and forgets it with its containers.
func (s *Server) RemovePodSandbox(
	ctx context.Context, request *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	box, err := s.findSandbox(request.GetPodSandboxId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if err == nil {
		err = s.removeSandbox(ctx, box)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *Server) removeSandbox(ctx context.Context, box *sandbox) error {
	if err := s.stopSandbox(ctx, box); err != nil {
		return err
	}
	id := box.id
	for _, c := range s.containersOf(id) {
		if err := s.remove(ctx, c); err != nil {
			return err
		}
	}
	folder := s.sandboxFolder(id)
	if err := removeFolder(folder, filepath.Join(folder, sandboxFile)); err != nil {
		return status.Errorf(codes.Internal, "remove pod sandbox %q: %v", id, err)
	}
	s.tell(id, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, id)
	s.releaseLocked(box.name, id)
	return nil
}
