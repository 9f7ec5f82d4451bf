package plan

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Lifecycle is the state of one pod UID on this node. It is an immutable value: methods return the next state, and the
// caller makes sure that there is only one. The zero value is a pod that was never updated.
//
//	                  deletion, kill, eviction, rejection,
//	                  terminal phase, all containers done
//	┌─────────┐      ──────────────────────>     ┌─────────────┐  Complete-    ┌────────────┐  Complete-   ┌──────────┐
//	│ Syncing │                                  │ Terminating │ ────────────> │ Terminated │ ───────────> │ Finished │
//	└─────────┘                                  └─────────────┘  Terminating  └────────────┘  Terminated  └──────────┘
//	  ^     ^ first update; a static pod waits       ^  │  ^                        ^ │                       ^  │   │
//	  │       until its name is free: Start          │  │  │   ResumeTerminating    │ │                       │  │   │
//	  │                                              │  │  └────────────────────────│─┴───────────────────────│──┘   │
//	  │     first update: deleted, terminal or ──────┘  │                           │ first update,           │      │
//	  │     known to the runtime only (PW-3)            │                           │ terminal and stopped    │      │
//	  │                                                 │                             (PW-2)                  │      │
//	  │                                                 └── FinishUnstarted (PW-17) ──────────────────────────┘      │
//	  └─────────────────────── Restart: a removed static pod was recreated (PW-5) ───────────────────────────────────┘
//
// The stage never decreases, except by ResumeTerminating: a container runs after all. Restart begins a new lifecycle under
// the same UID.
type Lifecycle struct {
	Stage Stage
	// Pod is the newest accepted spec. Nil if only the runtime knows the pod.
	Pod, Mirror *v1.Pod
	// Name is the pod's full name, from its spec or from the runtime.
	Name podid.FullName
	// Op is the operation of the newest accepted update.
	Op Op
	// Started reports that the pod was allowed to sync (PW-15, PW-19).
	Started bool
	// MayExistInRuntime reports that the runtime may hold containers or sandboxes from before this agent started.
	MayExistInRuntime bool
	// StartedTerminating reports that termination began: no container starts after it (PW-28).
	StartedTerminating bool
	// Deleted, Evicted and Rejected are why the pod terminates. Evicted counts only as the first cause (PW-8).
	Deleted, Evicted, Rejected bool
	// GracePeriod is how long the containers may take to terminate. Zero until the pod is terminating.
	GracePeriod time.Duration
	// StatusFunc is the StatusFunc of the last kill, or nil (PW-28).
	StatusFunc func(*v1.PodStatus)
	// Recreated is a static pod that was recreated under the same UID while this one terminates (PW-5).
	Recreated *v1.Pod
	// ContentRemoved reports that the runtime holds no container or log of the pod.
	ContentRemoved bool
}

// Stage is a stage of a pod's lifecycle.
type Stage int

// The stages, in order.
const (
	Syncing     Stage = iota // should run
	Terminating              // containers are being stopped
	Terminated               // containers have stopped for good; other resources are being released
	Finished                 // nothing on the node prevents the deletion of the API object
)

// String returns the kubelet's metric label.
func (s Stage) String() string {
	return [...]string{"sync", "terminating", "terminated", "finished"}[s]
}

// Op is the operation of an update.
type Op int

// The operations.
const (
	OpCreate Op = iota + 1 // the pod is new to this node or to this agent
	OpUpdate               // the desired pod changed
	OpSync                 // something else changed
	OpKill                 // the pod must terminate
)

// String returns the kubelet's metric label.
func (o Op) String() string { return [...]string{"", "create", "update", "sync", "kill"}[o] }

// Update requests a change of a pod.
type Update struct {
	Op Op
	// Pod is the spec with the last known status in the API server. If only the runtime knows the pod, Pod is nil and Op
	// must be OpKill (PW-3).
	Pod *v1.Pod
	// Mirror is the mirror pod of a static pod, if known.
	Mirror *v1.Pod
	// RunningPod is a runtime pod without a known spec. It is ignored if Pod is set (PW-4).
	RunningPod *observed.Pod
	// Kill applies to OpKill only.
	Kill KillOptions
}

