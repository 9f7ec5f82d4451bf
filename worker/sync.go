package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/resize"
)

// sync moves the pod towards its desired state (PW-35). It publishes the status before any slow operation.
func (w *Workers) sync(ctx context.Context, iter *iteration) result {
	if !iter.admission.decided {
		if res, ok := iter.backingOff(); ok {
			return res
		}
		if err := w.admitInSync(ctx, iter); err != nil {
			return w.retry(iter, err)
		}
	}
	if iter.admission.err != nil {
		return w.reject(iter)
	}
	snap, err := w.takeSnapshot(ctx, iter)
	if err != nil {
		return w.retry(iter, err)
	}
	actions := snap.computeActions(iter)
	iter.planned = &actions
	iter.state.backoff, iter.state.restartAll, iter.state.waitingStarts = actions.Backoff, actions.RestartAll, actions.Waiting
	w.publishStarts(iter)
	w.config.Resizes.SetInProgress(iter.lifecycle.Pod, actions.Resize != nil)
	status := w.publish(iter, w.syncInput(iter, snap, actions))
	iter.state.consecutiveRejections = 0
	w.reportBackoffs(iter, actions.Waiting)
	if actions.Evict != nil {
		w.config.Events.Event(iter.lifecycle.Pod, v1.EventTypeNormal, actions.Evict.Reason, actions.Evict.Message)
	}
	if actions.Done || actions.Evict != nil || derive.IsTerminal(status.Phase) {
		w.transition(iter, plan.Lifecycle.CompleteSync) // PW-27
		return result{}
	}
	res, ok := iter.backingOff()
	if !ok {
		res = w.converge(ctx, iter, snap, actions)
	}
	if !actions.RequeueAt.IsZero() {
		res.requeueAfter = min(res.requeueAfter, max(0, time.Until(actions.RequeueAt)))
	}
	return res
}

// reportBackoffs records one event for each crash-loop backoff of a container.
func (w *Workers) reportBackoffs(iter *iteration, waiting map[string]derive.Waiting) {
	for name, wait := range waiting {
		if iter.state.reportedBackoffs[name].Equal(wait.Until) {
			continue
		}
		if iter.state.reportedBackoffs == nil {
			iter.state.reportedBackoffs = map[string]time.Time{}
		}
		iter.state.reportedBackoffs[name] = wait.Until
		w.config.Events.Event(containerReference(iter.lifecycle.Pod, name), v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s(%s)", name, iter.lifecycle.Name, iter.uid))
	}
}

// containerReference returns a reference to a container of the pod for an event.
func containerReference(pod *v1.Pod, name string) *v1.ObjectReference {
	list := "containers"
	switch _, kind := plan.FindContainer(pod, name); kind {
	case derive.InitContainer, derive.SidecarContainer:
		list = "initContainers"
	case derive.EphemeralContainer:
		list = "ephemeralContainers"
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, name),
	}
}

func (w *Workers) syncInput(iter *iteration, snap *snapshot, actions plan.Actions) derive.Input {
	in := w.statusInput(iter, snap)
	for name, waiting := range actions.Waiting {
		in.Waiting[name] = waiting
	}
	carryOverBackoffs(in.Waiting, actions.Start, snap.status())
	if actions.Evict != nil {
		in.Eviction = actions.Evict
	}
	if iter.lifecycle.IsStatic() {
		in.Pod, in.Previous = withoutRejection(in.Pod, in.Previous)
	}
	return in
}

// carryOverBackoffs keeps the CrashLoopBackOff state of containers whose backoff has ended until they are started. Otherwise
// their status would show the last termination once more.
func carryOverBackoffs(waiting map[string]derive.Waiting, starts []plan.Start, status *v1.PodStatus) {
	containers := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
	for _, start := range starts {
		name := start.Container.Name
		i := slices.IndexFunc(containers, func(container v1.ContainerStatus) bool { return container.Name == name })
		if _, found := waiting[name]; found || i < 0 {
			continue
		}
		if state := containers[i].State.Waiting; state != nil && state.Reason == plan.ReasonCrashLoopBackOff {
			waiting[name] = derive.Waiting{Reason: state.Reason, Message: state.Message}
		}
	}
}

