package process

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer sends the stop signal to the container's process group, and SIGKILL after the grace period. If the caller
// goes away during the grace period, the container is not killed.
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
	if err := s.stopContainer(ctx, c, seconds(request.GetTimeout())); err != nil {
		return nil, err
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// seconds converts to a time.Duration, clamped to avoid overflow.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}

// stopContainer returns when the container is not running and will not be running again.
func (s *Server) stopContainer(ctx context.Context, c *container, gracePeriod time.Duration) error {
	if err := s.waitUntil(ctx, c, c.isSettledLocked); err != nil {
		return err
	}
	if !s.isRunning(c) {
		return nil
	}
	if gracePeriod > 0 {
		if err := s.signalContainer(c, stopSignal(c.config.GetStopSignal())); err != nil {
			return err
		}
		graceCtx, cancel := context.WithTimeout(ctx, gracePeriod)
		defer cancel()
		err := s.waitUntil(graceCtx, c, c.hasExitedLocked)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := s.signalContainer(c, syscall.SIGKILL); err != nil {
		return err
	}
	return s.waitUntil(ctx, c, c.hasExitedLocked)
}

// signalContainer signals the container's process group while its main process exists. The group's ID is the PID of the
// main process, which is not reused until the shim has reaped it.
func (s *Server) signalContainer(c *container, signal syscall.Signal) error {
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

// The range of real-time signals that the C library leaves to programs.
const firstRealTimeSignal, lastRealTimeSignal = 34, 64

// stopSignal returns the signal of that name. It defaults to SIGTERM.
func stopSignal(signal runtimeapi.Signal) syscall.Signal {
	name := signal.String()
	if offset, found := strings.CutPrefix(name, "SIGRTMINPLUS"); found {
		n, _ := strconv.Atoi(offset)
		return syscall.Signal(firstRealTimeSignal + n)
	}
	if offset, found := strings.CutPrefix(name, "SIGRTMAXMINUS"); found {
		n, _ := strconv.Atoi(offset)
		return syscall.Signal(lastRealTimeSignal - n)
	}
	switch name {
	case "SIGRTMIN":
		return firstRealTimeSignal
	case "SIGRTMAX":
		return lastRealTimeSignal
	}
	if number := unix.SignalNum(name); number != 0 {
		return number
	}
	return syscall.SIGTERM
}

// RemoveContainer kills the container if necessary and removes it. The log belongs to the caller and is kept.
func (s *Server) RemoveContainer(
	ctx context.Context, request *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if err == nil {
		err = s.removeContainer(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *Server) removeContainer(ctx context.Context, c *container) error {
	for {
		if err := s.stopContainer(ctx, c, 0); err != nil {
			return err
		}
		if err := s.waitUntil(ctx, c, func() bool { return c.operation != removing || c.removed }); err != nil {
			return err
		}
		removed, begun := s.beginRemoval(c)
		if removed {
			return nil
		}
		if begun {
			break
		}
	}
	if err := removeDir(s.containerDir(c.record.ID), containerFile); err != nil {
		s.abortOperation(c)
		return status.Errorf(codes.Internal, "remove container %q: %v", c.record.ID, err)
	}
	s.deleteContainer(c)
	s.sendEvent(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// beginRemoval reports whether another call has removed the container, and else whether this call may remove it.
func (s *Server) beginRemoval(c *container) (removed, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.removed {
		return true, false
	}
	if c.operation != noOperation || c.stateLocked() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return false, false
	}
	c.operation = removing
	return false, true
}

func (s *Server) deleteContainer(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.removed = true
	delete(s.containers, c.record.ID)
	if sb := s.sandboxes[c.record.Sandbox]; sb != nil {
		sb.removedCPU += c.cpu.total
	}
	s.releaseNameLocked(c.name, c.record.ID)
	c.notifyLocked()
}

// killWithTimeout kills processes until none is found or the timeout expires: processes of other users cannot be killed.
func (s *Server) killWithTimeout(timeout time.Duration, env string, started *startedRecord) {
	deadline := time.Now().Add(timeout)
	for pause := minRetryInterval; s.killProcesses(env, started) && time.Now().Before(deadline); pause = min(2*pause, maxRetryInterval) {
		time.Sleep(pause)
	}
}

// killProcesses kills all processes with an environment variable, given as NAME=VALUE, and the process group of a started
// container. It reports whether any of them may have been alive.
func (s *Server) killProcesses(env string, started *startedRecord) bool {
	foundByEnv, err := killByEnv(env)
	foundGroup, groupErr := killGroup(started)
	if err = errors.Join(err, groupErr); err != nil {
		s.config.Logger.Error("Failed to look for processes of a container", slog.Any("err", err))
	}
	return foundByEnv || foundGroup || err != nil
}

// killGroup kills the process group of the container's main process and reports whether that process was alive.
func killGroup(started *startedRecord) (found bool, err error) {
	if started == nil {
		return false, nil
	}
	if found, err = started.Main.exists(); !found || err != nil {
		return false, err
	}
	_ = syscall.Kill(-started.Main.PID, syscall.SIGKILL) // fails if it has just exited
	stat, err := readStat(started.Main.PID)
	return err == nil && !hasExited(stat), ignoreMissing(err)
}

// killByEnv kills every process with that environment variable and reports whether there was one. A random ID in the
// environment identifies a process even if its PID is reused.
func killByEnv(env string) (found bool, err error) {
	stats, err := listProcesses()
	for _, stat := range stats {
		if hasExited(stat) {
			continue
		}
		has, envErr := hasEnv(stat.PID, env)
		err = errors.Join(err, envErr)
		if has && killPID(stat.PID, env) {
			found = true
		}
	}
	return found, err
}

// killPID kills a process if it has the environment variable. It checks that while it holds a handle of the process, so
// the PID cannot be another process's by then.
func killPID(pid int, env string) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	has, err := hasEnv(pid, env)
	if has {
		_ = process.Kill() // fails if it has exited or belongs to another user
	}
	_ = process.Release()
	return has || err != nil
}