// KillOptions describe how a pod terminates.
type KillOptions struct {
	// GracePeriod shortens the time that the containers get. Defaults to the pod's.
	GracePeriod *time.Duration
	// Evict reports that the pod is removed although it is still wanted. Otherwise it is deleted.
	Evict bool
	// StatusFunc modifies the pod's final status. Optional.
	StatusFunc func(*v1.PodStatus)
}

// ErrInterrupted is the cause of the cancellation of a step that [Effects].Interrupt ends. It tells a runtime that the caller
// goes on: a container that is being created or started need not be abandoned halfway.
var ErrInterrupted = errors.New("interrupted by a newer update of the pod")

// Effects are the consequences of an update. A caller that waits for the termination of a pod goes on waiting only while the
// stage is Terminating: in any other stage there is nothing to wait for (PW-9, PW-10).
type Effects struct {
	// Ignored reports that the update changed nothing.
	Ignored bool
	// Interrupt reports that the step in progress is obsolete and must stop at once (PW-12).
	Interrupt bool
}

var ignored = Effects{Ignored: true}

// Apply applies an update. runtimePod is the last known state of the pod in the runtime. Its time is zero if the runtime was
// not inspected yet. It counts only for the first update.
func (l Lifecycle) Apply(update Update, runtimePod *observed.Pod) (Lifecycle, Effects) {
	if update.Pod == nil && update.Op != OpKill {
		return l, ignored // PW-3
	}
	switch {
	case l.Op == 0:
		return l.applyFirst(update, runtimePod)
	case l.isRecreation(update):
		return l.withRecreated(update), Effects{}
	case l.Stage == Finished:
		return l.applyFinished(update)
	case update.Pod == nil && l.Stage == Terminated, l.Pod == nil && update.Op != OpKill:
		return l, ignored // PW-9; a pod that only the runtime knows is stopped first
	default:
		return l.applyKnown(update)
	}
}

func (l Lifecycle) applyFirst(update Update, runtimePod *observed.Pod) (Lifecycle, Effects) {
	if update.Pod == nil && update.RunningPod == nil {
		return l, ignored
	}
	l.MayExistInRuntime = update.Pod == nil || runtimePod == nil || runtimePod.At.IsZero() ||
		len(runtimePod.Containers) > 0 || len(runtimePod.Sandboxes) > 0
	if update.Pod == nil {
		l.Name = update.RunningPod.Name
	}
	l = l.withUpdate(update)
	if update.Pod != nil && derive.IsTerminal(update.Pod.Status.Phase) && isStopped(runtimePod) {
		l.Stage, l.Started = Terminated, true // PW-2
		l.Deleted = update.Pod.DeletionTimestamp != nil || (update.Op == OpKill && !update.Kill.Evict)
		l.GracePeriod = shortestGracePeriod(0, update)
		return l, Effects{}
	}
	return l.terminateIfNeeded(update), Effects{}
}

// isStopped reports whether an inspection of the runtime found nothing of the pod running.
func isStopped(runtimePod *observed.Pod) bool {
	return runtimePod != nil && !runtimePod.At.IsZero() && !runtimePod.Running() && runtimePod.ReadySandboxes() == 0
}

// isRecreation reports whether a removed static pod was recreated under the same UID (PW-5), or whether the update belongs to
// a pod that was: it concerns the next lifecycle, not the one that terminates.
func (l Lifecycle) isRecreation(update Update) bool {
	recreates := update.Op == OpCreate || (l.Recreated != nil && update.Op != OpKill)
	return recreates && l.Stage != Syncing && l.Deleted && podid.IsStatic(update.Pod) &&
		update.Pod.DeletionTimestamp == nil
}

// withRecreated keeps the newest version for the next lifecycle.
func (l Lifecycle) withRecreated(update Update) Lifecycle {
	l.Recreated = update.Pod
	if update.Mirror != nil {
		l.Mirror = update.Mirror
	}
	return l
}

