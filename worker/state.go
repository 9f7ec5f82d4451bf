package worker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// PodState is a snapshot of one pod's worker. Callers do not modify what it refers to.
type PodState struct {
	UID   podid.UID
	Name  podid.FullName
	Stage plan.Stage
	// Started is false while a static pod waits for its name. Callers treat such a pod as absent (PW-19).
	Started bool
	// Admitted reports whether the node admitted the pod. An admitted pod occupies the node until it is terminated.
	Admitted bool
	// Rejected is why the node does not run the pod, or nil. A static pod is asked for again.
	Rejected error
	// WaitsFor is the pod with the same name that must end before this static pod starts (PW-15).
	WaitsFor podid.UID
	// StageAt is when the pod entered the stage.
	StageAt time.Time
	// StartedTerminating reports that no container of the pod will be started any more (PW-28, PW-42).
	StartedTerminating bool
	// Pod is nil if only the runtime knows the pod.
	Pod *v1.Pod
	// AddedAt is when the first update of the pod arrived.
	AddedAt time.Time
	// Err is the error of the last sync iteration, or nil (BUG-31).
	Err error
	Progress
	// Stopping has the containers that are being stopped, sorted by name.
	Stopping []Stopping
}

// Progress is what the last sync iteration found.
type Progress struct {
	// Failures counts the failed iterations in a row. RetryAt is when the next attempt follows; zero without an error.
	Failures int
	RetryAt  time.Time
	// VolumesPending reports that the volumes are being mounted for the first time, or could not be mounted.
	VolumesPending bool
	// SandboxPending reports that a sandbox is being created, or could not be created.
	SandboxPending bool
	// Starts has the containers that failed to start or wait for the end of their crash-loop backoff, by name.
	Starts map[string]NextStart
}

// NextStart is the next start of a container.
type NextStart struct {
	// Waiting has the reason and message of the container's waiting state.
	Waiting derive.Waiting
	// At is when the container is started.
	At time.Time
	// Failures counts the failed starts or the short runs in a row, Delay is the time that At follows the last one.
	Failures int
	Delay    time.Duration
}

// Stopping is an instance of a container that is being stopped.
type Stopping struct {
	Container string
	ID        observed.ContainerID
	Reason    plan.StopReason
	Message   string
	// Since is when the first attempt to stop it began, KillAt when the grace period ends.
	Since, KillAt time.Time
	// PreStop reports that the preStop hook is running.
	PreStop bool
}

// Pod returns the state of one pod. It returns false if the pod has no worker.
func (w *Workers) Pod(uid podid.UID) (PodState, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.records[uid]
	if !found {
		return PodState{}, false
	}
	return w.podStateLocked(r), true
}

// Pods returns the state of all pods, sorted by name and UID.
func (w *Workers) Pods() []PodState {
	w.mu.Lock()
	states := make([]PodState, 0, len(w.records))
	for _, r := range w.records {
		states = append(states, w.podStateLocked(r))
	}
	w.mu.Unlock()
	slices.SortFunc(states, func(a, b PodState) int {
		return cmp.Or(cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name),
			cmp.Compare(a.UID, b.UID))
	})
	return states
}

func (w *Workers) podStateLocked(r *record) PodState {
	state := PodState{
		UID: r.uid, Name: r.lifecycle.Name, Stage: r.lifecycle.Stage, Started: r.lifecycle.Started,
		Admitted: r.admission.decided && r.admission.err == nil, Rejected: r.rejected, StageAt: r.stageAt,
		StartedTerminating: r.lifecycle.StartedTerminating, Pod: r.lifecycle.Pod, AddedAt: r.addedAt, Err: r.err,
		Progress: r.progress, Stopping: r.stopping,
	}
	if r.lifecycle.Stage != plan.Syncing { // of before
		state.Starts, state.VolumesPending, state.SandboxPending = nil, false, false
	}
	if r.lifecycle.Stage == plan.Syncing && r.lifecycle.IsStatic() && !r.lifecycle.Started {
		state.WaitsFor = w.predecessorLocked(r)
	}
	return state
}

// predecessorLocked returns the pod that a static pod waits for: the one that has its name, else the first in the queue, else one
// of an earlier agent.
func (w *Workers) predecessorLocked(r *record) podid.UID {
	if holder, taken := w.staticPods.started[r.lifecycle.Name]; taken {
		return holder
	}
	if first, found := w.staticPods.first(r.lifecycle.Name); found && first != r.uid {
		return first
	}
	return r.predecessor
}

// newProgress returns the progress after an iteration.
func (iter *iteration) newProgress(res result) Progress {
	state := &iter.state
	p := iter.progress
	p.Failures, p.RetryAt, p.Starts = 0, time.Time{}, state.nextStarts()
	if res.err == nil {
		return p
	}
	p.Failures = max(1, state.consecutiveFailures, state.consecutiveRejections)
	p.RetryAt = time.Now().Add(max(res.requeueAfter, res.backoff))
	if res.backoff == 0 && len(state.startFailures) > 0 {
		p.RetryAt = time.Time{}
		for _, failure := range state.startFailures {
			if p.RetryAt.IsZero() || failure.startAt.Before(p.RetryAt) {
				p.RetryAt = failure.startAt
			}
			p.Failures = max(p.Failures, failure.attempts)
		}
	}
	return p
}

