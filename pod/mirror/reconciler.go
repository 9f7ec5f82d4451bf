package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/internal/apierror"
	"github.com/heraldnode/herald/podid"
)

// Pods is the part of the pod manager that a Reconciler needs. *pod.Manager implements it.
type Pods interface {
	// GetPodByFullName returns the pod to run with this name. It never returns a mirror pod.
	GetPodByFullName(name podid.FullName) (*v1.Pod, bool)
	// GetStaticPodAndMirrorPod returns a consistent snapshot of the pair; nil for a missing half.
	GetStaticPodAndMirrorPod(name podid.FullName) (static, mirror *v1.Pod)
	// GetMirroredNames returns every full name that has a static pod, a mirror pod or both. The slice belongs to the caller.
	GetMirroredNames() []podid.FullName
}

// Config configures a Reconciler. Fields without a default are required.
type Config struct {
	// NodeName is the name of this node's Node object, which owns the mirror pods.
	NodeName string

	// Pods holds the static pods, and the mirror pods as the watch shows them.
	Pods Pods

	// API is the API server. Default: none; Run returns at once (PM-17).
	API API

	// Terminating reports whether a static pod of this name was started and is still being terminated. Its mirror pod is
	// kept until it returns false (PM-25, PW-43). It must not block. Enqueue the name when it turns false; otherwise the
	// Reconciler notices within a second.
	Terminating func(podid.FullName) bool

	// StaticSourcesReady reports whether every file and URL source has delivered its pods. Until then a mirror pod without
	// static pod is kept. It covers all sources because a mirror pod does not name its static pod's source: the API source
	// overwrites the annotation. It must not block.
	StaticSourcesReady func() bool

	// Events receives a warning for each conflict. Default: event.Discard.
	Events event.Recorder

	// Logger receives log messages. Default: slog.DiscardHandler.
	Logger *slog.Logger

	// Metrics registers herald_mirror_operations_total and herald_mirror_conflicts. Default: none.
	Metrics prometheus.Registerer

	// Workers is the number of names that are reconciled concurrently. Default: 4, which creates the mirror pods of a
	// hundred static pods in less than a second at 20ms per request.
	Workers int

	// Resync is the interval at which all names are reconciled, which makes up for missed Enqueue calls. It sends no request
	// unless something differs. Default: 10s, the resync interval of the status manager.
	Resync time.Duration

	// ConfirmAfter is how long to wait for the watch to show an own write before reading the pod. The interval doubles with
	// each read, up to 32 times. Default: 10s.
	ConfirmAfter time.Duration
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("mirror.Config: NodeName is required"))
	}
	if c.Pods == nil {
		errs = append(errs, errors.New("mirror.Config: Pods is required"))
	}
	if c.Terminating == nil {
		errs = append(errs, errors.New("mirror.Config: Terminating is required"))
	}
	if c.StaticSourcesReady == nil {
		errs = append(errs, errors.New("mirror.Config: StaticSourcesReady is required"))
	}
	if c.Workers < 0 {
		errs = append(errs, errors.New("mirror.Config: Workers must not be negative"))
	}
	if c.Resync < 0 {
		errs = append(errs, errors.New("mirror.Config: Resync must not be negative"))
	}
	if c.ConfirmAfter < 0 {
		errs = append(errs, errors.New("mirror.Config: ConfirmAfter must not be negative"))
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Workers = cmp.Or(c.Workers, 4)
	c.Resync = cmp.Or(c.Resync, 10*time.Second)
	c.ConfirmAfter = cmp.Or(c.ConfirmAfter, 10*time.Second)
	return c, errors.Join(errs...)
}

// Reconciler maintains exactly one mirror pod for each static pod, and none for names without static pod. It is
// level-triggered: it compares desired and actual state and takes one step after the other.
//
// Its methods are safe for concurrent use. The queue hands a name to at most one worker at a time, and that worker owns the
// name's record.
type Reconciler struct {
	config    Config
	client    client
	owner     *nodeOwner
	backoff   backoff
	conflicts *conflictTracker

	queue atomic.Pointer[nameQueue] // nil unless Run is running

	mu          sync.Mutex // guards records (the map, not its values) and pausedUntil
	records     map[podid.FullName]*record
	pausedUntil time.Time // Retry-After of the API server
}

// nameQueue delays but does not rate-limit: backoff computes the delays, which must hold against an Enqueue too.
type nameQueue = workqueue.TypedDelayingInterface[podid.FullName]

// New returns a Reconciler and registers its metrics.
func New(config Config) (*Reconciler, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	client := newClient(config.API)
	conflicts := newConflictTracker(config.Logger, config.Events)
	if config.Metrics != nil {
		for _, metric := range []prometheus.Collector{client.requests, conflicts.gauge} {
			if err := config.Metrics.Register(metric); err != nil {
				return nil, fmt.Errorf("mirror: register metrics: %w", err)
			}
		}
	}
	return &Reconciler{
		config:    config,
		client:    client,
		owner:     newNodeOwner(config.NodeName, client, config.Logger),
		backoff:   newBackoff(),
		conflicts: conflicts,
		records:   map[podid.FullName]*record{},
	}, nil
}