// applyFinished leaves a finished pod as it is (PW-6), unless it is deleted: then its content in the runtime is no longer
// needed, and it is not recreated.
func (l Lifecycle) applyFinished(update Update) (Lifecycle, Effects) {
	if !isDeletion(update) || (l.Deleted && l.Recreated == nil) {
		return l, ignored
	}
	l.Deleted, l.Recreated = true, nil
	if update.Pod != nil {
		l.Pod = update.Pod
	}
	return l, Effects{}
}

func (l Lifecycle) applyKnown(update Update) (Lifecycle, Effects) {
	before := l
	if l.Recreated != nil {
		if isDeletion(update) { // an eviction is not a removal
			l.Recreated = nil
		}
		update.Pod = l.Pod // this lifecycle ends with its own spec
	}
	if update.Pod == nil {
		update.Pod, l.MayExistInRuntime = l.Pod, true // PW-3
	}
	l = l.withUpdate(update).terminateIfNeeded(update)
	shortened := l.Stage == Terminating && l.GracePeriod < before.GracePeriod
	return l, Effects{Interrupt: l.Stage != before.Stage || shortened} // PW-21
}

// withUpdate replaces what is known by what is newer (PW-11, PW-34).
func (l Lifecycle) withUpdate(update Update) Lifecycle {
	l.Op = update.Op
	if update.Pod != nil {
		l.Pod, l.Name = update.Pod, podid.FullNameOf(update.Pod)
	}
	if update.Mirror != nil {
		l.Mirror = update.Mirror
	}
	return l
}

// terminateIfNeeded moves a pod that must terminate to Terminating, and shortens a termination in progress. The first cause
// counts; a deletion counts at any time (PW-7, PW-8).
func (l Lifecycle) terminateIfNeeded(update Update) Lifecycle {
	if l.Stage == Syncing {
		if update.Pod != nil && update.Pod.DeletionTimestamp == nil && !derive.IsTerminal(update.Pod.Status.Phase) &&
			update.Op != OpKill {
			return l
		}
		l.Stage = Terminating
		l.Evicted = update.Op == OpKill && update.Kill.Evict && !isDeletion(update)
	}
	l.Deleted = l.Deleted || isDeletion(update)
	if l.Stage == Terminating {
		l.GracePeriod = shortestGracePeriod(l.GracePeriod, update)
		if update.Op == OpKill && update.Kill.StatusFunc != nil {
			l.StatusFunc = update.Kill.StatusFunc
		}
	}
	return l
}

// isDeletion reports whether the pod is no longer wanted, by the API server or by the caller that kills it.
func isDeletion(update Update) bool {
	return update.Pod == nil || update.Pod.DeletionTimestamp != nil || (update.Op == OpKill && !update.Kill.Evict)
}

// minGracePeriod is what every pod gets: no time at all would kill containers that could terminate cleanly (PW-20). It is
// also the grace period of a pod without a spec (PW-22).
const minGracePeriod = time.Second

// shortestGracePeriod returns the shortest grace period so far: it never increases. 0 requests the minimum. The kubelet
// treats 0 as unset within one calculation, so that a kill with 30s slows down a forced deletion (PW-20).
func shortestGracePeriod(current time.Duration, update Update) time.Duration {
	shortest, isSet := current, current > 0
	limit := func(grace time.Duration) {
		if grace = max(grace, minGracePeriod); !isSet || grace < shortest {
			shortest, isSet = grace, true
		}
	}
	if update.Pod == nil {
		limit(minGracePeriod)
		return shortest
	}
	if seconds := update.Pod.DeletionGracePeriodSeconds; seconds != nil {
		limit(toDuration(*seconds))
	}
	if update.Op == OpKill && update.Kill.GracePeriod != nil {
		limit(*update.Kill.GracePeriod)
	}
	if seconds := update.Pod.Spec.TerminationGracePeriodSeconds; !isSet && seconds != nil {
		limit(toDuration(*seconds))
	}
	return max(shortest, minGracePeriod)
}

// Step is what a pod worker does next.
type Step int

