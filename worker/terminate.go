package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

var (
	errStillRunning = errors.New("the runtime reported the containers as stopped, but one is still running")
	errStopTimeout  = errors.New("containers did not stop within their grace period")
)

// terminate stops the pod's containers for good (PW-36). No container is started after it has begun (PW-28).
func (w *Workers) terminate(ctx context.Context, iter *iteration) result {
	w.startTerminating(iter)
	snap, err := w.takeSnapshot(ctx, iter)
	if err != nil {
		return w.retry(iter, err)
	}
	if iter.lifecycle.Pod == nil {
		return w.terminateRuntimePod(ctx, iter, snap)
	}
	if iter.shouldPublish(snap) {
		w.publish(iter, w.statusInput(iter, snap))
	}
	w.config.Probes.StopLivenessAndStartup(iter.lifecycle.Pod)
	if err := w.stopForGood(ctx, iter, snap); err != nil {
		w.recordWarning(ctx, iter, "FailedKillPod", "error killing pod: "+err.Error()) // PW-37
		return w.retry(iter, err)
	}
	w.config.Probes.RemovePod(iter.uid)
	if iter.shouldPublish(snap) {
		w.publishEnd(iter, snap)
	}
	w.transition(iter, plan.Lifecycle.CompleteTerminating)
	w.config.OnPodStopped(iter.uid, iter.lifecycle.Name)
	return result{}
}

func (w *Workers) startTerminating(iter *iteration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	iter.record.lifecycle = iter.record.lifecycle.StartTerminating()
	iter.lifecycle = iter.record.lifecycle
}

// terminateRuntimePod stops and removes a pod that only the runtime knows (PW-39). It has no status.
func (w *Workers) terminateRuntimePod(ctx context.Context, iter *iteration, snap *snapshot) result {
	if err := w.stopForGood(ctx, iter, snap); err != nil {
		return w.retry(iter, err)
	}
	if err := w.config.Runtime.RemovePod(ctx, iter.uid); err != nil {
		return w.retry(iter, fmt.Errorf("remove pod %s: %w", iter.identity(), err))
	}
	w.transition(iter, plan.Lifecycle.CompleteTerminating)
	return result{}
}

// stopForGood stops all containers and verifies it by a new observation. Containers that are gone count as stopped (PW-38).
// An interrupted stop continues with the rest of its grace period. A failed stop grants the whole grace period again
// because the containers may not have received the signal.
func (w *Workers) stopForGood(ctx context.Context, iter *iteration, snap *snapshot) error {
	deadline := time.Now().Add(iter.lifecycle.GracePeriod)
	if iter.state.stopDeadline.IsZero() || deadline.Before(iter.state.stopDeadline) {
		iter.state.stopDeadline = deadline
	}
	err := w.stopPod(ctx, iter, snap.runtimePod, max(0, time.Until(iter.state.stopDeadline)))
	iter.state.minObserved = time.Now()
	if err == nil {
		snap.runtimePod, err = w.verifyStopped(ctx, iter)
	}
	if ctx.Err() == nil {
		iter.state.stopDeadline = time.Time{}
	}
	return err
}

// verifyStopped observes the pod again and returns an error if a container still runs. A runtime may report a stop too early:
// containerd 2 does, until it has noticed that a container ended with its shim (F26). The preStop hooks have run then.
func (w *Workers) verifyStopped(ctx context.Context, iter *iteration) (*observed.Pod, error) {
	iter.state.minObserved = time.Now()
	runtimePod, err := w.observe(ctx, iter)
	if err != nil || !runtimePod.Running() {
		return runtimePod, err
	}
	for _, container := range runtimePod.Containers {
		iter.state.skipPreStop(container.ID)
	}
	return runtimePod, fmt.Errorf("stop pod %s: %w", iter.identity(), errStillRunning)
}