// errAlreadyRunning is returned by a second concurrent Run.
var errAlreadyRunning = errors.New("mirror: Run is already running")

// Run reconciles until ctx is done, and then returns nil. Without an API server it returns nil at once (PM-17). A second
// concurrent Run returns an error.
func (r *Reconciler) Run(ctx context.Context) error {
	if r.config.API == nil {
		return nil
	}
	queue := workqueue.NewTypedDelayingQueue[podid.FullName]()
	if !r.queue.CompareAndSwap(nil, &queue) {
		queue.ShutDown()
		return errAlreadyRunning
	}
	var workers sync.WaitGroup
	for range r.config.Workers {
		workers.Go(func() { r.runWorker(ctx, queue) })
	}
	r.resync(ctx)
	r.queue.Store(nil)
	queue.ShutDown()
	workers.Wait()
	return nil
}

// Enqueue schedules the name for reconciliation. Call it when a static or mirror pod of that name changed, or when such a
// pod has terminated. It does not block, and calls before the name is processed are coalesced. Before Run it does nothing:
// Run starts with all names.
func (r *Reconciler) Enqueue(name podid.FullName) {
	if queue := r.queue.Load(); queue != nil {
		(*queue).Add(name)
	}
}

// Conflicts returns the static pods that the cluster cannot see until an operator acts, sorted by name.
func (r *Reconciler) Conflicts() []Conflict { return r.conflicts.list() }

