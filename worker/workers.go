package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Workers drives all pods of a node. All methods are safe for concurrent use.
//
// mu is held only for a few map operations and never while calling out of the package. The sync state of a record belongs to
// the pod's goroutine; mu guards the rest of the record.
type Workers struct {
	config      Config
	metrics     *metrics
	journal     *journal
	hasStarting wakeup.Signal // set when starting grows

	admitMu sync.Mutex // serializes admission; acquired before mu

	mu                sync.Mutex // guards the fields below
	running           bool       // Run is running
	records           map[podid.UID]*record
	staticPods        staticPodQueue
	starting          []*record          // records that need a goroutine
	awaitingAdmission map[podid.UID]bool // rejected static pods
	allSourcesSeen    bool               // housekeeping has run with every source ready (PW-41)
}

// New returns Workers. It validates the config, registers the metrics and reads the run-once journal.
func New(config Config) (*Workers, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Workers{
		config:            config,
		hasStarting:       wakeup.New(),
		records:           map[podid.UID]*record{},
		staticPods:        newStaticPodQueue(),
		awaitingAdmission: map[podid.UID]bool{},
	}
	if w.journal, err = openJournal(config.State); err != nil {
		config.Logger.Error("Failed to load run-once journal", "err", err)
	}
	if w.metrics, err = newMetrics(config.Metrics, w); err != nil {
		return nil, err
	}
	return w, nil
}

// Run drives the pods until ctx ends and returns nil when all sync iterations have ended. It leaves the containers running.
// Updates that arrived before Run are handled now. It returns an error if another Run is in progress.
func (w *Workers) Run(ctx context.Context) error {
	if !w.setRunning() {
		return errors.New("worker: Run is already running")
	}
	var pods sync.WaitGroup
	for ctx.Err() == nil {
		for _, r := range w.takeStarting() {
			pods.Go(func() { w.runPod(ctx, r) })
		}
		select {
		case <-ctx.Done():
		case <-w.hasStarting:
		}
	}
	pods.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	return nil
}

// setRunning reports whether no other Run was in progress.
func (w *Workers) setRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := !w.running
	w.running = true
	return ok
}

func (w *Workers) takeStarting() []*record {
	w.mu.Lock()
	defer w.mu.Unlock()
	starting := w.starting
	w.starting = nil
	return starting
}

// wakeLocked triggers a sync iteration and starts the pod's goroutine if it has none.
func (w *Workers) wakeLocked(r *record) {
	if r.admitting {
		return
	}
	r.wake.Set()
	if !r.active {
		r.active = true
		w.enqueueLocked(r)
	}
}

// enqueueLocked hands the record to Run, which starts a goroutine for it.
func (w *Workers) enqueueLocked(r *record) {
	w.starting = append(w.starting, r)
	w.hasStarting.Set()
}

// Update is a change that is requested for a pod. Its pods must not be modified afterwards.
type Update = plan.Update

// UpdatePod applies an update and returns without waiting for the sync. Only the newest of several updates before the next
// sync iteration counts (PW-11).
func (w *Workers) UpdatePod(update Update) { w.update(update, nil) }

// Wake triggers a sync iteration because the pod may have changed: its containers or a probe result. Calls before the next
// iteration coalesce. Unknown pods are ignored.
func (w *Workers) Wake(uid podid.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, found := w.records[uid]; found && r.lifecycle.Step() != plan.StepIdle {
		w.wakeLocked(r)
	}
}

// update implements UpdatePod. stopped, if not nil, is closed when the pod's containers have stopped or when there is nothing
// to wait for (PW-9, PW-10).
func (w *Workers) update(update Update, stopped chan<- struct{}) {
	uid, ok := uidOf(update)
	if !ok {
		if stopped != nil {
			close(stopped)
		}
		return
	}
	cached := w.config.PodCache.Get(uid)
	w.mu.Lock()
	r, found := w.records[uid]
	if !found {
		r = newRecord(uid, time.Now())
	}
	next, effects := r.lifecycle.Apply(update, cached)
	if stopped != nil {
		r.waiters = append(r.waiters, stopped)
	}
	if effects.Ignored {
		if r.lifecycle.Stage != plan.Terminating {
			r.releaseWaitersLocked()
		}
		w.mu.Unlock()
		return
	}
	needsAdmission := !found && next.Stage == plan.Syncing && !next.IsStatic()
	r.admitting = r.admitting || needsAdmission
	r.urgent = r.urgent || update.Op != plan.OpSync || effects.Interrupt
	w.records[uid] = r
	w.transitionLocked(r, next)
	if effects.Interrupt && r.interrupt != nil {
		r.interrupt()
	}
	w.mu.Unlock()
	if needsAdmission {
		w.admitAPIPod(r, update.Pod)
	}
}

func uidOf(update Update) (podid.UID, bool) {
	switch {
	case update.Pod != nil:
		return podid.UID(update.Pod.UID), true
	case update.RunningPod != nil:
		return update.RunningPod.UID, true
	default:
		return "", false
	}
}

