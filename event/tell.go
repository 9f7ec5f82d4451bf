package event

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// requestTimeout bounds each request.
const requestTimeout = 10 * time.Second

// Run tells the API server of the events until ctx ends. Similar events are put together and a flood about one object is
// thinned out, as client-go's recorder does it. Where that gives up after a number of tries, this goes on until the
// server answers, or the backlog is full.
func (r *Recorder) Run(ctx context.Context) error {
	correlator := record.NewEventCorrelator(clock.RealClock{})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.more:
		}
		for event := r.next(); event != nil && ctx.Err() == nil; event = r.next() {
			r.tell(ctx, correlator, event)
		}
	}
}

func (r *Recorder) next() *v1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return nil
	}
	event := r.waiting[0]
	r.waiting = r.waiting[1:]
	return event
}

func (r *Recorder) tell(ctx context.Context, correlator *record.EventCorrelator, event *v1.Event) {
	correlated, err := correlator.EventCorrelate(event)
	if err != nil {
		r.config.Logger.Error("Event cannot be told", "reason", event.Reason, "err", err)
		return
	}
	if correlated.Skip {
		r.metrics.told("thinned out")
		return
	}
	pause := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
	for {
		again, err := r.send(ctx, correlated)
		if err == nil {
			correlator.UpdateState(again)
			r.metrics.told("told")
			return
		}
		if isFinal(err) {
			r.config.Logger.Warn("Event refused", "reason", event.Reason, "message", event.Message, "err", err)
			r.metrics.told("refused")
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.Step()):
		}
	}
}

// send patches the event if it happened before and is still there, and makes it otherwise.
func (r *Recorder) send(ctx context.Context, correlated *record.EventCorrelateResult) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	event := correlated.Event
	if event.Count > 1 {
		patched, err := r.config.API.PatchEvent(ctx, event.Namespace, event.Name, correlated.Patch)
		if !apierrors.IsNotFound(err) {
			return patched, err
		}
		event = event.DeepCopy()
	}
	event.ResourceVersion = ""
	return r.config.API.CreateEvent(ctx, event)
}

// isFinal reports whether the server has decided: asking again would give the same answer.
func isFinal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}
