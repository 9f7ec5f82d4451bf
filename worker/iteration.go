package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// record is one pod, identified by its UID, from its first update until housekeeping deletes it.
type record struct {
	uid  podid.UID
	wake wakeup.Signal // triggers a sync iteration
	// state belongs to the pod's goroutine.
	state syncState

	// Workers.mu guards the fields below.

	lifecycle plan.Lifecycle
	addedAt   time.Time // first update, or restart of a static pod
	admitting bool      // admission is in progress; the pod is not synced before it ends
	admission admission
	active    bool               // has a goroutine or is about to get one
	urgent    bool               // the next iteration ignores backoff
	interrupt context.CancelFunc // cancels the current iteration; nil if there is none
	waiters   []chan<- struct{}  // closed when the pod's containers have stopped
	orphaned  bool               // no source wants the pod
	stageAt   time.Time          // last transition to the stage of the lifecycle
	// onlyRecords reports that the pod holds nothing but records of stopped containers, which the runtime fails to remove.
	onlyRecords bool
	findings
}

// findings is what the last iterations found, and what is requested of the next one.
type findings struct {
	err         error     // error of the last iteration
	rejected    error     // why the node does not run the pod; nil if it does
	predecessor podid.UID // pod of an earlier agent with the same name, which still runs
	progress    Progress  // written by the pod's goroutine only
	stopping    []Stopping
	restarts    []*restartRequest // requested and not yet answered
}

// syncState is carried over from one sync iteration to the next.
type syncState struct {
	// minObserved is when the worker last acted on the pod, or when it was added. Older observations are not used (PW-26).
	minObserved time.Time
	backoff     plan.Backoff
	restartAll  plan.RestartAll
	// startFailures holds the containers that failed to start, until they start.
	startFailures map[string]startFailure
	// consecutiveActions counts the iterations in a row that acted on the pod.
	consecutiveActions int
	// consecutiveFailures counts the failed iterations in a row since the last urgent one.
	consecutiveFailures int
	// consecutiveRejections counts the admission failures in a row.
	consecutiveRejections int
	// retryAt is when a failed iteration may be retried.
	retryAt time.Time
	// stopDeadline is the end of the grace period of an interrupted stop. Zero if there is none.
	stopDeadline time.Time
	// preStopsRun holds the instances that may still run although their preStop hook has: it does not run again.
	preStopsRun map[observed.ContainerID]bool
	// reportedBackoffs holds the end of the crash-loop backoff that was last reported for each container.
	reportedBackoffs map[string]time.Time
	// startMeasured reports that the start duration was observed (BUG-34).
	startMeasured bool
	// waitingStarts holds the containers that wait for the end of their crash-loop backoff.
	waitingStarts map[string]derive.Waiting
	// mounted reports that the last mount of the volumes succeeded.
	mounted bool
	// resizeFailure is why a resize in progress could not be applied.
	resizeFailure resizeFailure
}

// startFailure is why a container failed to start (PH-31) and when the start may be retried. A failed attempt itself causes
// runtime events, which must not trigger an immediate retry.
type startFailure struct {
	waiting derive.Waiting
	err     error
	retryAt time.Time
	// startAt is when the start is attempted in fact. Before it, the runtime would only refuse again.
	startAt time.Time
	delay   time.Duration // from the last attempt to startAt
	// count counts the failures in a row, attempts those that were not refused.
	count, attempts int
}

func newRecord(uid podid.UID, now time.Time) *record {
	return &record{uid: uid, wake: wakeup.New(), state: syncState{minObserved: now}, addedAt: now}
}

func (r *record) releaseWaitersLocked() {
	for _, stopped := range r.waiters {
		close(stopped)
	}
	r.waiters = nil
}

// iteration is one sync iteration of a pod. It captures the state at its beginning, and it alone uses the record's sync state
// while it runs.
type iteration struct {
	*record
	step      plan.Step
	lifecycle plan.Lifecycle
	admission admission
	urgent    bool
	delay     time.Duration // a static pod that cannot start yet tries again after this time
	now       time.Time
	begun     []*restartRequest // restarts that begin in this iteration
	planned   *plan.Actions     // nil until the actions were computed
}

// result is the outcome of a sync iteration.
type result struct {
	// requeueAfter is the time until the next iteration. Zero requeues immediately.
	requeueAfter time.Duration
	// backoff suppresses retries, except for urgent iterations. Wake-ups by the runtime do not shorten it because a failed
	// attempt may cause them itself.
	backoff time.Duration
	err     error
	// reported is true if an earlier iteration reported err already, and this one attempted nothing.
	reported bool
}

