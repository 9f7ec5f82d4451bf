package broadcaster

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

// letter is an event on its way to the API server.
type letter struct {
	event *v1.Event
	// correlated is what is sent; nil before the first try.
	correlated *record.EventCorrelateResult
	// failures are those of a server that took other events since the failure before; taken is how many it had by then.
	failures, taken int
}

// maxFailures is how often the server may fail on one event while it takes others: what it fails on is then the event, as
// when an admission webhook does not answer for its namespace.
const maxFailures = 5

// teller is a Recorder's Run. Its goroutine owns it.
type teller struct {
	*Broadcaster
	correlator *record.EventCorrelator
	pause      wait.Backoff
	taken      int // events that the server took
}

// Run tells the API server of the events until ctx ends. Similar events are put together and a flood about one object is
// thinned out, as client-go's recorder does it. Where that gives up after a number of tries, this goes on until the
// server answers, or the backlog is full. An event that the server fails on lets the others go first.
func (r *Broadcaster) Run(ctx context.Context) error {
	t := teller{Broadcaster: r, correlator: record.NewEventCorrelator(clock.RealClock{}), pause: patience()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.more:
		}
		for l := r.next(); l != nil && ctx.Err() == nil; l = r.next() {
			t.tell(ctx, l)
		}
	}
}

func patience() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
}

func (r *Broadcaster) next() *letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return nil
	}
	l := r.waiting[0]
	r.waiting = r.waiting[1:]
	return l
}

func (r *Broadcaster) putBack(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitLocked(l)
}

// tell tries once.
func (t *teller) tell(ctx context.Context, l *letter) {
	if l.correlated == nil && !t.correlate(l) {
		return
	}
	kept, err := t.send(ctx, l.correlated)
	switch {
	case err == nil:
		t.correlator.UpdateState(kept)
		t.metrics.told("told")
		t.taken++
		t.pause = patience()
	case isFinal(err) || t.isHopeless(l):
		t.config.Logger.Warn("Event refused", "reason", l.event.Reason, "message", l.event.Message, "err", err)
		t.metrics.told("refused")
	default:
		select {
		case <-ctx.Done():
		case <-time.After(t.pause.Step()):
		}
		t.putBack(l) // behind those that have come meanwhile
	}
}

// correlate joins the event with those before it, and reports whether it is to be told.
func (t *teller) correlate(l *letter) bool {
	correlated, err := t.correlator.EventCorrelate(l.event)
	if err != nil {
		t.config.Logger.Error("Event cannot be told", "reason", l.event.Reason, "err", err)
		return false
	}
	if correlated.Skip {
		t.metrics.told("thinned out")
		return false
	}
	l.correlated = correlated
	return true
}

// isHopeless counts a failure, and reports whether the event is to be given up.
func (t *teller) isHopeless(l *letter) bool {
	if t.taken > l.taken {
		l.failures++
	}
	l.taken = t.taken
	return l.failures >= maxFailures
}

// send patches the event if it happened before and is still there, and makes it otherwise.
func (r *Broadcaster) send(ctx context.Context, correlated *record.EventCorrelateResult) (*v1.Event, error) {
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
