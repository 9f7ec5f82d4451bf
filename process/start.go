package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer starts the container once. A container that cannot be started counts as exited, with code 128 and reason
// StartError.
func (s *Server) StartContainer(
	ctx context.Context, request *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	c, err := s.findContainer(request.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.beginStart(c); err != nil {
		return nil, err
	}
	if err := s.startShim(c); err != nil {
		s.abortOperation(c)
		return nil, status.Errorf(codes.Internal, "start container %q: %v", c.record.ID, err)
	}
	if err := s.waitUntil(ctx, c, c.isSettledLocked); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.started == nil && c.exit != nil {
		return nil, status.Errorf(codes.Unknown, "start container %q: %s: %s", c.record.ID, c.exit.Reason, c.exit.Message)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *Server) beginStart(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := c.stateLocked()
	switch {
	case c.operation != noOperation:
		return status.Errorf(codes.FailedPrecondition, "container %q is being started or removed", c.record.ID)
	case state != runtimeapi.ContainerState_CONTAINER_CREATED:
		return status.Errorf(codes.FailedPrecondition, "container %q cannot be started in state %s", c.record.ID, state)
	}
	if sb := s.sandboxes[c.record.Sandbox]; sb == nil || sb.stopped {
		return status.Errorf(codes.FailedPrecondition, "pod sandbox %q of container %q is stopped", c.record.Sandbox, c.record.ID)
	}
	c.operation = starting
	return nil
}

func (s *Server) abortOperation(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.operation = noOperation
	c.notifyLocked()
}

// startShim starts and monitors the container's shim. The shim holds a FIFO open from its start, which shows whether it
// lives without relying on PIDs. The existence of the FIFO shows that a start was attempted.
func (s *Server) startShim(c *container) error {
	dir := s.containerDir(c.record.ID)
	fifo := filepath.Join(dir, aliveFile)
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return fmt.Errorf("create %s: %w", fifo, err)
	}
	pid, alive, err := s.spawnShim(dir, fifo)
	if err != nil {
		return errors.Join(err, os.Remove(fifo))
	}
	s.monitors.Go(func() {
		if s.monitor(c, alive) {
			_, _ = syscall.Wait4(pid, nil, 0, nil) // reaps the shim
		}
	})
	return nil
}

func (s *Server) spawnShim(dir, fifo string) (pid int, alive *os.File, err error) {
	// Read-write, so that the shim never writes to a FIFO without a reader.
	shimEnd, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer shimEnd.Close()
	alive, err = openAlive(fifo)
	if err != nil {
		return 0, nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, shimLogFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, nil, errors.Join(err, alive.Close())
	}
	defer log.Close()
	pid, err = s.spawn(containerRole, dir, []*os.File{nil, log, log, shimEnd})
	if err != nil {
		return 0, nil, errors.Join(err, alive.Close())
	}
	return pid, alive, nil
}

// openAlive opens the read end of the FIFO. It reads EOF when no shim holds the write end.
func openAlive(fifo string) (*os.File, error) {
	return os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// spawn executes the shim program in the given role, in its own session and without the agent's environment. files are
// its descriptors; nil is the null device. The caller must reap it.
func (s *Server) spawn(role, dir string, files []*os.File) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files = slices.Clone(files)
	for i, file := range files {
		if file == nil {
			files[i] = null
		}
	}
	argv := append(slices.Clone(s.config.Shim), role, dir)
	env := []string{"GOMAXPROCS=1"} // a shim mostly waits, and there may be hundreds
	if s.config.Slice != "" {
		env = append(env, sliceEnv+"="+s.config.Slice)
	}
	process, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Files: files, Sys: &syscall.SysProcAttr{Setsid: true}, Env: env,
	})
	if err != nil {
		return 0, fmt.Errorf("start shim: %w", err)
	}
	pid = process.Pid
	return pid, process.Release()
}