// transition applies a lifecycle transition to the newest lifecycle, which updates may have changed during the iteration.
func (w *Workers) transition(iter *iteration, next func(plan.Lifecycle) plan.Lifecycle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.transitionLocked(iter.record, next(iter.record.lifecycle))
}

// transitionLocked stores the next lifecycle and wakes everything that depends on it.
func (w *Workers) transitionLocked(r *record, next plan.Lifecycle) {
	if r.lifecycle.Stage < plan.Terminated && next.Stage >= plan.Terminated {
		w.retryAdmissionsLocked()
	}
	if r.lifecycle.Stage != next.Stage || next.Stage == plan.Finished {
		r.stageAt = time.Now()
	}
	r.lifecycle = next
	if next.Stage != plan.Terminating {
		r.releaseWaitersLocked()
	}
	if next.Stage != plan.Syncing {
		r.refuseRestartsLocked()
	}
	switch {
	case next.Stage == plan.Syncing && next.IsStatic() && !next.Started:
		w.staticPods.enqueue(next.Name, r.uid)
	case next.Stage != plan.Syncing:
		w.staticPods.dequeue(next.Name, r.uid)
	}
	if next.Stage == plan.Finished {
		w.staticPods.release(next.Name, r.uid)
	}
	w.wakeLocked(r)
	w.wakeFirstLocked(next.Name)
}

// wakeFirstLocked wakes the first static pod that waits for the name, so that it does not have to poll (PW-16).
func (w *Workers) wakeFirstLocked(name podid.FullName) {
	if uid, ok := w.staticPods.first(name); ok {
		if r, found := w.records[uid]; found {
			w.wakeLocked(r)
		}
	}
}

// WithoutAdmissions calls f while no pod is being admitted, so that f can give resources of the node away, too. f must not call
// UpdatePod.
func (w *Workers) WithoutAdmissions(f func()) {
	w.admitMu.Lock()
	defer w.admitMu.Unlock()
	f()
}

// minKillTimeout is the least time that KillPod waits.
const minKillTimeout = 10 * time.Second

// KillPod terminates the pod and waits until its containers have stopped, for one and a half times its grace period but at
// least 10s. If it returns an error, the termination continues (PW-23).
func (w *Workers) KillPod(ctx context.Context, pod *v1.Pod, options plan.KillOptions) error {
	stopped := make(chan struct{})
	w.update(Update{Op: plan.OpKill, Pod: pod, Kill: options}, stopped)
	gracePeriod := plan.GracePeriod(pod)
	if options.GracePeriod != nil {
		gracePeriod = *options.GracePeriod
	}
	timeout := max(minKillTimeout, gracePeriod+gracePeriod/2)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill pod %s (%s): %w", podid.FullNameOf(pod), pod.UID, ctx.Err())
	case <-timer.C:
		message := fmt.Sprintf("Container runtime did not kill the pod within %v.", timeout)
		w.config.Events.Event(pod, v1.EventTypeWarning, "ExceededGracePeriod", message)
		return fmt.Errorf("kill pod %s (%s): still running after %v", podid.FullNameOf(pod), pod.UID, timeout)
	}
}

// PodCouldHaveRunningContainers reports whether a container of the pod is running or may still be started. Before housekeeping
// has run with all sources ready, it returns true for unknown pods (PW-41, PW-42).
func (w *Workers) PodCouldHaveRunningContainers(uid podid.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, found := w.records[uid]; found {
		return r.lifecycle.CouldHaveRunningContainers()
	}
	return !w.allSourcesSeen
}

// PodResourcesAreReclaimed reports whether nothing of the pod is left on the node: the pod is finished, which implies that
// its volumes are unmounted, and the runtime holds nothing of it (SM-76) except records that it fails to remove.
func (w *Workers) PodResourcesAreReclaimed(pod *v1.Pod, _ *v1.PodStatus) bool {
	uid := podid.UID(pod.UID)
	if !w.IsFinished(uid) {
		return false
	}
	cached := w.config.PodCache.Get(uid)
	return len(cached.Containers) == 0 && len(cached.Sandboxes) == 0 || !cached.Running() && w.hasOnlyRecords(uid)
}

func (w *Workers) hasOnlyRecords(uid podid.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.records[uid]
	return found && r.onlyRecords
}

// IsFinished reports whether the pod needs nothing of the node any more (PW-41, PW-42).
func (w *Workers) IsFinished(uid podid.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, found := w.records[uid]; found {
		return r.lifecycle.Stage == plan.Finished
	}
	return w.allSourcesSeen
}

// IsTerminating reports whether the static pod of that name was started and is being stopped. Its mirror pod must not be
// deleted before it has stopped (PW-43).
func (w *Workers) IsTerminating(name podid.FullName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.records[w.staticPods.started[name]]
	return found && r.lifecycle.Stage == plan.Terminating
}