// retry returns the result of a failed iteration, which is retried with backoff or when the error says (PW-31).
func (w *Workers) retry(iter *iteration, err error) result {
	backoff := w.backoffAfter(iter.state.consecutiveFailures, err)
	iter.state.consecutiveFailures++
	return result{requeueAfter: backoff, backoff: backoff, err: err}
}

// initialBackoff is the time until the first retry. It doubles up to Config.Backoff: many failures last for a moment only,
// for example because a cache of the API server does not have the pod yet.
const initialBackoff = 100 * time.Millisecond

// backoffAfter returns the time until the next attempt after an error and the given number of failures before it.
func (w *Workers) backoffAfter(failures int, err error) time.Duration {
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) && hint.RetryAfter() > 0 {
		return min(hint.RetryAfter(), w.config.Resync)
	}
	const maxDoublings = 20
	return withJitter(min(initialBackoff<<min(failures, maxDoublings), w.config.Backoff))
}

// backingOff reports whether the iteration must not attempt anything yet, and returns its result.
func (iter *iteration) backingOff() (result, bool) {
	left := iter.state.retryAt.Sub(iter.now)
	return result{requeueAfter: left, backoff: left, err: iter.err, reported: true}, left > 0 && !iter.urgent
}

// identity returns the pod's name and UID for error messages.
func (iter *iteration) identity() string {
	return fmt.Sprintf("%s (%s)", iter.lifecycle.Name, iter.uid)
}

// withJitter adds up to half of d, so that simultaneous failures are not retried simultaneously.
func withJitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*float64(d)/2) //nolint:gosec // spreads load, not security-relevant
}

// runPod runs sync iterations until the pod is idle or ctx ends.
func (w *Workers) runPod(ctx context.Context, r *record) {
	for {
		iterCtx, cancel := context.WithCancelCause(ctx)
		iter, ok := w.beginIteration(r, func() { cancel(plan.ErrInterrupted) })
		if !ok {
			cancel(nil)
			return
		}
		requeueAfter := w.runIteration(iterCtx, iter)
		cancel(nil)
		if !waitForWake(ctx, r.wake, requeueAfter) {
			w.mu.Lock()
			w.enqueueLocked(r) // for the next Run
			w.mu.Unlock()
			return
		}
	}
}

