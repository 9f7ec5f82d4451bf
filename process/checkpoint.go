package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The files in the directory of a sandbox or container.
const (
	sandboxFile   = "sandbox.json"
	containerFile = "container.json"
	aliveFile     = "alive"
	attachFile    = "attach"
	startedFile   = "started.json"
	exitFile      = "exit.json"
	shimLogFile   = "shim.log"
	rootDir       = "root"
)

// sandboxRecord is the content of sandbox.json.
type sandboxRecord struct {
	ID      string        `json:"id"`
	Created time.Time     `json:"created"`
	Stopped bool          `json:"stopped"`
	Config  encodedConfig `json:"config"` // a PodSandboxConfig
}

// containerRecord is the content of container.json: everything that the shim needs.
type containerRecord struct {
	ID      string        `json:"id"`
	Sandbox string        `json:"sandbox"`
	Created time.Time     `json:"created"`
	Config  encodedConfig `json:"config"` // a ContainerConfig
	LogPath string        `json:"logPath,omitempty"`
}

// encodedConfig is a CRI message in protobuf encoding. JSON would lose bytes of variables that are not UTF-8.
type encodedConfig []byte

// startedRecord is the content of started.json.
type startedRecord struct {
	Started time.Time       `json:"started"`
	Main    processIdentity `json:"main"`
	Shim    processIdentity `json:"shim"`
}

// exitRecord is the content of exit.json.
type exitRecord struct {
	Finished time.Time `json:"finished"`
	Code     int32     `json:"code"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message,omitempty"`
}

// Reasons and exit codes of containerd.
const (
	exitReasonCompleted  = "Completed"
	exitReasonError      = "Error"
	exitReasonStartError = "StartError"
	exitReasonUnknown    = "Unknown"

	exitCodeStartError = 128
	exitCodeKilled     = 137
)

func encodeConfig(config proto.Message) (encodedConfig, error) {
	return proto.Marshal(config)
}

func (r *containerRecord) config() (*runtimeapi.ContainerConfig, error) {
	config := &runtimeapi.ContainerConfig{}
	return config, decodeConfig(r.Config, config)
}

func (r *sandboxRecord) config() (*runtimeapi.PodSandboxConfig, error) {
	config := &runtimeapi.PodSandboxConfig{}
	return config, decodeConfig(r.Config, config)
}

func decodeConfig(encoded encodedConfig, config proto.Message) error {
	if err := proto.Unmarshal(encoded, config); err != nil {
		return fmt.Errorf("decode config: %w: %w", errCorrupt, err)
	}
	return nil
}

// writeRecord replaces the file atomically and durably.
func writeRecord(file string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := replaceFile(file, data); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

func replaceFile(file string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return syncDir(filepath.Dir(file))
}

// syncDir ignores file systems that cannot sync a directory.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

// errCorrupt reports that a file does not contain what was written to it.
var errCorrupt = errors.New("corrupt")

// readRecord fails with fs.ErrNotExist if there is no such file, and with errCorrupt if it is not a record.
func readRecord[T any](file string) (*T, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	record := new(T)
	if err := json.Unmarshal(data, record); err != nil {
		return nil, fmt.Errorf("decode %s: %w: %w", file, errCorrupt, err)
	}
	return record, nil
}

// removeDir removes the directory of a sandbox or container, its record first: after a crash, the rest counts as garbage.
func removeDir(dir, recordFile string) error {
	if err := os.Remove(filepath.Join(dir, recordFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.RemoveAll(dir)
}

// load restores the state that earlier servers left. A directory without its record was being created or removed, and is
// deleted. A corrupt directory is moved away, so it does not affect the others (F18).
func (s *Server) load() error {
	err := s.loadDirs(s.sandboxDir(""), sandboxFile, s.loadSandbox)
	return errors.Join(err, s.loadDirs(s.containerDir(""), containerFile, s.loadContainer))
}

func (s *Server) loadDirs(parent, recordFile string, load func(file string) error) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		err := load(filepath.Join(dir, recordFile))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = os.RemoveAll(dir)
		case errors.Is(err, errCorrupt):
			s.config.Logger.Error("Failed to load directory, moving it to corrupt/", slog.String("dir", dir), slog.Any("err", err))
			err = s.quarantine(dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// quarantine keeps a directory for inspection. It is moved rather than removed because a shim may still write to it.
func (s *Server) quarantine(dir string) error {
	corrupt := filepath.Join(s.config.Root, "corrupt")
	if err := os.MkdirAll(corrupt, 0o700); err != nil {
		return err
	}
	return os.Rename(dir, filepath.Join(corrupt, filepath.Base(dir)))
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
	sb := &sandbox{
		id: record.ID, created: record.Created, config: config, encoded: record.Config,
		name: sandboxName(config), stopped: record.Stopped, ended: make(chan struct{}),
	}
	if sb.stopped {
		close(sb.ended)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[sb.id] = sb
	s.names[sb.name] = sb.id
	return nil
}

// loadContainer kills the processes of a container that cannot be restored.
func (s *Server) loadContainer(file string) error {
	dir := filepath.Dir(file)
	started, err := readRecord[startedRecord](filepath.Join(dir, startedFile))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.restoreContainer(file, started)
	}
	if errors.Is(err, errCorrupt) {
		s.killWithTimeout(drainTimeout, containerIDEnv+"="+filepath.Base(dir), started)
	}
	return err
}

// restoreContainer also fails with errCorrupt for a container whose sandbox was corrupt, or was removed while the
// container was created.
func (s *Server) restoreContainer(file string, started *startedRecord) error {
	record, err := readRecord[containerRecord](file)
	if err != nil {
		return err
	}
	config, err := record.config()
	if err != nil {
		return err
	}
	sb, err := s.findSandbox(record.Sandbox)
	if err != nil {
		return fmt.Errorf("load container %q: %w: %w", record.ID, errCorrupt, err)
	}
	c := &container{
		record: record, config: config, name: containerName(sb.config, config), changed: make(chan struct{}), started: started,
	}
	if c.exit, err = readShimRecord[exitRecord](s, c, exitFile); err != nil {
		return err
	}
	s.mu.Lock()
	s.containers[record.ID] = c
	s.names[c.name] = record.ID
	s.mu.Unlock()
	if c.exit != nil {
		return nil
	}
	return s.resumeMonitor(c)
}

// resumeMonitor monitors a container whose start was attempted and which has no exit record. If its shim has exited, the
// first read returns EOF.
func (s *Server) resumeMonitor(c *container) error {
	alive, err := openAlive(filepath.Join(s.containerDir(c.record.ID), aliveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	if c.started == nil {
		c.operation = starting
	}
	s.mu.Unlock()
	s.config.Logger.Info("Restored container", slog.String("container", c.name), slog.String("containerID", c.record.ID))
	s.monitors.Go(func() {
		if s.monitor(c, alive) {
			s.reapShim(c)
		}
	})
	return nil
}

// reapShim reaps a shim that an earlier server in the same process started. All other shims are children of init by now.
func (s *Server) reapShim(c *container) {
	s.mu.Lock()
	started := c.started
	s.mu.Unlock()
	if started == nil {
		return
	}
	if exists, _ := started.Shim.exists(); exists {
		_, _ = syscall.Wait4(started.Shim.PID, nil, 0, nil) // fails if it is not a child
	}
}