// nextStarts returns the next starts of the pod's containers, or nil if there are none.
func (s *syncState) nextStarts() map[string]NextStart {
	if len(s.waitingStarts)+len(s.startFailures) == 0 {
		return nil
	}
	starts := make(map[string]NextStart, len(s.waitingStarts)+len(s.startFailures))
	for name, failure := range s.startFailures {
		starts[name] = NextStart{
			Waiting: failure.waiting, At: later(failure.startAt, s.retryAt), Failures: failure.attempts, Delay: failure.delay,
		}
	}
	for name, waiting := range s.waitingStarts {
		start := NextStart{Waiting: waiting, At: later(waiting.Until, s.retryAt)}
		for key, loop := range s.backoff {
			if key.Name == name {
				start.Failures, start.Delay = loop.Runs, loop.Delay()
			}
		}
		starts[name] = start
	}
	return starts
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// publishStarts publishes the starts that the iteration leaves for later, before it begins with those that are due: a start may
// take minutes.
func (w *Workers) publishStarts(iter *iteration) {
	starts := iter.state.nextStarts()
	if starts == nil && iter.progress.Starts == nil { // only this goroutine writes it
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	iter.progress.Starts = starts
}

func (w *Workers) setVolumesPending(iter *iteration, pending bool) {
	if iter.progress.VolumesPending == pending { // only this goroutine writes it
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	iter.progress.VolumesPending = pending
}

func (w *Workers) setSandboxPending(iter *iteration, pending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	iter.progress.SandboxPending = pending
}

// after returns the failure with one more failure, which is retried after backoff. A runtime that says when to retry has refused
// the start because of an earlier failure.
func (f startFailure) after(err error, backoff time.Duration, now time.Time) startFailure {
	f.count++
	f.retryAt = now.Add(backoff)
	var hint interface{ RetryAfter() time.Duration }
	if !errors.As(err, &hint) || hint.RetryAfter() <= 0 {
		f.attempts++
		f.startAt, f.delay = f.retryAt, backoff
		return f
	}
	startAt := now.Add(hint.RetryAfter())
	f.delay += startAt.Sub(f.startAt)
	if f.attempts == 0 {
		f.attempts, f.delay = 1, hint.RetryAfter()
	}
	f.startAt = startAt
	return f
}

// beginStop publishes that an instance is being stopped. The returned function ends its preStop hook.
func (w *Workers) beginStop(iter *iteration, stop plan.Stop) (preStopDone func()) {
	now := time.Now()
	stopping := Stopping{
		Container: w.containerName(iter.uid, stop), ID: stop.ID, Reason: stop.Reason, Message: stop.Message,
		Since: now, KillAt: now.Add(stop.AfterWaiting(0).Grace), PreStop: hasPreStop(stop),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make([]Stopping, 0, len(iter.stopping)+1)
	for _, other := range iter.stopping {
		if other.ID == stop.ID {
			stopping.Since = other.Since
			continue
		}
		next = append(next, other)
	}
	next = append(next, stopping)
	slices.SortFunc(next, func(a, b Stopping) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.ID.ID, b.ID.ID))
	})
	iter.stopping = next
	return func() { w.endPreStop(iter, stop.ID) }
}

func hasPreStop(stop plan.Stop) bool {
	container := stop.Container
	return container != nil && container.Lifecycle != nil && container.Lifecycle.PreStop != nil && stop.Grace > 0 && !stop.SkipPreStop
}

// containerName returns the name of the container to stop, also if the pod does not have it any more.
func (w *Workers) containerName(uid podid.UID, stop plan.Stop) string {
	if stop.Container != nil {
		return stop.Container.Name
	}
	for _, container := range w.config.PodCache.Get(uid).Containers {
		if container.ID == stop.ID {
			return container.Name
		}
	}
	return ""
}

func (w *Workers) endPreStop(iter *iteration, id observed.ContainerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(iter.stopping, func(s Stopping) bool { return s.ID == id })
	if i >= 0 && iter.stopping[i].PreStop {
		iter.stopping = slices.Clone(iter.stopping)
		iter.stopping[i].PreStop = false
	}
}

// endStop removes an instance that has stopped. One that could not be stopped stays until it ends: it is tried again.
func (w *Workers) endStop(iter *iteration, id observed.ContainerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var next []Stopping
	for _, other := range iter.stopping {
		if other.ID != id {
			next = append(next, other)
		}
	}
	iter.stopping = next
}

// noticeEnds removes the instances that have ended from those that are being stopped, and answers who waits for their end.
func (w *Workers) noticeEnds(iter *iteration, runtimePod *observed.Pod) {
	if len(iter.stopping) > 0 { // no stop is in progress, so nobody else writes it
		for _, stopping := range iter.stopping {
			if instance := findInstance(runtimePod, stopping.ID); instance == nil || instance.State == observed.Exited {
				w.endStop(iter, stopping.ID)
			}
		}
	}
	w.completeRestarts(iter, runtimePod)
}

func findInstance(runtimePod *observed.Pod, id observed.ContainerID) *observed.Container {
	for i := range runtimePod.Containers {
		if runtimePod.Containers[i].ID == id {
			return &runtimePod.Containers[i]
		}
	}
	return nil
}