// The steps.
const (
	StepIdle      Step = iota // wait for the next update
	StepSync                  // start and stop containers
	StepTerminate             // stop all containers
	StepCleanUp               // release the pod's other resources
	StepRemove                // remove the content of a finished pod that was deleted afterwards
	StepRestart               // begin a new lifecycle
)

// Step returns the next step of the pod worker.
func (l Lifecycle) Step() Step {
	switch {
	case l.Stage == Syncing:
		return StepSync
	case l.Stage == Terminating:
		return StepTerminate
	case l.Stage == Terminated:
		return StepCleanUp
	case l.ShouldRemoveContent() && !l.ContentRemoved:
		return StepRemove
	case l.Recreated != nil:
		return StepRestart
	default:
		return StepIdle
	}
}

// ShouldRemoveContent reports whether containers and logs of the stopped pod are no longer needed. A completed pod keeps them
// for readers (PW-42).
func (l Lifecycle) ShouldRemoveContent() bool {
	return l.Stage >= Terminated && (l.Evicted || l.Deleted)
}

// CouldHaveRunningContainers reports whether a container of the pod runs or may still start (PW-42).
func (l Lifecycle) CouldHaveRunningContainers() bool { return l.Stage < Terminated }

// IsStatic reports whether the pod is static, so that it must be the only one with its name.
func (l Lifecycle) IsStatic() bool { return l.Pod != nil && podid.IsStatic(l.Pod) }

// Start records that the pod may sync.
func (l Lifecycle) Start() Lifecycle {
	l.Started = true
	return l
}

// NeverStarted reports whether the pod is to terminate before it started, and the runtime holds nothing of it. Then there is
// nothing to do (PW-17). Only static pods wait to start.
func (l Lifecycle) NeverStarted() bool {
	return l.Stage == Terminating && l.IsStatic() && !l.Started && !l.MayExistInRuntime
}

// FinishUnstarted finishes a pod that never started.
func (l Lifecycle) FinishUnstarted() Lifecycle { return l.CompleteTerminated(true) }

// CompleteSync records that a sync determined the pod's outcome: the pod terminates without an update (PW-27).
func (l Lifecycle) CompleteSync() Lifecycle {
	if l.Stage == Syncing {
		l.Stage, l.GracePeriod = Terminating, shortestGracePeriod(0, Update{Pod: l.Pod})
	}
	return l
}

// Reject records that the node does not run the pod. It terminates like any other pod (BUG-33).
func (l Lifecycle) Reject() Lifecycle {
	l.Rejected = true
	return l.CompleteSync()
}

// Orphan kills a pod that no source wants any more (PW-44).
func (l Lifecycle) Orphan() (Lifecycle, Effects) {
	return l.Apply(Update{Op: OpKill, Pod: l.Pod}, nil)
}

// StartTerminating records that a terminating step began.
func (l Lifecycle) StartTerminating() Lifecycle {
	l.StartedTerminating = true
	return l
}

// CompleteTerminating records that all containers have stopped. A pod that only the runtime knew is finished then (PW-30).
func (l Lifecycle) CompleteTerminating() Lifecycle {
	l.Stage = Terminated
	if l.Pod == nil {
		return l.FinishUnstarted()
	}
	return l
}

// CompleteTerminated records that the pod's resources are released. Containers and logs remain in the runtime unless
// contentRemoved.
func (l Lifecycle) CompleteTerminated(contentRemoved bool) Lifecycle {
	l.Stage, l.ContentRemoved = Finished, contentRemoved
	return l
}

// ResumeTerminating records that a container of a stopped pod runs after all: a call whose response was lost succeeded late.
// It is the only way back, because a running container must be stopped.
func (l Lifecycle) ResumeTerminating() Lifecycle {
	if l.Stage > Terminating {
		l.Stage, l.ContentRemoved = Terminating, false
	}
	return l
}

// Restart returns the new lifecycle of a recreated static pod.
func (l Lifecycle) Restart() Lifecycle {
	restarted, _ := Lifecycle{}.Apply(Update{Op: OpCreate, Pod: l.Recreated, Mirror: l.Mirror}, nil)
	return restarted
}
