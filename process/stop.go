package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer asks the container's process group to end, and kills it when the grace is over. A caller that goes away
// during the grace has asked, and not killed.
func (s *Server) StopContainer(
	ctx context.Context, request *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.stop(ctx, c, seconds(request.GetTimeout())); err != nil {
		return nil, err
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// seconds is that many, or as many as a time.Duration has room for.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}

// stop returns when the container is not running, and never was or never will be again.
func (s *Server) stop(ctx context.Context, c *container, grace time.Duration) error {
	if err := s.waitFor(ctx, c, c.isSettled); err != nil {
		return err
	}
	if s.isDown(c) {
		return nil
	}
	if grace > 0 {
		if err := s.signal(c, stopSignal(c.config.GetStopSignal())); err != nil {
			return err
		}
		patience, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		err := s.waitFor(patience, c, func() bool { return c.exit != nil })
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := s.signal(c, syscall.SIGKILL); err != nil {
		return err
	}
	return s.waitFor(ctx, c, func() bool { return c.exit != nil })
}

func (s *Server) isDown(c *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.stateLocked() != runtimeapi.ContainerState_CONTAINER_RUNNING
}

// signal sends to the container's group while its first process is there, whose PID is the group's: nobody else has that
// number as long as the shim has not waited for it.
func (s *Server) signal(c *container, signal syscall.Signal) error {
	s.mu.Lock()
	main := c.started.Main
	s.mu.Unlock()
	exists, err := main.exists()
	if exists {
		err = syscall.Kill(-main.PID, signal)
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return status.Errorf(codes.Internal, "send %v to container %q: %v", signal, c.record.ID, err)
	}
	return nil
}

// The kernel's range of real-time signals, as the C library leaves it to programs.
const firstRealTime, lastRealTime = 34, 64

// stopSignal is the signal of that name: SIGTERM unless the container names another.
func stopSignal(wanted runtimeapi.Signal) syscall.Signal {
	name := wanted.String()
	if offset, found := strings.CutPrefix(name, "SIGRTMINPLUS"); found {
		n, _ := strconv.Atoi(offset)
		return syscall.Signal(firstRealTime + n)
	}
	if offset, found := strings.CutPrefix(name, "SIGRTMAXMINUS"); found {
		n, _ := strconv.Atoi(offset)
		return syscall.Signal(lastRealTime - n)
	}
	switch name {
	case "SIGRTMIN":
		return firstRealTime
	case "SIGRTMAX":
		return lastRealTime
	}
	if number := unix.SignalNum(name); number != 0 {
		return number
	}
	return syscall.SIGTERM
}

// RemoveContainer kills the container if need be, and forgets it. Its log is the caller's.
func (s *Server) RemoveContainer(
	ctx context.Context, request *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if err == nil {
		err = s.remove(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *Server) remove(ctx context.Context, c *container) error {
	for {
		if err := s.stop(ctx, c, 0); err != nil {
			return err
		}
		if err := s.waitFor(ctx, c, func() bool { return c.claim != removing || c.removed }); err != nil {
			return err
		}
		gone, claimed := s.claimRemoval(c)
		if gone {
			return nil
		}
		if claimed {
			break
		}
	}
	folder := s.containerFolder(c.record.ID)
	if err := removeFolder(folder, filepath.Join(folder, containerFile)); err != nil {
		s.unclaim(c)
		return status.Error(codes.Internal, fmt.Sprintf("remove container %q: %v", c.record.ID, err))
	}
	s.forget(c)
	s.tell(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

func (s *Server) claimRemoval(c *container) (gone, claimed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.removed {
		return true, false
	}
	if c.claim != free || c.stateLocked() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return false, false
	}
	c.claim = removing
	return false, true
}

func (s *Server) forget(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.removed = true
	delete(s.containers, c.record.ID)
	s.releaseLocked(c.name, c.record.ID)
	c.changeLocked()
}