// resync enqueues all names at once and then periodically, until ctx is done.
func (r *Reconciler) resync(ctx context.Context) {
	ticker := time.NewTicker(r.config.Resync)
	defer ticker.Stop()
	for {
		for _, name := range r.allNames() {
			r.Enqueue(name)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// allNames returns the names of the pod manager and of the records. A name may occur twice.
func (r *Reconciler) allNames() []podid.FullName {
	names := r.config.Pods.GetMirroredNames()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(names, maps.Keys(r.records))
}

func (r *Reconciler) runWorker(ctx context.Context, queue nameQueue) {
	for {
		name, isShutDown := queue.Get()
		if isShutDown {
			return
		}
		if ctx.Err() == nil {
			if requeueAfter := r.reconcile(ctx, name); requeueAfter > 0 {
				queue.AddAfter(name, requeueAfter)
			}
		}
		queue.Done(name)
	}
}

const (
	// maxSteps exceeds what any state needs: get, delete an outdated pod, find the name taken, delete that pod, create.
	maxSteps = 8
	// waitInterval is how soon ActionWait is reconsidered, which costs no request.
	waitInterval = time.Second
)

var errNotConverging = errors.New("mirror pod changes faster than it can be replaced")

// attempt is the state of a name at one step, and what the state was computed from.
type attempt struct {
	State
	name   podid.FullName
	record *record
	inputs inputs
}

// reconcile takes steps until the name needs no request or a step fails. It returns the delay to the next call, or 0 for
// none before the next Enqueue. Delete and create of a replacement happen in one call, so nothing else happens to the name
// in between (BUG-30).
func (r *Reconciler) reconcile(ctx context.Context, name podid.FullName) (requeueAfter time.Duration) {
	record := r.acquireRecord(name)
	defer r.releaseRecord(name, record)
	var a attempt
	for range maxSteps {
		a = r.newAttempt(name, record)
		action := a.Decide()
		if action == ActionNone || action == ActionWait || action == ActionReportConflict {
			return r.finish(a, action)
		}
		if delay := r.retryDelay(a); delay > 0 {
			return delay
		}
		if err := r.execute(ctx, a, action); err != nil {
			return r.handleError(ctx, a, err)
		}
	}
	return r.handleError(ctx, a, errNotConverging)
}

// newAttempt combines the pod manager's state, the record and the rest of the node's state.
func (r *Reconciler) newAttempt(name podid.FullName, record *record) attempt {
	static, watched := r.config.Pods.GetStaticPodAndMirrorPod(name)
	sameName, _ := r.config.Pods.GetPodByFullName(name)
	mirror := record.resolve(watched) // before isOverdue, because it clears a confirmed write
	return attempt{
		State: State{
			NodeName:     r.config.NodeName,
			Static:       static,
			Mirror:       mirror,
			Terminating:  r.config.Terminating(name),
			SourcesReady: r.config.StaticSourcesReady(),
			Overdue:      record.isOverdue(time.Now()),
		},
		name:   name,
		record: record,
		inputs: newInputs(static, watched, sameName),
	}
}

// finish ends a reconciliation that needs no request. An unconfirmed write is checked when ConfirmAfter has elapsed.
func (r *Reconciler) finish(a attempt, action Action) (requeueAfter time.Duration) {
	r.backoff.reset(a.name)
	a.record.clearFailure()
	if action == ActionReportConflict {
		r.conflicts.report(a.Static, newNameTakenError(a.Mirror))
	} else {
		r.conflicts.resolve(a.name)
	}
	switch {
	case action == ActionWait:
		return waitInterval
	case !a.record.checkAt.IsZero():
		return max(time.Until(a.record.checkAt), time.Nanosecond)
	default:
		return 0
	}
}

// retryDelay returns how long the name must not send a request: for the API server's Retry-After, or after a failed
// attempt. Changed inputs end the backoff; an Enqueue does not.
func (r *Reconciler) retryDelay(a attempt) time.Duration {
	r.mu.Lock()
	pause := time.Until(r.pausedUntil)
	r.mu.Unlock()
	if a.record.retryAt.IsZero() {
		return pause
	}
	if a.record.failedInputs != a.inputs {
		r.backoff.reset(a.name)
		a.record.clearFailure()
		return pause
	}
	return max(pause, time.Until(a.record.retryAt))
}

func (r *Reconciler) execute(ctx context.Context, a attempt, action Action) error {
	switch action {
	case ActionGet:
		return r.getMirror(ctx, a)
	case ActionDelete:
		return r.deleteMirror(ctx, a)
	case ActionCreate:
		return r.createMirror(ctx, a)
	default:
		panic(fmt.Sprintf("mirror: action %v needs no request", action))
	}
}

// deleteMirror treats "not found" and "has another UID" as success (PM-20). Unless the mirror pod is being deleted anyway,
// an outdated one stays until the node can own its replacement: outdated information is better than none.
func (r *Reconciler) deleteMirror(ctx context.Context, a attempt) error {
	if a.Static != nil && a.Mirror.DeletionTimestamp == nil {
		if _, err := r.owner.ownerReference(ctx); err != nil {
			return err
		}
	}
	uid := a.Mirror.UID
	err := r.client.deletePod(ctx, a.name, uid)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	a.record.setDeleted(uid, r.config.ConfirmAfter)
	r.config.Logger.Info("Deleted mirror pod", "pod", a.name.Key(), "podUID", uid, "orphaned", a.Static == nil)
	return nil
}

// createMirror creates the mirror pod, or reads the pod that has its name (PM-19, BUG-15). A 404 concerns the namespace.
func (r *Reconciler) createMirror(ctx context.Context, a attempt) error {
	owner, err := r.owner.ownerReference(ctx)
	if err != nil {
		return err
	}
	created, err := r.client.createPod(ctx, newMirrorPod(a.Static, owner))
	switch {
	case err == nil:
		a.record.setCreated(created, r.config.ConfirmAfter)
		r.config.Logger.Info("Created mirror pod", "pod", a.name.Key(), "podUID", created.UID, "staticPodUID", a.Static.UID)
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.getMirror(ctx, a)
	case apierror.IsInvalidRequest(err) || apierrors.IsNotFound(err):
		r.owner.isStale.Store(true)
		return newRejectedError(err)
	default:
		return err
	}
}

// getMirror reads the pod of the name and records it if it is a mirror pod of this node, current or not.
func (r *Reconciler) getMirror(ctx context.Context, a attempt) error {
	pod, err := r.client.getPod(ctx, a.name)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	a.record.countCheck()
	a.Mirror = pod
	if err == nil && !a.isForeign() {
		a.record.setCreated(pod, r.config.ConfirmAfter)
		return nil
	}
	a.record.setAbsent(r.config.ConfirmAfter)
	switch {
	case a.Static == nil || apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return newNameTakenUnreadableError()
	default:
		return newNameTakenError(pod)
	}
}

// handleError reports the error of a step and returns the delay to the next attempt.
func (r *Reconciler) handleError(ctx context.Context, a attempt, err error) (requeueAfter time.Duration) {
	if ctx.Err() != nil {
		return 0
	}
	var notReady *nodeNotReadyError
	if errors.As(err, &notReady) {
		return notReady.retryAfter
	}
	var conflict *conflictError
	if errors.As(err, &conflict) {
		r.conflicts.report(a.Static, conflict)
	} else {
		r.config.Logger.Warn("Failed to reconcile mirror pod", "pod", a.name.Key(), "err", err)
	}
	r.pause(apierror.RetryAfter(err))
	delay := r.backoff.next(a.name, err)
	a.record.retryAt, a.record.failedInputs = time.Now().Add(delay), a.inputs
	return delay
}

// pause delays the requests of all names: a Retry-After concerns the whole API server, not one pod (F4).
func (r *Reconciler) pause(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(delay); until.After(r.pausedUntil) {
		r.pausedUntil = until
	}
}

// acquireRecord returns the record of the name, which the caller owns until releaseRecord.
func (r *Reconciler) acquireRecord(name podid.FullName) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stored, found := r.records[name]; found {
		return stored
	}
	return &record{}
}

// releaseRecord stores the record unless it is empty.
func (r *Reconciler) releaseRecord(name podid.FullName, updated *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *updated == (record{}) {
		delete(r.records, name)
	} else {
		r.records[name] = updated
	}
}
