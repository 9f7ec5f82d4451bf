package process

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watch looks after a container whose start was tried, until its shim has ended or, then it reports false, the server
// stops. It closes alive.
func (s *Server) watch(c *container, alive *os.File) bool {
	closing := make(chan struct{})
	defer close(closing)
	s.watches.Go(func() {
		select {
		case <-s.stopped:
		case <-closing:
		}
		_ = alive.Close()
	})
	for word := make([]byte, 64); ; {
		_, err := alive.Read(word)
		switch {
		case err == nil:
			s.look(c)
		case errors.Is(err, fs.ErrClosed):
			return false
		default: // the end of the file, and nothing else is known to happen to a FIFO
			s.shimEnded(c)
			return true
		}
	}
}

// look takes over what the shim has written down.
func (s *Server) look(c *container) { s.settle(c, s.readStarted(c), s.readExit(c)) }

// readStarted and readExit have nil for a record that is not there, or cannot be read: what follows from that happens when
// the shim ends.
func (s *Server) readStarted(c *container) *startedRecord {
	record, err := readRecord[startedRecord](filepath.Join(s.containerFolder(c.record.ID), startedFile))
	s.complain(c, err)
	return record
}

func (s *Server) readExit(c *container) *exitRecord {
	record, err := readRecord[exitRecord](filepath.Join(s.containerFolder(c.record.ID), exitFile))
	s.complain(c, err)
	return record
}

func (s *Server) complain(c *container, err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.config.Logger.Error("A container's record cannot be read", slog.String("container", c.record.ID), slog.Any("error", err))
	}
}

// settle takes over what the records say, once, and tells of it.
func (s *Server) settle(c *container, started *startedRecord, exit *exitRecord) {
	s.mu.Lock()
	begins := c.started == nil && started != nil
	ends := c.exit == nil && exit != nil
	if begins {
		c.started = started
	}
	if ends {
		c.exit = exit
	}
	if (begins || ends) && c.claim == starting {
		c.claim = free
	}
	if begins || ends {
		c.changeLocked()
	}
	s.mu.Unlock()
	if begins {
		s.tell(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	if ends {
		s.config.Logger.Info("Container ended", slog.String("container", c.record.ID), slog.String("name", c.name),
			slog.Int("exitCode", int(exit.Code)), slog.String("reason", exit.Reason))
		s.tell(c.record.ID, c.record.Sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// shimEnded is called when nobody supervises the container any more. Without an exit record the shim was killed: what it
// left running is killed too, and that end is put on record once (F26).
func (s *Server) shimEnded(c *container) {
	s.look(c)
	s.mu.Lock()
	started, ended := c.started, c.exit != nil
	s.mu.Unlock()
	if ended {
		return
	}
	if !s.killAbandoned(c.record.ID, started) {
		return
	}
	exit := &exitRecord{
		Finished: time.Now(), Code: codeKilled, Reason: reasonUnknown,
		Message: "the container's shim ended without saying how the container did; all that was found of it was killed",
	}
	if err := writeRecord(filepath.Join(s.containerFolder(c.record.ID), exitFile), exit); err != nil {
		s.config.Logger.Error("A container's end is not on record", slog.String("container", c.record.ID), slog.Any("error", err))
	}
	s.settle(c, started, exit)
}

// killAbandoned kills until nothing is found. It reports false when the server stops before that; the next one finds what
// this one did.
func (s *Server) killAbandoned(id string, started *startedRecord) bool {
	for pause := firstLookAgain; ; pause = min(2*pause, longestLookAgain) {
		marked := killMarked(containerVariable+"="+id, s.config.Logger)
		if !killGroup(started) && !marked {
			return true
		}
		select {
		case <-s.stopped:
			return false
		case <-time.After(pause):
		}
	}
}

// killGroup kills the container's first process with its group, and reports whether that process was alive.
func killGroup(started *startedRecord) bool {
	if started == nil || !started.Main.exists() {
		return false
	}
	_ = syscall.Kill(-started.Main.PID, syscall.SIGKILL) // it just ended
	main, err := readStat(started.Main.PID)
	return err == nil && !main.ended()
}

// killMarked kills every process with that variable, and reports whether there was one. A random ID in the environment is
// nobody else's, whatever PIDs were used again; the process is held by a handle between look and kill.
func killMarked(variable string, logger *slog.Logger) (found bool) {
	all, err := processes()
	if err != nil {
		logger.Error("Processes of a container cannot be looked for", slog.Any("error", err))
		return false
	}
	for _, one := range all {
		if one.ended() || !hasVariable(one.pid, variable) {
			continue
		}
		handle, err := os.FindProcess(one.pid)
		if err != nil {
			continue
		}
		if hasVariable(one.pid, variable) {
			found = true
			_ = handle.Kill() // it ended, or belongs to another user
		}
		_ = handle.Release()
	}
	return found
}
