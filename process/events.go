package process

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// waitingEvents is how many events a slow listener may be behind.
const waitingEvents = 1024

// events brings what happens to those who listen. All methods may be called from any goroutine.
type events struct {
	mu        sync.Mutex // guards listeners
	listeners map[chan *runtimeapi.ContainerEventResponse]bool
}

// listen returns a channel of all events from now on. It is closed when the listener falls too far behind: it must know
// that it missed something.
func (e *events) listen() chan *runtimeapi.ContainerEventResponse {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listeners == nil {
		e.listeners = map[chan *runtimeapi.ContainerEventResponse]bool{}
	}
	listener := make(chan *runtimeapi.ContainerEventResponse, waitingEvents)
	e.listeners[listener] = true
	return listener
}

func (e *events) leave(listener chan *runtimeapi.ContainerEventResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, listener)
}

func (e *events) send(event *runtimeapi.ContainerEventResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for listener := range e.listeners {
		select {
		case listener <- event:
		default:
			delete(e.listeners, listener)
			close(listener)
		}
	}
}

// tell sends an event about a container or sandbox, with what is known of the pod now.
func (s *Server) tell(id, sandbox string, kind runtimeapi.ContainerEventType) {
	box, containers := s.describeSandbox(sandbox)
	s.events.send(&runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: box, ContainersStatuses: containers,
	})
}

// GetContainerEvents sends its header as soon as it listens, so that a client knows from when on it misses nothing.
func (s *Server) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	listener := s.events.listen()
	defer s.events.leave(listener)
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case event, open := <-listener:
			if !open {
				return status.Errorf(codes.ResourceExhausted, "more than %d events wait: list, and listen again", waitingEvents)
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
