package explain

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// Question is what somebody wants to know about a pod.
type Question string

// The questions. The zero value asks for the worst that is wrong with the pod.
const (
	WhatIsWrong   Question = ""
	WhyNotReady   Question = "Ready"
	WhyNotRunning Question = "Running"
	WhyNotDeleted Question = "Deleted"
	WhyRestarting Question = "Restarting"
)

// Facts is everything that is known about a pod at one instant. Only Now is required: what is missing is unknown, and no verdict
// claims the opposite of what is unknown. Pod functions do not modify it.
type Facts struct {
	Now time.Time
	// Name is the pod that was asked for.
	Name podid.FullName
	// Pod has the desired spec and the local status. It is nil if the node does not have the pod.
	Pod *v1.Pod
	// Left is what the history says about a pod that the node does not have any more.
	Left   *Left
	Source Source
	Sync   Sync
	Worker Worker
	// Probes of the pod's containers.
	Probes []Probe
	// Observed is the last observation of the runtime. It is nil if there was none.
	Observed *observed.Pod
	Runtime  Runtime
	// Recent counts what happened to each container in the last hour, by its name.
	Recent map[string]Recent
	// LastLines are the newest lines of the last failed instance of each container, by its name.
	LastLines map[string][]string
}

// Left says how a pod ended that the node does not have any more.
type Left struct {
	At time.Time
	// Summary is its last status, like "Completed 0/1".
	Summary string
}

// Source is where the pod comes from.
type Source struct {
	Name podid.Source
	// Problem is why the newest manifest is not used, with file, line and field. Empty if it is used.
	Problem string
	// Since is when the problem began.
	Since time.Time
}

// SyncState says how the API server's copy of a status compares with the local one.
type SyncState string

// The states.
const (
	SyncUnknown  SyncState = ""
	SyncSynced   SyncState = "synced"   // the API server has the local status
	SyncSending  SyncState = "sending"  // a request is under way or will be at once
	SyncWaiting  SyncState = "waiting"  // a request failed or is limited, and is retried
	SyncWithheld SyncState = "withheld" // the terminal phase is not sent before all containers have stopped (SM-67)
	SyncRefused  SyncState = "refused"  // the API server rejects the status
	SyncGone     SyncState = "gone"     // the API object does not exist
	SyncNoServer SyncState = "noServer" // the agent has no API server
)

// Sync compares the local status with the API server's copy.
type Sync struct {
	State SyncState
	// Version and At identify the local status, SyncedVersion and SyncedAt the newest that the API server acknowledged.
	Version, SyncedVersion uint64
	At, SyncedAt           time.Time
	// Synced is the status of the API object, as far as the agent knows it. Nil if it does not. ResourceVersion is that of the object.
	Synced          *v1.PodStatus
	ResourceVersion string
	// Took is the time from the newest acknowledged version to its acknowledgement.
	Took time.Duration
	// Behind counts the versions that the API server does not have, Since is when the oldest of them was set.
	Behind int
	Since  time.Time
	// Reason says why the state is not synced. Failures counts the failed requests in a row.
	Reason   string
	Failures int
	NextTry  time.Time
	// Repairs counts recent writes that only restored what another writer had changed (F30, SM-53).
	Repairs int
	// Finalizers are those of the API object.
	Finalizers []string
}

// Worker is the state of the pod's worker.
type Worker struct {
	Known bool
	Stage plan.Stage
	// Trouble is the error of the last sync, tried again at RetryAt. Failures counts the failed ones in a row.
	Trouble  error
	Failures int
	RetryAt  time.Time
	// Rejected is why the pod was not admitted.
	Rejected error
	// WaitsFor is the UID of another pod that has the same name and must end first (PW-15).
	WaitsFor podid.UID
	// VolumesPending is set while volumes are being mounted, or could not be.
	VolumesPending bool
	// SandboxPending is set while the sandbox is being created, or could not be.
	SandboxPending bool
	// Starts has the containers that could not be started or wait for their next start, by name.
	Starts map[string]Start
	// Stopping has the containers that are being stopped.
	Stopping []Stopping
}

// Start is the next start of a container.
type Start struct {
	// Reason and Message are those of the waiting state, such as CrashLoopBackOff or ErrImagePull.
	Reason, Message string
	// At is when the worker starts it again. Zero if nothing is planned.
	At time.Time
	// Failures counts the failed starts, or the short runs, in a row. Delay is the back-off.
	Failures int
	Delay    time.Duration
}

// Stopping is a container that is being stopped.
type Stopping struct {
	Container string
	Reason    plan.StopReason
	Message   string
	Since     time.Time
	// KillAt is when the grace period ends.
	KillAt time.Time
	// PreStop is set while the preStop hook runs.
	PreStop bool
}

// ProbeKind is startup, readiness or liveness.
type ProbeKind string

// The kinds.
const (
	Startup   ProbeKind = "startup"
	Readiness ProbeKind = "readiness"
	Liveness  ProbeKind = "liveness"
)

// ProbeResult is the result that counts for the container's status.
type ProbeResult string

// The results. Undecided is the result before a threshold was reached.
const (
	Undecided ProbeResult = "undecided"
	Passing   ProbeResult = "success"
	Failing   ProbeResult = "failure"
)

// Probe is the state of one probe.
type Probe struct {
	Container string
	Kind      ProbeKind
	// Target is what is asked, like "http-get :8080/ready".
	Target string
	Result ProbeResult
	// Streak counts the equal answers in a row, StreakFailed says of which kind. Threshold is when such a streak decides.
	Streak       int
	StreakFailed bool
	Threshold    int
	// Errors counts the rounds in a row in which nobody could ask (PRB-18).
	Errors int
	Last   Answer
	// LastSuccess is the newest success. Zero if there was none.
	LastSuccess time.Time
	// Median and Longest are of the time that the last checks took.
	Median, Longest time.Duration
	// Next is when it is asked again. Zero if it is not scheduled.
	Next time.Time
}

// Answer is the answer to one check. Its time is zero if there was none.
type Answer struct {
	At      time.Time
	Took    time.Duration
	OK      bool
	Message string
}

// Runtime is the state of the container runtime.
type Runtime struct {
	// Err is why the runtime does not answer, since Since. NextTry is when it is asked again.
	Err     error
	Since   time.Time
	NextTry time.Time
	// Network is why pods cannot get a network.
	Network error
	// Observed is when the runtime was last observed completely; it is stale if Stale is set (PLEG).
	Observed time.Time
	Stale    bool
}

// Recent counts what happened to a container in the last hour.
type Recent struct {
	Restarts int
	// Flips counts changes of its readiness.
	Flips int
	// StoppedBy is the reason of the last stop by the agent, like LivenessProbe.
	StoppedBy string
}
