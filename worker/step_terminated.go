package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heraldnode/herald/plan"
)

// cleanUp releases what a stopped pod still holds (PW-40). It may be interrupted at any point and begins again: nothing is
// told twice, nothing is released that was not.
func (w *Workers) cleanUp(ctx context.Context, t *turn) result {
	l, err := w.look(ctx, t)
	if err != nil {
		return w.failed(err)
	}
	if l.seen.Running() {
		w.move(t, plan.Lifecycle.ResumeTerminating)
		return result{}
	}
	if w.hasStatus(t, l) {
		w.publishEnd(t, l)
	}
	if t.life.ShouldRemoveContent() {
		if err := w.removeContent(ctx, t); err != nil {
			return w.failed(err)
		}
	}
	if err := w.unmount(ctx, t); err != nil {
		return w.failed(err)
	}
	// Whoever hears of the end may ask at once whether all is released, so the answer must be there first.
	w.move(t, func(l plan.Lifecycle) plan.Lifecycle { return l.CompleteTerminated(t.life.ShouldRemoveContent()) })
	w.config.Statuses.TerminatePod(t.life.Pod)
	return result{}
}

// remove removes what the runtime kept of a finished pod, now that the pod was deleted.
func (w *Workers) remove(ctx context.Context, t *turn) result {
	if err := w.removeContent(ctx, t); err != nil {
		return w.failed(err)
	}
	w.move(t, func(l plan.Lifecycle) plan.Lifecycle { return l.CompleteTerminated(true) })
	w.config.Statuses.TerminatePod(t.life.Pod)
	return result{}
}

// removeContent removes containers, sandboxes and logs, and waits until they are seen to be gone: the API object may go
// then, and not before (SM-76).
func (w *Workers) removeContent(ctx context.Context, t *turn) error {
	if err := w.config.Runtime.RemovePod(ctx, t.uid); err != nil {
		return fmt.Errorf("remove pod %s: %w", t.identity(), err)
	}
	t.memory.newerThan = time.Now()
	seen, err := w.observe(ctx, t)
	if err == nil && len(seen.Containers)+len(seen.Sandboxes) > 0 {
		err = fmt.Errorf("remove pod %s: the runtime still holds %d containers and %d sandboxes",
			t.identity(), len(seen.Containers), len(seen.Sandboxes))
	}
	return err
}

// unmount takes the volumes away. A volume that does not let go holds up this pod alone, and says so (BUG-31).
func (w *Workers) unmount(ctx context.Context, t *turn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.config.VolumeTimeout, errVolumesSlow)
	defer cancel()
	err := w.config.Volumes.Unmount(ctx, t.uid)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (%w)", err, errVolumesSlow)
	}
	err = fmt.Errorf("unmount volumes of pod %s: %w", t.identity(), err)
	w.event(ctx, t, "FailedKillPod", err.Error())
	return err
}
