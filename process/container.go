package process

import (
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a record that containers belong to. Only stopped changes, under Server.mu, and never back.
type sandbox struct {
	id      string
	created time.Time
	config  *runtimeapi.PodSandboxConfig
	encoded wireConfig // config
	name    string
	stopped bool
}

func (b *sandbox) record(stopped bool) *sandboxRecord {
	return &sandboxRecord{ID: b.id, Created: b.created, Stopped: stopped, Config: b.encoded}
}

// container is one container; record, config and name never change.
type container struct {
	record *containerRecord
	config *runtimeapi.ContainerConfig
	name   string

	// Under Server.mu.
	claim   claim
	started *startedRecord
	exit    *exitRecord
	changed chan struct{} // closed and replaced at each change
	removed bool
}

// claim is a step that a container is in and that no second call may take meanwhile.
type claim int

const (
	free claim = iota
	starting
	removing
)

func (c *container) stateLocked() runtimeapi.ContainerState {
	switch {
	case c.exit != nil:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case c.started != nil:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	}
}

// isSettled reports whether its state is one that lasts. Whoever was told of a container that is being started that it was
// merely created would start another, as an agent does whose predecessor asked for the start and was killed. Server.mu is held.
func (c *container) isSettled() bool { return c.claim != starting }

func (c *container) changeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (s *Server) findContainer(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.containers[id]; found != nil {
		return found, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q: not found", id)
}

func (s *Server) findSandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.sandboxes[id]; found != nil {
		return found, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod sandbox %q: not found", id)
}

// reserve keeps a name for an ID, as containerd words it when it is taken: after a lost answer the caller finds there what
// it made (F22).
func (s *Server) reserve(name, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if holder, taken := s.names[name]; taken {
		return status.Errorf(codes.AlreadyExists, "name %q is reserved for %q", name, holder)
	}
	s.names[name] = id
	return nil
}

func (s *Server) release(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(name, id)
}

func (s *Server) releaseLocked(name, id string) {
	if s.names[name] == id {
		delete(s.names, name)
	}
}

// removeFolder removes a sandbox's or container's folder, that file first: what is left after a crash is nothing any
// more.
func removeFolder(folder, first string) error {
	if err := os.Remove(first); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.RemoveAll(folder)
}
