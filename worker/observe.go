package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/resize"
)

// snapshot is everything that an iteration knows about its pod before it decides.
type snapshot struct {
	// pod carries the status that the API server is known to have.
	pod *v1.Pod
	// previous is the last published status. Nil if there is none.
	previous *v1.PodStatus
	// runtimePod is the state in the runtime.
	runtimePod *observed.Pod
	probes     derive.ProbeResults
	unhealthy  map[observed.ContainerID]string
	// actuated has the quantities that the runtime and the pod's cgroup last accepted. isResizing reports that they are not yet
	// those that are allocated.
	actuated   resize.State
	isResizing bool
}

// takeSnapshot returns a snapshot that is newer than the worker's last action on the pod (PW-26).
func (w *Workers) takeSnapshot(ctx context.Context, iter *iteration) (*snapshot, error) {
	runtimePod, err := w.observe(ctx, iter)
	if err != nil {
		return nil, err
	}
	snap := &snapshot{runtimePod: runtimePod}
	w.noticeEnds(iter, runtimePod)
	if iter.lifecycle.Pod == nil {
		return snap, nil
	}
	iter.lifecycle.Pod = w.config.Allocated(iter.lifecycle.Pod) // PW-13
	if status, found := w.config.Statuses.GetPodStatus(iter.lifecycle.Pod.UID); found {
		snap.previous = &status
	}
	snap.pod = withMirrorStatus(iter.lifecycle, snap.previous == nil && !runtimePod.Running())
	if restored := w.journal.restore(snap.pod, snap.status(), runtimePod); restored != snap.status() {
		snap.previous = restored
	}
	snap.probes, snap.unhealthy = w.config.Probes.Results(iter.uid)
	var isAllocated bool
	snap.actuated, isAllocated = w.config.Resizes.Actuated(iter.lifecycle.Pod)
	snap.isResizing = !isAllocated
	return snap, nil
}

// observe returns the pod's state in the runtime. If the cached state is too old, it requests an observation instead of
// waiting for the next relist (BUG-27).
func (w *Workers) observe(ctx context.Context, iter *iteration) (*observed.Pod, error) {
	if cached := w.config.PodCache.Get(iter.uid); cached.At.After(iter.state.minObserved) {
		return cached, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.ObserveTimeout)
	defer cancel()
	w.config.PodCache.Refresh(iter.uid)
	runtimePod, err := w.config.PodCache.GetNewerThan(ctx, iter.uid, iter.state.minObserved)
	if err != nil {
		err = fmt.Errorf("observe pod %s: %w", iter.identity(), err)
		w.recordWarning(ctx, iter, "FailedSync", "error determining status: "+err.Error())
	}
	return runtimePod, err
}

// withMirrorStatus returns the pod with the status that the API server has, which for a static pod is the status of its
// mirror. A terminal phase of the mirror is kept only if trustTerminal: an earlier agent set it then. Other writers of a
// mirror must not decide what the node runs.
func withMirrorStatus(lifecycle plan.Lifecycle, trustTerminal bool) *v1.Pod {
	if !lifecycle.IsStatic() || lifecycle.Mirror == nil {
		return lifecycle.Pod
	}
	pod := *lifecycle.Pod
	pod.Status = lifecycle.Mirror.Status
	if derive.IsTerminal(pod.Status.Phase) && !trustTerminal {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = "", "", ""
	}
	return &pod
}

// status returns the newest known status.
func (snap *snapshot) status() *v1.PodStatus {
	if snap.previous != nil {
		return snap.previous
	}
	return &snap.pod.Status
}

// computeActions decides what to do for the pod. Restart counts of containers that the runtime has forgotten come from the
// newest status.
func (snap *snapshot) computeActions(iter *iteration) plan.Actions {
	pod := *snap.pod
	pod.Status = *snap.status()
	in := plan.Input{
		Pod: &pod, Observed: snap.runtimePod, Unhealthy: snap.unhealthy, Backoff: iter.state.backoff, Now: iter.now,
		RestartAll: iter.state.restartAll, Restart: iter.requestedRestarts(),
		Started: map[observed.ContainerID]bool{},
	}
	for id, results := range snap.probes {
		in.Started[id] = results.Startup == derive.ProbeSuccess
	}
	if start := pod.Status.StartTime; start != nil {
		in.StartTime = start.Time
	}
	if snap.isResizing {
		in.Actuated = snap.actuated
	}
	return plan.ComputeActions(in)
}

// statusInput returns the input from which the pod's status is derived.
func (w *Workers) statusInput(iter *iteration, snap *snapshot) derive.Input {
	runtimePod := snap.runtimePod
	if snap.actuated != nil {
		runtimePod = resize.WithActuated(runtimePod, snap.actuated, resize.OfStatus(snap.status()), snap.isResizing)
	}
	return derive.Input{
		Pod: snap.pod, Previous: snap.previous, Observed: runtimePod, Probes: snap.probes, Waiting: iter.state.waiting(),
		Resize: w.config.Resizes.State(iter.uid), Node: w.config.NodeInfo(), Now: time.Now(),
		RestartAllAt: iter.state.restartAll.NoticedAt, Restarting: iter.state.backoff.PendingRestarts(),
	}
}

// publish derives the status, applies the status function of the last kill and returns the status that is now cached.
func (w *Workers) publish(iter *iteration, in derive.Input) v1.PodStatus {
	status := derive.Status(in)
	if iter.lifecycle.StatusFunc != nil && !in.Terminating {
		iter.lifecycle.StatusFunc(&status)
	}
	cached, _ := w.config.Statuses.SetPodStatus(iter.lifecycle.Pod, status)
	w.measureStart(iter, in, cached.Phase)
	return cached
}

// publishEnd publishes how the containers ended while the runtime still knows it.
func (w *Workers) publishEnd(iter *iteration, snap *snapshot) {
	if status, found := w.config.Statuses.GetPodStatus(iter.lifecycle.Pod.UID); found {
		snap.previous = &status
	}
	in := w.statusInput(iter, snap)
	in.Terminating = true
	w.publish(iter, in)
}

// shouldPublish reports whether the status has more to say than that the pod was rejected (PH-49).
func (iter *iteration) shouldPublish(snap *snapshot) bool {
	return !iter.lifecycle.Rejected || len(snap.runtimePod.Containers) > 0
}

// measureStart observes the start duration once, when the pod becomes Running and was not Running before (BUG-34).
func (w *Workers) measureStart(iter *iteration, in derive.Input, phase v1.PodPhase) {
	if iter.state.startMeasured || phase != v1.PodRunning {
		return
	}
	iter.state.startMeasured = true
	before := in.Pod.Status.Phase
	if in.Previous != nil {
		before = in.Previous.Phase
	}
	if before != v1.PodRunning {
		w.metrics.podStart.Observe(time.Since(iter.addedAt).Seconds())
	}
}

// recordWarning records a warning about the pod, unless the failure was caused by the cancellation of ctx.
func (w *Workers) recordWarning(ctx context.Context, iter *iteration, reason, message string) {
	cause := context.Cause(ctx)
	if iter.lifecycle.Pod != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, plan.ErrInterrupted) {
		w.config.Events.Event(iter.lifecycle.Pod, v1.EventTypeWarning, reason, message)
	}
}