// monitor follows a container whose start was attempted until its shim exits. It reports false if the server stops first.
// It closes alive.
func (s *Server) monitor(c *container, alive *os.File) bool {
	done := make(chan struct{})
	defer close(done)
	s.monitors.Go(func() {
		select {
		case <-s.stopped:
		case <-done:
		}
		_ = alive.Close()
	})
	for buffer := make([]byte, 64); ; {
		_, err := alive.Read(buffer)
		switch {
		case err == nil:
			s.retry(func() bool { return s.readShimRecords(c) == nil }) // the shim notifies only once
		case errors.Is(err, fs.ErrClosed):
			return false
		default: // EOF, the only other error known of a FIFO
			s.handleShimExit(c)
			return true
		}
	}
}

// readShimRecords applies what the shim has written. It fails if a record cannot be read now.
func (s *Server) readShimRecords(c *container) error {
	started, err := readShimRecord[startedRecord](s, c, startedFile)
	exit, exitErr := readShimRecord[exitRecord](s, c, exitFile)
	s.applyRecords(c, started, exit)
	return errors.Join(err, exitErr)
}

// readShimRecord returns nil for a record that is missing or corrupt.
func readShimRecord[T any](s *Server, c *container, file string) (*T, error) {
	record, err := readRecord[T](filepath.Join(s.containerDir(c.record.ID), file))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	s.config.Logger.Error("Failed to read container record",
		slog.String("container", c.name), slog.String("containerID", c.record.ID), slog.Any("err", err))
	if errors.Is(err, errCorrupt) {
		return nil, nil
	}
	return nil, err
}

// applyRecords applies each record once and sends the events.
func (s *Server) applyRecords(c *container, started *startedRecord, exit *exitRecord) {
	s.mu.Lock()
	hasStarted := c.started == nil && started != nil
	hasExited := c.exit == nil && exit != nil
	if hasStarted {
		c.started = started
	}
	if hasExited {
		c.exit = exit
	}
	if hasStarted || hasExited {
		if c.operation == starting {
			c.operation = noOperation
		}
		c.notifyLocked()
	}
	s.mu.Unlock()
	if hasStarted {
		s.sendEvent(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	if hasExited {
		s.config.Logger.Info("Container exited", slog.String("container", c.name), slog.String("containerID", c.record.ID),
			slog.Int("exitCode", int(exit.Code)), slog.String("reason", exit.Reason))
		s.sendEvent(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// handleShimExit handles the exit of the shim. Without an exit record the shim was killed: the container's remaining
// processes are killed too, and that exit is recorded once (F26).
func (s *Server) handleShimExit(c *container) {
	started, orphaned := s.killOrphans(c)
	if !orphaned {
		return
	}
	exit := &exitRecord{
		Finished: time.Now(), Code: exitCodeKilled, Reason: exitReasonUnknown,
		Message: "the container's shim exited without recording an exit code; the container's remaining processes were killed",
	}
	if err := writeRecord(filepath.Join(s.containerDir(c.record.ID), exitFile), exit); err != nil {
		s.config.Logger.Error("Failed to write exit record",
			slog.String("container", c.name), slog.String("containerID", c.record.ID), slog.Any("err", err))
	}
	s.applyRecords(c, started, exit)
}

// killOrphans reads the records and kills the container's processes until there is an exit record or no process is left.
// It reports whether there is certainly no exit record. If the server stops before that is known, it reports false: the
// next server finds the same state.
func (s *Server) killOrphans(c *container) (started *startedRecord, orphaned bool) {
	finished := s.retry(func() bool {
		err := s.readShimRecords(c)
		s.mu.Lock()
		started, orphaned = c.started, c.exit == nil
		s.mu.Unlock()
		return !orphaned || err == nil && !s.killProcesses(containerIDEnv+"="+c.record.ID, started)
	})
	return started, finished && orphaned
}

// retry calls try with growing pauses until it reports true. It reports false if the server stops first.
func (s *Server) retry(try func() bool) bool {
	for pause := minRetryInterval; !try(); pause = min(2*pause, maxRetryInterval) {
		select {
		case <-s.stopped:
			return false
		case <-time.After(pause):
		}
	}
	return true
}
