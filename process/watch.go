package process

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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
			s.lookUntil(func() bool { return s.look(c) == nil }) // the shim says it once
		case errors.Is(err, fs.ErrClosed):
			return false
		default: // the end of the file, and nothing else is known to happen to a FIFO
			s.shimEnded(c)
			return true
		}
	}
}

// look takes over what the shim has written down. It fails when nobody knows what that is.
func (s *Server) look(c *container) error {
	started, err := readShims[startedRecord](s, c, startedFile)
	exit, exitErr := readShims[exitRecord](s, c, exitFile)
	s.settle(c, started, exit)
	return errors.Join(err, exitErr)
}

// readShims has nil for a record that the shim has not written, or that says nothing.
func readShims[T any](s *Server, c *container, file string) (*T, error) {
	record, err := readRecord[T](filepath.Join(s.containerFolder(c.record.ID), file))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	s.config.Logger.Error("A container's record cannot be read", slog.String("container", c.record.ID), slog.Any("error", err))
	if errors.Is(err, errCorrupt) {
		return nil, nil
	}
	return nil, err
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
	started, left := s.lastLook(c)
	if !left {
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

// lastLook looks and kills until there is an exit record, or nothing of the container is found and it is known that there
// is none: that it reports. Neither is so when the server stops before; the next one finds what this one did.
func (s *Server) lastLook(c *container) (started *startedRecord, left bool) {
	known := s.lookUntil(func() bool {
		unread := s.look(c)
		s.mu.Lock()
		started, left = c.started, c.exit == nil
		s.mu.Unlock()
		return !left || unread == nil && !s.killFound(containerVariable+"="+c.record.ID, started)
	})
	return started, known && left
}

// lookUntil does something until it is done, less often each time. It reports false when the server stops before that.
func (s *Server) lookUntil(done func() bool) bool {
	for pause := firstLookAgain; !done(); pause = min(2*pause, longestLookAgain) {
		select {
		case <-s.stopped:
			return false
		case <-time.After(pause):
		}
	}
	return true
}