// stopPod stops all containers of the pod in their termination order, then all sandboxes. It is bounded by the grace period
// and Config.StopTimeout.
func (w *Workers) stopPod(ctx context.Context, iter *iteration, runtimePod *observed.Pod, gracePeriod time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, gracePeriod+w.config.StopTimeout, errStopTimeout)
	defer cancel()
	stops := plan.TerminationOrder(iter.lifecycle.Pod, runtimePod, gracePeriod)
	if err := joinErrors(w.stopInOrder(ctx, iter, stops)); err != nil {
		return err
	}
	for _, sandbox := range runtimePod.Sandboxes {
		if err := w.config.Runtime.StopSandbox(ctx, sandbox.ID); err != nil {
			return fmt.Errorf("stop sandbox %s of pod %s: %w", sandbox.ID, iter.identity(), err)
		}
	}
	return nil
}

// stopInOrder stops the instances concurrently. All preStop hooks start at once. The signal of each waits for its
// predecessors, but no longer than its grace period (PW-25). It returns the errors by container.
func (w *Workers) stopInOrder(ctx context.Context, iter *iteration, stops []plan.OrderedStop) map[observed.ContainerID]error {
	stopped := map[observed.ContainerID]chan struct{}{}
	for _, ordered := range stops {
		stopped[ordered.Stop.ID] = make(chan struct{})
	}
	results := make([]error, len(stops))
	var running sync.WaitGroup
	for i, ordered := range stops {
		stop := ordered.Stop
		stop.SkipPreStop = iter.state.preStopsRun[stop.ID]
		if len(ordered.After) > 0 {
			turn := make(chan struct{})
			stop.Turn = turn
			running.Go(func() { waitForPredecessors(ctx, ordered, stopped); close(turn) })
		}
		running.Go(func() {
			if results[i] = w.stopContainer(ctx, iter, stop); results[i] == nil {
				close(stopped[stop.ID])
			}
		})
	}
	running.Wait()
	errs := map[observed.ContainerID]error{}
	for i, err := range results {
		if err != nil {
			id := stops[i].Stop.ID
			errs[id] = fmt.Errorf("stop container %s of pod %s: %w", id, iter.identity(), err)
		}
	}
	iter.state.recordInterruptedStops(errs, ctx.Err() != nil)
	return errs
}

// recordInterruptedStops remembers the stops that failed because the iteration was interrupted. A stop that the runtime failed
// runs its hook again: the hook may not have run.
func (s *syncState) recordInterruptedStops(errs map[observed.ContainerID]error, interrupted bool) {
	for id := range errs {
		if interrupted {
			s.skipPreStop(id)
		}
	}
}

// skipPreStop prevents that the preStop hook of an instance runs again.
func (s *syncState) skipPreStop(id observed.ContainerID) {
	if s.preStopsRun == nil {
		s.preStopsRun = map[observed.ContainerID]bool{}
	}
	s.preStopsRun[id] = true
}

// stopContainer stops one instance. It runs in its own goroutine, so it recovers from panics itself.
func (w *Workers) stopContainer(ctx context.Context, iter *iteration, stop plan.Stop) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = w.panicError(iter.lifecycle.Name, iter.uid, value)
		}
	}()
	w.config.OnContainerStop(stop)
	stop.PreStopDone = w.beginStop(iter, stop)
	if err = w.config.Runtime.StopContainer(ctx, iter.lifecycle.Pod, stop); err == nil {
		w.endStop(iter, stop.ID)
	}
	return err
}

