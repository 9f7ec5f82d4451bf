package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/resize"
)

// resizeFailure is why a resize could not be applied and when it is retried. Starts of containers do not wait for it.
type resizeFailure struct {
	err     error
	retryAt time.Time
	count   int // failures in a row
}

var errCannotResize = errors.New("the container runtime cannot resize pods")

// resizePod applies what a resize in progress has yet to change; change may be nil.
func (w *Workers) resizePod(ctx context.Context, iter *iteration, sandboxID string, change *resize.Change) result {
	last := iter.state.resizeFailure
	switch {
	case change == nil || !change.Pod && len(change.Containers) == 0:
		iter.state.resizeFailure = resizeFailure{}
		return result{reported: true}
	case iter.now.Before(last.retryAt) && !iter.urgent:
		return result{reported: true, err: last.err, requeueAfter: time.Until(last.retryAt)}
	}
	err := w.applyResize(ctx, iter.lifecycle.Pod, sandboxID, *change)
	if ctx.Err() != nil {
		return result{err: err}
	}
	if err == nil {
		iter.state.resizeFailure = resizeFailure{}
		return result{}
	}
	w.config.Resizes.SetFailed(iter.lifecycle.Pod, err)
	err = fmt.Errorf("resize pod %s: %w", iter.identity(), err)
	after := w.backoffAfter(last.count, err)
	iter.state.resizeFailure = resizeFailure{err: err, retryAt: time.Now().Add(after), count: last.count + 1}
	return result{err: err, requeueAfter: after}
}

func (w *Workers) applyResize(ctx context.Context, pod *v1.Pod, sandboxID string, change resize.Change) error {
	resizer, ok := w.config.Runtime.(Resizer)
	if !ok {
		return errCannotResize
	}
	started := time.Now()
	err := resizer.ResizePod(ctx, pod, sandboxID, change, func(name string, quantities resize.Quantities) error {
		return w.config.Resizes.SetActuated(pod, name, quantities)
	})
	w.metrics.resizes.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(time.Since(started).Milliseconds()))
	return err
}

// recordActuated records that a container is about to get its allocated resources, or that the pod's cgroup has them. It must be
// on disk before the container starts: otherwise an agent that is killed between would restart the container again (BUG-127).
func (w *Workers) recordActuated(pod *v1.Pod, name string) error {
	quantities, found := resize.Of(pod)[name]
	if !found { // an ephemeral container
		return nil
	}
	return w.config.Resizes.SetActuated(pod, name, quantities)
}

// and joins the results of two actions of one iteration. The earlier retry counts.
func (r result) and(other result) result {
	after := r.requeueAfter
	if r.err == nil || other.err != nil && other.requeueAfter < after {
		after = other.requeueAfter
	}
	return result{
		requeueAfter: after, backoff: max(r.backoff, other.backoff), err: errors.Join(r.err, other.err),
		reported: r.reported && other.reported,
	}
}
