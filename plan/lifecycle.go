package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Lifecycle is where one pod, by its UID, stands on its way through the node. It is a value: each method returns the
// next one, and who keeps it sees to it that there is only one. The zero value is a pod of which nobody has spoken.
//
//	                  deletion, kill, eviction, rejection,
//	                  terminal phase, all containers done
//	┌─────────┐      ──────────────────────>     ┌─────────────┐  Stop   ┌────────────┐  Clean  ┌──────────┐
//	│ Syncing │                                  │ Terminating │ ──────> │ Terminated │ ──────> │ Finished │
//	└─────────┘                                  └─────────────┘ <────── └────────────┘         └──────────┘
//	  ^     ^ first update; a static pod waits       ^  │  ^     Relapse    ^ first update,      ^  │    │
//	  │       here until its name is free: Begin     │  │  │                  ended and stopped  │  │    │
//	  │                                              │  │  │                  (PW-2)             │  │    │
//	  │     first update: deleted, ended, or  ───────┘  │  └─────────────────────── Relapse ─────│──┘    │
//	  │     known to the runtime only (PW-3)            └── Forget: it never began (PW-17) ──────┘       │
//	  └─────────────────────── Restart: a static pod was removed and is there again (PW-5) ──────────────┘
//
// Nothing goes backwards, but for a Relapse: something runs after all. A Restart is a new life under the same UID.
type Lifecycle struct {
	Stage Stage
	// Pod is the newest spec that was accepted; nil: only the runtime knows the pod.
	Pod, Mirror *v1.Pod
	// Name is the pod's full name, from its spec or from the runtime.
	Name podid.FullName
	// Op is that of the newest update that was accepted.
	Op Op
	// Began tells that the pod was let through to its steps (PW-15, PW-19).
	Started bool
	// Leftovers tells that the runtime may hold something of the pod from before this agent's time.
	MayExistInRuntime bool
	// Acknowledged tells that a terminating step began: no container is started after it (PW-28).
	StartedTerminating bool
	// Deleted, Evicted and Rejected are why the pod ends. Evicted counts only as the first cause (PW-8).
	Deleted, Evicted, Rejected bool
	// Grace is how long the containers may take to end; zero until the pod is terminating.
	GracePeriod time.Duration
	// Status is the last kill's word on the status, or nil (PW-28).
	StatusFunc func(*v1.PodStatus)
	// Again is a static pod that came back while it ended (PW-5).
	Recreated *v1.Pod
	// Removed tells that the runtime holds nothing of the pod any more.
	ContentRemoved bool
}

// Stage is one part of a pod's way.
type Stage int

// The stages, in order.
const (
	Syncing     Stage = iota // should run
	Terminating              // containers are being stopped
	Terminated               // containers have stopped for good; what else the pod holds is released
	Finished                 // the node holds nothing that would keep the API object from going
)

// String is the word that the kubelet's metrics have for it.
func (s Stage) String() string {
	return [...]string{"sync", "terminating", "terminated", "finished"}[s]
}

// Op is what is wanted of a pod.
type Op int

// The operations.
const (
	OpCreate Op = iota + 1 // the pod is new to this node, or to this agent
	OpUpdate               // what should run changed
	OpSync                 // something around it changed
	OpKill                 // the pod must end
)

// String is the word that the kubelet's metrics have for it.
func (o Op) String() string { return [...]string{"", "create", "update", "sync", "kill"}[o] }

// Update is what somebody wants of a pod.
type Update struct {
	Op Op
	// Pod is the spec, and what the API server is known to say of it. Nil: only the runtime knows the pod; then Op must
	// be OpKill (PW-3).
	Pod *v1.Pod
	// Mirror is a static pod's mirror, where it is known.
	Mirror *v1.Pod
	// Leftover is what the runtime holds of a pod that nobody has a spec of. Ignored where Pod is set (PW-4).
	RunningPod *observed.Pod
	Kill       KillOptions
}

// Kill is how a pod is to end. It is asked only of an OpKill.
type KillOptions struct {
	// Grace shortens the time that the containers get; nil: as the pod says.
	GracePeriod *time.Duration
	// Evict tells that the pod is sent away although it is still wanted. Otherwise it is deleted.
	Evict bool
	// Status changes what the pod's status says of its end; nil: nothing to add.
	StatusFunc func(*v1.PodStatus)
}

// Step is what a worker has to do next.
type Step int

// The steps.
const (
	StepIdle      Step = iota // nothing until the next update
	StepSync                  // converge
	StepTerminate             // stop the containers
	StepCleanUp               // release what the pod holds
	StepRemove                // remove what the runtime keeps of a finished pod that was deleted since
	StepRestart               // begin a new life
)

// Step is what the stage asks for.
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

// RemovesContent tells that containers and logs of the stopped pod are of no use any more. Those of a pod that only
// completed are kept for their readers (PW-42).
func (l Lifecycle) ShouldRemoveContent() bool {
	return l.Stage >= Terminated && (l.Evicted || l.Deleted)
}

// CouldRun reports whether a container of the pod runs or may still be started (PW-42).
func (l Lifecycle) CouldHaveRunningContainers() bool { return l.Stage < Terminated }

// Static reports whether the pod must be alone under its name.
func (l Lifecycle) IsStatic() bool { return l.Pod != nil && podid.IsStatic(l.Pod) }
