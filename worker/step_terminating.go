package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heraldnode/herald/plan"
)

// terminate stops the pod's containers for good (PW-36). No container is started after it began (PW-28).
func (w *Workers) terminate(ctx context.Context, t *turn) result {
	w.acknowledge(t)
	l, err := w.look(ctx, t)
	if err != nil {
		return w.failed(err)
	}
	if t.life.Pod == nil {
		return w.terminateLeftover(ctx, t, l)
	}
	if w.hasStatus(t, l) {
		w.publish(t, w.input(t, l))
	}
	w.config.Probes.StopLivenessAndStartup(t.life.Pod)
	if err := w.stopForGood(ctx, t, l); err != nil {
		w.event(ctx, t, "FailedKillPod", "error killing pod: "+err.Error()) // PW-37
		return w.failed(err)
	}
	w.config.Probes.RemovePod(t.uid)
	if w.hasStatus(t, l) {
		w.publishEnd(t, l)
	}
	w.move(t, plan.Lifecycle.CompleteTerminating)
	w.config.OnPodStopped(t.life.Name)
	return result{}
}

func (w *Workers) acknowledge(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.record.life = t.record.life.StartTerminating()
	t.life = t.record.life
}

// hasStatus reports whether there is more to say of the pod than that it was rejected (PH-49).
func (w *Workers) hasStatus(t *turn, l *look) bool {
	return !t.life.Rejected || len(l.seen.Containers) > 0
}

// stopForGood stops all, and looks again: only what was seen to have stopped has. What is gone altogether has too (PW-38).
// Interrupted by a shorter grace, it goes on with what that leaves; failed, it gives the whole grace again, for nobody
// knows whether the containers heard of it.
func (w *Workers) stopForGood(ctx context.Context, t *turn, l *look) error {
	if by := time.Now().Add(t.life.GracePeriod); t.memory.stopBy.IsZero() || by.Before(t.memory.stopBy) {
		t.memory.stopBy = by
	}
	err := w.stopAll(ctx, t, l.seen, max(0, time.Until(t.memory.stopBy)))
	t.memory.newerThan = time.Now()
	if err == nil {
		l.seen, err = w.observe(ctx, t)
	}
	if err == nil && l.seen.Running() {
		err = fmt.Errorf("stop pod %s: %w", t.identity(), errStillRuns)
	}
	if ctx.Err() == nil {
		t.memory.stopBy = time.Time{}
	}
	return err
}

var errStillRuns = errors.New("the runtime says that its containers have stopped, but shows one that runs")

// publishEnd tells how all containers ended, while the runtime still knows.
func (w *Workers) publishEnd(t *turn, l *look) {
	if status, known := w.config.Statuses.GetPodStatus(t.life.Pod.UID); known {
		l.previous = &status
	}
	in := w.input(t, l)
	in.Terminating = true
	w.publish(t, in)
}

// terminateLeftover ends a pod of which nobody knows more than the runtime (PW-39). There is no status to tell, and
// nobody reads what is left.
func (w *Workers) terminateLeftover(ctx context.Context, t *turn, l *look) result {
	if err := w.stopForGood(ctx, t, l); err != nil {
		return w.failed(err)
	}
	if err := w.config.Runtime.RemovePod(ctx, t.uid); err != nil {
		return w.failed(fmt.Errorf("remove pod %s: %w", t.identity(), err))
	}
	w.move(t, plan.Lifecycle.CompleteTerminating)
	return result{}
}