// waitForPredecessors waits until the instances that must stop first have stopped, or the grace period ends.
func waitForPredecessors(ctx context.Context, ordered plan.OrderedStop, stopped map[observed.ContainerID]chan struct{}) {
	if len(ordered.After) == 0 {
		return
	}
	timer := time.NewTimer(ordered.Stop.Grace)
	defer timer.Stop()
	for _, id := range ordered.After {
		select {
		case <-stopped[id]:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func joinErrors(errs map[observed.ContainerID]error) error {
	return errors.Join(slices.Collect(maps.Values(errs))...)
}

// cleanUp releases what a stopped pod still holds (PW-40). It is idempotent and may be interrupted at any point.
func (w *Workers) cleanUp(ctx context.Context, iter *iteration) result {
	snap, err := w.takeSnapshot(ctx, iter)
	if err != nil {
		return w.retry(iter, err)
	}
	if snap.runtimePod.Running() {
		w.transition(iter, plan.Lifecycle.ResumeTerminating)
		return result{}
	}
	if iter.shouldPublish(snap) {
		w.publishEnd(iter, snap)
	}
	var removeErr error
	removesContent := iter.lifecycle.ShouldRemoveContent()
	if removesContent {
		if removeErr = w.removeContent(ctx, iter); removeErr != nil && !isOnlyRecords(removeErr) {
			return w.retry(iter, removeErr)
		}
	}
	if err := w.unmount(ctx, iter); err != nil {
		return w.retry(iter, errors.Join(removeErr, err))
	}
	return w.completeRemoval(iter, removesContent, removeErr)
}

// remove removes what the runtime kept of a finished pod that was deleted since.
func (w *Workers) remove(ctx context.Context, iter *iteration) result {
	err := w.removeContent(ctx, iter)
	if err != nil && !isOnlyRecords(err) {
		return w.retry(iter, err)
	}
	return w.completeRemoval(iter, true, err)
}

// isOnlyRecords reports whether nothing of the pod is left but records of stopped containers.
func isOnlyRecords(err error) bool {
	var typed interface{ OnlyRecordsLeft() bool }
	return errors.As(err, &typed) && typed.OnlyRecordsLeft()
}

// completeRemoval finishes a pod whose resources are released. If records are left in the runtime, the API object may be
// deleted all the same, and the removal is retried.
func (w *Workers) completeRemoval(iter *iteration, removesContent bool, removeErr error) result {
	w.mu.Lock()
	isKnown := iter.onlyRecords
	iter.onlyRecords = removeErr != nil
	w.mu.Unlock()
	if removeErr == nil || !isKnown {
		w.completeTerminated(iter, removesContent && removeErr == nil)
	}
	if removeErr != nil {
		return w.retry(iter, removeErr)
	}
	return result{}
}

// completeTerminated updates the lifecycle before it reports the end, because the status manager may ask at once whether
// the pod's resources are reclaimed.
func (w *Workers) completeTerminated(iter *iteration, contentRemoved bool) {
	w.transition(iter, func(lifecycle plan.Lifecycle) plan.Lifecycle { return lifecycle.CompleteTerminated(contentRemoved) })
	w.config.Statuses.TerminatePod(iter.lifecycle.Pod)
}

// removeContent removes containers, sandboxes and logs, and waits for an observation that confirms it (SM-76).
func (w *Workers) removeContent(ctx context.Context, iter *iteration) error {
	if err := w.config.Runtime.RemovePod(ctx, iter.uid); err != nil {
		return fmt.Errorf("remove pod %s: %w", iter.identity(), err)
	}
	iter.state.minObserved = time.Now()
	runtimePod, err := w.observe(ctx, iter)
	if err == nil && len(runtimePod.Containers)+len(runtimePod.Sandboxes) > 0 {
		err = fmt.Errorf("remove pod %s: the runtime still holds %d containers and %d sandboxes",
			iter.identity(), len(runtimePod.Containers), len(runtimePod.Sandboxes))
	}
	return err
}

// unmount unmounts the pod's volumes. A volume that cannot be unmounted delays only this pod and is reported (BUG-31).
func (w *Workers) unmount(ctx context.Context, iter *iteration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.config.VolumeTimeout, errVolumeTimeout)
	defer cancel()
	err := w.config.Volumes.Unmount(ctx, iter.uid)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (%w)", err, errVolumeTimeout)
	}
	err = fmt.Errorf("unmount volumes of pod %s: %w", iter.identity(), err)
	w.recordWarning(ctx, iter, "FailedKillPod", err.Error())
	return err
}