// withoutRejection clears the rejection of an admitted static pod, which the derived status would carry over (PH-18). The
// mirror shows it until it is updated, and the mirror of an earlier agent from the beginning.
func withoutRejection(pod *v1.Pod, previous *v1.PodStatus) (*v1.Pod, *v1.PodStatus) {
	prefix := derive.RejectedStatus(pod, "", "").Message
	if strings.HasPrefix(pod.Status.Message, prefix) {
		admitted := *pod
		admitted.Status.Reason, admitted.Status.Message = "", ""
		pod = &admitted
	}
	if previous != nil && strings.HasPrefix(previous.Message, prefix) {
		status := *previous
		status.Reason, status.Message = "", ""
		previous = &status
	}
	return pod, previous
}

// converge prepares the pod's network and volumes and executes the actions.
func (w *Workers) converge(ctx context.Context, iter *iteration, snap *snapshot, actions plan.Actions) result {
	if err := w.config.NetworkReady(); err != nil && !snap.pod.Spec.HostNetwork {
		err = fmt.Errorf("network is not ready: %w", err)
		reported := iter.err != nil && iter.err.Error() == err.Error()
		if !reported {
			w.recordWarning(ctx, iter, "NetworkNotReady", err.Error())
		}
		return result{requeueAfter: withJitter(time.Second), err: err, reported: reported}
	}
	if err := w.mount(ctx, iter); err != nil {
		return w.retry(iter, err)
	}
	w.config.Probes.AddPod(iter.lifecycle.Pod)
	return w.execute(ctx, iter, snap, actions)
}

var errVolumeTimeout = errors.New("timed out waiting for volumes")

func (w *Workers) mount(ctx context.Context, iter *iteration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.config.VolumeTimeout, errVolumeTimeout)
	defer cancel()
	w.setVolumesPending(iter, !iter.state.mounted)
	err := w.config.Volumes.Mount(ctx, iter.lifecycle.Pod)
	iter.state.mounted = err == nil
	w.setVolumesPending(iter, !iter.state.mounted)
	if err != nil {
		w.recordWarning(ctx, iter, "FailedMount", err.Error())
		err = fmt.Errorf("mount volumes of pod %s: %w", iter.identity(), err)
	}
	return err
}

// execute executes the actions. After any attempt the pod is observed again before the next iteration decides, because a
// call may have succeeded although its response was lost.
func (w *Workers) execute(ctx context.Context, iter *iteration, snap *snapshot, actions plan.Actions) result {
	if actions.IsEmpty() {
		iter.state.consecutiveActions = 0
		return result{requeueAfter: withJitter(w.config.Resync)} // PW-32
	}
	res := w.executeActions(ctx, iter, snap, actions)
	if res.reported { // nothing was attempted
		iter.state.consecutiveActions = 0
		return res
	}
	res.requeueAfter = 0 // observe and publish the effect
	if res.backoff == 0 {
		// Slow down if actions have no effect.
		res.requeueAfter = min(time.Duration(iter.state.consecutiveActions)*time.Second, w.config.Backoff)
		iter.state.consecutiveActions++
	}
	iter.state.minObserved = time.Now()
	w.config.PodCache.Refresh(iter.uid)
	return res
}

