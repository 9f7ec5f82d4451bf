package broadcaster

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/heraldnode/herald/internal/apierror"
)

const (
	requestTimeout = 10 * time.Second
	// maxFailures is how often the server may fail on one event while it accepts others. The cause is then the event itself, for
	// example an admission webhook that does not respond for its namespace.
	maxFailures = 5
)

// pendingEvent is an event that waits for the API server.
type pendingEvent struct {
	event *v1.Event
	// correlated is the request to send; nil before the first attempt.
	correlated *record.EventCorrelateResult
	// failures counts the attempts that failed although the server accepted another event since the previous failure.
	failures int
	// sentBefore is sender.sent at the previous failure.
	sentBefore int
}

// sender sends the queued events. The goroutine of Run owns it.
type sender struct {
	*Broadcaster
	correlator *record.EventCorrelator
	backoff    wait.Backoff
	sent       int // events that the server accepted
}

// Run sends the events to the API server until ctx is done. Like client-go's recorder, it aggregates similar events and limits
// the rate of events per object. Unlike it, Run retries until the server responds or the queue is full. A failed event is
// requeued behind the others.
func (b *Broadcaster) Run(ctx context.Context) error {
	s := sender{Broadcaster: b, correlator: record.NewEventCorrelator(clock.RealClock{}), backoff: newBackoff()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		}
		for pending := b.dequeue(); pending != nil && ctx.Err() == nil; pending = b.dequeue() {
			s.process(ctx, pending)
		}
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
}

// dequeue removes and returns the oldest pending event, or nil.
func (b *Broadcaster) dequeue() *pendingEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil
	}
	pending := b.queue[0]
	b.queue = b.queue[1:]
	return pending
}

// requeue appends the event to the queue, behind those that arrived since.
func (b *Broadcaster) requeue(pending *pendingEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueueLocked(pending)
}

// process makes one attempt to send the event. It waits and requeues the event if the attempt fails.
func (s *sender) process(ctx context.Context, pending *pendingEvent) {
	if pending.correlated == nil && !s.correlate(pending) {
		return
	}
	stored, err := s.send(ctx, pending.correlated)
	switch {
	case err == nil:
		s.correlator.UpdateState(stored)
		s.count(resultSent)
		s.sent++
		s.backoff = newBackoff()
	case isRejected(err) || s.countFailure(pending) >= maxFailures:
		s.config.Logger.Warn("Failed to send event, dropping it", "reason", pending.event.Reason, "message", pending.event.Message, "err", err)
		s.count(resultRejected)
	default:
		select {
		case <-ctx.Done():
		case <-time.After(s.backoff.Step()):
		}
		s.requeue(pending)
	}
}

// correlate aggregates the event with earlier ones, and reports whether to send it.
func (s *sender) correlate(pending *pendingEvent) bool {
	correlated, err := s.correlator.EventCorrelate(pending.event)
	if err != nil {
		s.config.Logger.Error("Failed to correlate event", "reason", pending.event.Reason, "err", err)
		return false
	}
	if correlated.Skip {
		s.count(resultRateLimited)
		return false
	}
	pending.correlated = correlated
	return true
}

// countFailure counts a failed attempt and returns the number of failures.
func (s *sender) countFailure(pending *pendingEvent) int {
	if s.sent > pending.sentBefore {
		pending.failures++
	}
	pending.sentBefore = s.sent
	return pending.failures
}

// send patches an event that occurred before, and creates it otherwise or if it has expired.
func (s *sender) send(ctx context.Context, correlated *record.EventCorrelateResult) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	event := correlated.Event
	if event.Count > 1 {
		patched, err := s.config.API.PatchEvent(ctx, event.Namespace, event.Name, correlated.Patch)
		if !apierrors.IsNotFound(err) {
			return patched, err
		}
		event = event.DeepCopy()
	}
	event.ResourceVersion = ""
	return s.config.API.CreateEvent(ctx, event)
}

// isRejected reports whether a retry would fail with the same error.
func isRejected(err error) bool {
	return apierror.IsInvalidRequest(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
