package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer starts the container once. One that cannot be started has ended, with code 128 and reason StartError.
func (s *Server) StartContainer(
	ctx context.Context, request *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.claimStart(c); err != nil {
		return nil, err
	}
	if err := s.spawnShim(c); err != nil {
		s.unclaim(c)
		return nil, status.Errorf(codes.Internal, "start container %q: %v", c.record.ID, err)
	}
	if err := s.waitFor(ctx, c, c.isSettled); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.started == nil && c.exit != nil {
		return nil, status.Errorf(codes.Unknown, "start container %q: %s: %s", c.record.ID, c.exit.Reason, c.exit.Message)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *Server) claimStart(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := c.stateLocked()
	switch {
	case c.claim != free:
		return status.Errorf(codes.FailedPrecondition, "container %q is being started or removed", c.record.ID)
	case state != runtimeapi.ContainerState_CONTAINER_CREATED:
		return status.Errorf(codes.FailedPrecondition, "container %q is in state %s, and is started only once", c.record.ID, state)
	}
	if box := s.sandboxes[c.record.Sandbox]; box == nil || box.stopped {
		return status.Errorf(codes.FailedPrecondition, "pod sandbox %q of container %q is stopped", c.record.Sandbox, c.record.ID)
	}
	c.claim = starting
	return nil
}

func (s *Server) unclaim(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.claim = free
	c.changeLocked()
}

// spawnShim starts the shim and a watch on it. The FIFO that the shim holds open from its birth says whether it lives,
// without PIDs; that the file exists says that a start was tried.
func (s *Server) spawnShim(c *container) error {
	folder := s.containerFolder(c.record.ID)
	file := filepath.Join(folder, aliveFile)
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		return fmt.Errorf("make %s: %w", file, err)
	}
	pid, alive, err := s.spawnHolding(folder, file)
	if err != nil {
		return errors.Join(err, os.Remove(file))
	}
	s.watches.Go(func() {
		if s.watch(c, alive) {
			_, _ = syscall.Wait4(pid, nil, 0, nil) // a child that nobody else waits for
		}
	})
	return nil
}

func (s *Server) spawnHolding(folder, file string) (pid int, alive *os.File, err error) {
	// Open for both directions, so that the shim never writes to a FIFO without reader.
	held, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer held.Close()
	alive, err = openAlive(file)
	if err != nil {
		return 0, nil, err
	}
	log, err := os.OpenFile(filepath.Join(folder, shimLogFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, nil, errors.Join(err, alive.Close())
	}
	defer log.Close()
	pid, err = s.spawn(shimWord, folder, []*os.File{log, log, held})
	if err != nil {
		return 0, nil, errors.Join(err, alive.Close())
	}
	return pid, alive, nil
}

// openAlive opens the reading end. Its end of file means that no shim holds the other.
func openAlive(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// spawn starts this program again in the given role, in a session of its own, without the agent's environment. It has the
// given files from standard output on. Whoever learns of its end waits for it.
func (s *Server) spawn(role, folder string, files []*os.File) (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	argv := append(slices.Clone(s.config.Shim), role, folder)
	child, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Files: append([]*os.File{null}, files...), Sys: &syscall.SysProcAttr{Setsid: true},
		Env: []string{"GOMAXPROCS=1"}, // a shim waits; a hundred of them should cost little
	})
	if err != nil {
		return 0, fmt.Errorf("start shim: %w", err)
	}
	pid = child.Pid
	return pid, child.Release()
}

// waitFor waits until the condition holds, which is asked under the lock.
func (s *Server) waitFor(ctx context.Context, c *container, holds func() bool) error {
	for {
		s.mu.Lock()
		changed, done := c.changed, holds()
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-s.stopped:
			return status.Error(codes.Unavailable, "the runtime stops")
		case <-ctx.Done():
			return status.FromContextError(fmt.Errorf("container %q: %w", c.record.ID, ctx.Err())).Err()
		}
	}
}