func (w *Workers) executeActions(ctx context.Context, iter *iteration, snap *snapshot, actions plan.Actions) result {
	pod := iter.lifecycle.Pod
	if actions.KillPod {
		if len(snap.runtimePod.Sandboxes) > 0 {
			w.config.Events.Event(pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		err := w.stopPod(ctx, iter, snap.runtimePod, plan.GracePeriod(pod))
		if err == nil && snap.runtimePod.Running() {
			_, err = w.verifyStopped(ctx, iter)
		}
		if err != nil {
			w.recordWarning(ctx, iter, "FailedKillPod", "error killing pod: "+err.Error())
			return w.retry(iter, err)
		}
	}
	sandboxID, err := w.ensureSandbox(ctx, iter, snap.runtimePod, actions.Sandbox)
	if err != nil {
		return w.retry(iter, err)
	}
	failedStops, err := w.stopContainers(ctx, iter, snap.runtimePod, actions.Stop)
	resized := w.resizePod(ctx, iter, sandboxID, actions.Resize)
	res := w.startContainers(ctx, iter, sandboxID, actions.Start, failedStops).and(resized)
	if err != nil {
		return w.retry(iter, errors.Join(err, res.err))
	}
	res.reported = res.reported && !actions.KillPod && actions.Sandbox == nil && len(actions.Stop) == 0
	return res
}

// ensureSandbox returns the sandbox in which to start containers: the newest one, or a new one. It publishes the creation at
// once because pulling images may take minutes (GEN-30).
func (w *Workers) ensureSandbox(
	ctx context.Context, iter *iteration, runtimePod *observed.Pod, sandbox *plan.NewSandbox,
) (string, error) {
	if sandbox == nil {
		newest, _ := runtimePod.NewestSandbox()
		return newest.ID, nil
	}
	pod := iter.lifecycle.Pod
	w.setSandboxPending(iter, true)
	id, err := w.config.Runtime.StartSandbox(ctx, pod, sandbox.Attempt)
	if err != nil {
		return "", fmt.Errorf("start sandbox %d of pod %s: %w", sandbox.Attempt, iter.identity(), err)
	}
	w.setSandboxPending(iter, false)
	if err := w.recordActuated(pod, resize.PodLevel); err != nil { // the cgroup was created with what is allocated
		return "", err
	}
	if status, found := w.config.Statuses.GetPodStatus(pod.UID); found {
		w.config.Statuses.SetPodStatus(pod, derive.WithSandboxReady(pod, status))
	}
	return id, nil
}

// stopContainers stops single instances concurrently. It returns the names of the containers that could not be stopped.
func (w *Workers) stopContainers(
	ctx context.Context, iter *iteration, runtimePod *observed.Pod, stops []plan.Stop,
) (map[string]bool, error) {
	ordered := make([]plan.OrderedStop, 0, len(stops))
	for _, stop := range stops {
		ordered = append(ordered, plan.OrderedStop{Stop: stop})
	}
	errs := w.stopInOrder(ctx, iter, ordered)
	failed := map[string]bool{}
	for _, container := range runtimePod.Containers {
		if errs[container.ID] != nil {
			failed[container.Name] = true
		}
	}
	return failed, joinErrors(errs)
}

// startContainers starts containers sequentially in the order of the spec. A slow postStart hook delays the next container,
// and there are pods that rely on it. A container that failed backs off, unless the iteration is urgent.
func (w *Workers) startContainers(
	ctx context.Context, iter *iteration, sandboxID string, starts []plan.Start, failedStops map[string]bool,
) result {
	res := result{reported: true}
	for _, start := range starts {
		name := start.Container.Name
		if failedStops[name] || ctx.Err() != nil {
			continue
		}
		failure, hasFailed := iter.state.startFailures[name]
		if isBackingOff := hasFailed && iter.now.Before(failure.retryAt) && !iter.urgent; !isBackingOff {
			failure = w.startContainer(ctx, iter, sandboxID, start)
			res.reported = false
		}
		if failure.err == nil {
			continue
		}
		if after := time.Until(failure.retryAt); res.err == nil || after < res.requeueAfter {
			res.requeueAfter = after
		}
		res.err = errors.Join(res.err, failure.err)
		if start.Kind == derive.InitContainer {
			break
		}
	}
	return res
}

// startContainer starts a container and remembers a failure for its status.
func (w *Workers) startContainer(ctx context.Context, iter *iteration, sandboxID string, start plan.Start) startFailure {
	name := start.Container.Name
	err := w.journal.recordStart(iter.lifecycle.Pod, sandboxID, start, iter.now)
	if err == nil {
		err = w.recordActuated(iter.lifecycle.Pod, name)
	}
	if err == nil {
		err = w.config.Runtime.StartContainer(ctx, iter.lifecycle.Pod, sandboxID, start)
	}
	if err == nil {
		delete(iter.state.startFailures, name)
		return startFailure{}
	}
	reason := "RunContainerError"
	var typed interface{ WaitingReason() string }
	if errors.As(err, &typed) {
		reason = typed.WaitingReason()
	}
	failure := iter.state.startFailures[name]
	failure.waiting = derive.Waiting{Reason: reason, Message: err.Error()}
	failure.err = fmt.Errorf("start container %s of pod %s: %w", name, iter.identity(), err)
	failure = failure.after(err, w.backoffAfter(failure.count, err), time.Now())
	if iter.state.startFailures == nil {
		iter.state.startFailures = map[string]startFailure{}
	}
	iter.state.startFailures[name] = failure
	return failure
}

// waiting returns why containers could not be started. The caller owns the map.
func (s *syncState) waiting() map[string]derive.Waiting {
	waiting := map[string]derive.Waiting{}
	for name, failure := range s.startFailures {
		waiting[name] = failure.waiting
	}
	return waiting
}
