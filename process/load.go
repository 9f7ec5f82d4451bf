package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
)

// load takes up what the servers before this one left. A folder without its record was being made or removed, and goes. One
// that cannot be taken up is put aside: it takes no other with it (F18).
func (s *Server) load() error {
	err := s.eachFolder(s.sandboxFolder(""), sandboxFile, s.loadSandbox)
	return errors.Join(err, s.eachFolder(s.containerFolder(""), containerFile, s.loadContainer))
}

func (s *Server) eachFolder(parent, file string, load func(record string) error) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		folder := filepath.Join(parent, entry.Name())
		err := load(filepath.Join(folder, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = os.RemoveAll(folder)
		case errors.Is(err, errCorrupt):
			s.config.Logger.Error("A folder is put aside", slog.String("folder", folder), slog.Any("error", err))
			err = s.putAside(folder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putAside keeps a folder for whoever wants to know what became of it. It is not removed, because a shim may still write to
// it; moved, it is out of that shim's reach.
func (s *Server) putAside(folder string) error {
	aside := filepath.Join(s.config.Root, "corrupt")
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	return os.Rename(folder, filepath.Join(aside, filepath.Base(folder)))
}

func (s *Server) loadSandbox(file string) error {
	record, err := readRecord[sandboxRecord](file)
	if err != nil {
		return err
	}
	config, err := record.config()
	if err != nil {
		return err
	}
	found := &sandbox{
		id: record.ID, created: record.Created, config: config, encoded: record.Config,
		name: sandboxName(config), stopped: record.Stopped,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[record.ID] = found
	s.names[found.name] = record.ID
	return nil
}

// loadContainer ends what runs of a container that it cannot take up.
func (s *Server) loadContainer(file string) error {
	folder := filepath.Dir(file)
	started, err := readRecord[startedRecord](filepath.Join(folder, startedFile))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.takeUp(file, started)
	}
	if errors.Is(err, errCorrupt) {
		s.killWithin(drainTime, containerVariable+"="+filepath.Base(folder), started)
	}
	return err
}

// takeUp fails with errCorrupt too for a container whose sandbox was put aside, or was removed while it was being made.
func (s *Server) takeUp(file string, started *startedRecord) error {
	record, err := readRecord[containerRecord](file)
	if err != nil {
		return err
	}
	config, err := record.config()
	if err != nil {
		return err
	}
	box, err := s.findSandbox(record.Sandbox)
	if err != nil {
		return fmt.Errorf("load container %q: %w: %w", record.ID, errCorrupt, err)
	}
	found := &container{
		record: record, config: config, name: containerName(box.config, config), changed: make(chan struct{}), started: started,
	}
	if found.exit, err = readShims[exitRecord](s, found, exitFile); err != nil {
		return err
	}
	s.mu.Lock()
	s.containers[record.ID] = found
	s.names[found.name] = record.ID
	s.mu.Unlock()
	if found.exit != nil {
		return nil
	}
	return s.resume(found)
}

// resume goes on watching a container whose start was tried and whose end is not known. If its shim has ended, the first
// read says so.
func (s *Server) resume(c *container) error {
	alive, err := openAlive(filepath.Join(s.containerFolder(c.record.ID), aliveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	if c.started == nil {
		c.claim = starting
	}
	s.mu.Unlock()
	s.config.Logger.Info("Container found again", slog.String("container", c.record.ID), slog.String("name", c.name))
	s.watches.Go(func() {
		if s.watch(c, alive) {
			s.reapFormer(c)
		}
	})
	return nil
}

// reapFormer waits for the shim of a server that ran before this one in the same program. Of any other, the machine's first
// process is the parent by now.
func (s *Server) reapFormer(c *container) {
	s.mu.Lock()
	started := c.started
	s.mu.Unlock()
	if started == nil {
		return
	}
	if exists, _ := started.Shim.exists(); exists {
		_, _ = syscall.Wait4(started.Shim.PID, nil, 0, nil) // it is no child
	}
}