// waitForWake waits for a wake-up or the timeout. It returns false if ctx ended.
func waitForWake(ctx context.Context, wake wakeup.Signal, timeout time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if timeout <= 0 {
		return true
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// beginIteration returns the next iteration. It returns false if the pod is idle; the goroutine ends then.
func (w *Workers) beginIteration(r *record, interrupt context.CancelFunc) (*iteration, bool) {
	hasPredecessor := w.hasRunningPredecessor(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-r.wake: // this iteration handles it
	default:
	}
	if r.lifecycle.NeverStarted() {
		w.transitionLocked(r, r.lifecycle.FinishUnstarted())
	}
	if r.lifecycle.Step() == plan.StepIdle {
		w.retireLocked(r)
		return nil, false
	}
	iter := &iteration{record: r, step: r.lifecycle.Step(), urgent: r.urgent, admission: r.admission, now: time.Now()}
	switch {
	case iter.step != plan.StepSync || r.lifecycle.Started:
	case hasPredecessor:
		iter.delay = withJitter(time.Second)
	case !r.lifecycle.IsStatic() || w.staticPods.start(r.lifecycle.Name, r.uid):
		r.lifecycle = r.lifecycle.Start()
		w.metrics.startDuration.Observe(iter.now.Sub(r.addedAt).Seconds())
		w.metrics.containers.Observe(float64(len(r.lifecycle.Pod.Spec.Containers)))
	default:
		iter.delay = withJitter(w.config.Backoff) // fallback; normally wakeFirstLocked wakes the pod (PW-16)
	}
	iter.lifecycle, r.urgent, r.interrupt = r.lifecycle, false, interrupt
	iter.takeRestartsLocked()
	return iter, true
}

// retireLocked ends the pod's goroutine. It deletes the record of a pod that only the runtime knew (PW-30). Any other record
// stays, so that late updates do not start the pod again (PW-6).
func (w *Workers) retireLocked(r *record) {
	r.active = false
	if r.lifecycle.Pod == nil {
		delete(w.records, r.uid)
	}
}

// hasRunningPredecessor reports whether the runtime may run another pod of the static pod's name that was started by an
// earlier agent. The static pod waits until housekeeping has killed it. If the other pod is desired too, it runs first.
func (w *Workers) hasRunningPredecessor(r *record) bool {
	w.mu.Lock()
	lifecycle := r.lifecycle
	w.mu.Unlock()
	if lifecycle.Stage != plan.Syncing || lifecycle.Started || !lifecycle.IsStatic() {
		return false
	}
	pods, listedAt := w.config.PodCache.Pods()
	if listedAt.IsZero() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.predecessor = ""
	for _, pod := range pods {
		if pod.Name != lifecycle.Name || pod.UID == r.uid || !pod.Running() {
			continue
		}
		other, found := w.records[pod.UID]
		if found && w.staticPods.moveToFront(lifecycle.Name, pod.UID) {
			w.wakeLocked(other)
		}
		if !found || other.lifecycle.CouldHaveRunningContainers() {
			r.predecessor = pod.UID
			return true
		}
	}
	return false
}

// runIteration runs the iteration and returns the time until the next one.
func (w *Workers) runIteration(ctx context.Context, iter *iteration) time.Duration {
	switch {
	case iter.delay > 0:
		return iter.delay
	case iter.step == plan.StepRestart:
		w.restart(iter.record)
		return 0
	}
	if iter.urgent {
		iter.state.consecutiveFailures = 0 // the pod changed, so may the outcome
	}
	res := w.runStepOrRecover(ctx, iter)
	w.metrics.observeIteration(iter.lifecycle, time.Since(iter.now))
	interrupted := ctx.Err() != nil
	iter.state.retryAt = time.Time{}
	if res.err == nil {
		iter.state.consecutiveFailures = 0
	}
	if res.backoff > 0 && !interrupted {
		iter.state.retryAt = time.Now().Add(res.backoff)
	}
	w.mu.Lock()
	iter.interrupt = nil
	if !interrupted {
		iter.err = res.err
		iter.progress = iter.newProgress(res)
	}
	w.mu.Unlock()
	w.finishRestarts(iter, res)
	if interrupted {
		return 0 // a newer update is waiting
	}
	if res.err != nil && !res.reported {
		w.config.Logger.Error("Failed to sync pod", "pod", iter.lifecycle.Name.Key(), "podUID", iter.uid,
			"stage", iter.lifecycle.Stage.String(), "retryAfter", max(res.requeueAfter, res.backoff), "err", res.err)
	}
	return res.requeueAfter
}

// runStepOrRecover runs the iteration's step. A panic is an error of this pod only, which is retried with backoff.
func (w *Workers) runStepOrRecover(ctx context.Context, iter *iteration) (res result) {
	defer func() {
		if value := recover(); value != nil {
			iter.state.minObserved = time.Now() // the step may have acted
			res = w.retry(iter, w.panicError(iter.lifecycle.Name, iter.uid, value))
		}
	}()
	return w.runStep(ctx, iter)
}

// panicError counts a recovered panic, logs it with its stack and returns it as an error. Call it in the deferred function
// that recovers.
func (w *Workers) panicError(name podid.FullName, uid podid.UID, value any) error {
	w.metrics.panics.Inc()
	w.config.Logger.Error("Recovered from panic", "pod", name.Key(), "podUID", uid, "panic", value, "stack", string(debug.Stack()))
	return fmt.Errorf("handle pod %s (%s): panic: %v", name, uid, value)
}

func (w *Workers) runStep(ctx context.Context, iter *iteration) result {
	if res, ok := iter.backingOff(); ok && iter.step != plan.StepSync { // a sync still publishes the status
		return res
	}
	switch iter.step {
	case plan.StepSync:
		return w.sync(ctx, iter)
	case plan.StepTerminate:
		return w.terminate(ctx, iter)
	case plan.StepCleanUp:
		return w.cleanUp(ctx, iter)
	case plan.StepRemove:
		return w.remove(ctx, iter)
	default:
		panic(fmt.Sprintf("worker: pod %s has unknown step %d", iter.uid, iter.step))
	}
}

// restart begins the new life of a static pod that was removed and re-added, unless it was removed again (PW-5, PW-45).
func (w *Workers) restart(r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.lifecycle.Step() != plan.StepRestart {
		return
	}
	w.metrics.restarts.WithLabelValues(staticLabel(r.lifecycle.Recreated)).Inc()
	r.addedAt, r.admission, r.orphaned, r.onlyRecords = time.Now(), admission{}, false, false
	r.state, r.progress, r.rejected = syncState{minObserved: r.addedAt}, Progress{}, nil
	w.transitionLocked(r, r.lifecycle.Restart())
}
