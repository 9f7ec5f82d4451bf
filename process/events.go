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

// eventBufferSize is how many events a slow subscriber may lag behind.
const eventBufferSize = 1024

// eventBroadcaster sends events to all subscribers. It is safe for concurrent use.
type eventBroadcaster struct {
	mu          sync.Mutex // guards subscribers
	subscribers map[chan *runtimeapi.ContainerEventResponse]bool
}

// subscribe returns a channel of all events from now on. The channel is closed when the subscriber lags too far behind, so
// that it never misses an event unnoticed.
func (b *eventBroadcaster) subscribe() chan *runtimeapi.ContainerEventResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers == nil {
		b.subscribers = map[chan *runtimeapi.ContainerEventResponse]bool{}
	}
	subscriber := make(chan *runtimeapi.ContainerEventResponse, eventBufferSize)
	b.subscribers[subscriber] = true
	return subscriber
}

func (b *eventBroadcaster) unsubscribe(subscriber chan *runtimeapi.ContainerEventResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscribers, subscriber)
}

func (b *eventBroadcaster) send(event *runtimeapi.ContainerEventResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for subscriber := range b.subscribers {
		select {
		case subscriber <- event:
		default:
			delete(b.subscribers, subscriber)
			close(subscriber)
		}
	}
}

// sendEvent sends an event about a container or sandbox, with the pod's current status.
func (s *Server) sendEvent(id, sandboxID string, eventType runtimeapi.ContainerEventType) {
	sandboxStatus, containerStatuses := s.podStatus(sandboxID)
	s.events.send(&runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: eventType, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: sandboxStatus, ContainersStatuses: containerStatuses,
	})
}

// GetContainerEvents sends the header as soon as it is subscribed: from then on the client misses no event.
func (s *Server) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	subscriber := s.events.subscribe()
	defer s.events.unsubscribe(subscriber)
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case event, open := <-subscriber:
			if !open {
				return status.Errorf(codes.ResourceExhausted, "more than %d events are pending: list the pods and subscribe again", eventBufferSize)
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
