package cri

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/podid"
)

// WatchPods calls back with the UID of each pod of which an event is heard, until ctx or the stream ends. The error says
// which; errors.ErrUnsupported means that the runtime has no events, and never will. Events are hints: some are lost
// (F23).
func (r *Runtime) WatchPods(ctx context.Context, changed func(podid.UID)) error {
	r.mu.Lock()
	none := r.noEvents
	r.mu.Unlock()
	if none {
		return fmt.Errorf("cri: events of the runtime: %w", errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := r.pods.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var event *runtimeapi.ContainerEventResponse
		if event, err = stream.Recv(); err == nil {
			if uid := podOf(event); uid != "" {
				changed(uid)
			}
		}
	}
	if isUnimplemented(err) {
		r.mu.Lock()
		r.noEvents = true
		r.mu.Unlock()
		err = errors.ErrUnsupported
	}
	return fmt.Errorf("cri: events of the runtime: %w", err)
}

// podOf is the pod that the event is about; "" when it tells nobody's.
func podOf(event *runtimeapi.ContainerEventResponse) podid.UID {
	if uid, _, ours := owner(event.GetPodSandboxStatus().GetLabels()); ours {
		return uid
	}
	for _, container := range event.GetContainersStatuses() {
		if uid, _, ours := owner(container.GetLabels()); ours {
			return uid
		}
	}
	return podid.UID(event.GetPodSandboxStatus().GetMetadata().GetUid())
}
