package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// Input is all that a decision depends on.
type Input struct {
	// Pod is what should run, with the resources that were allocated. Of its status only the restart counts of containers
	// that the runtime has forgotten are read.
	Pod *v1.Pod
	// Observed is what the runtime was last seen to hold, or nil when nothing was seen.
	Observed *observed.Pod
	// Started are the containers whose startup probe has passed. A running container without such a probe has started.
	Started map[observed.ContainerID]bool
	// Unhealthy are the containers whose liveness or startup probe gave up, with the message for the event, or "".
	Unhealthy map[observed.ContainerID]string
	// Backoff is what is remembered of crash loops: the Backoff of the last Actions, or nil.
	Backoff Backoff
	// StartTime of the pod, from which activeDeadlineSeconds counts. Zero: not started.
	StartTime time.Time
	Now       time.Time
}

// Actions is what to do for one pod now, in the order of the fields. The zero value asks for nothing.
type Actions struct {
	// Fail is set when the pod must fail as a whole now. No other action comes with it: Shutdown ends what runs.
	Evict *derive.Eviction
	// Done tells that the regular containers have ended for good, or that an init container failed for good. Nothing is
	// started again. Sidecars may still run: Shutdown ends them. No other action comes with it.
	Done bool
	// KillPod asks to stop all containers, as Shutdown orders it, and all sandboxes, before anything else.
	KillPod bool
	// Sandbox is the one to make, or nil.
	Sandbox *NewSandbox
	// Stop lists what to stop before anything is started, in any order or all at once.
	Stop []Stop
	// Start lists what to start, in this order. A failed start of an Init container ends the list; any other failure does
	// not keep the rest from starting. A container is not started when its Stop failed.
	Start []Start
	// Waiting says, by container name, why one that is to run is not started now.
	Waiting map[string]derive.Waiting
	// Wake is when to look again even if nothing happens. Zero: no need.
	RequeueAt time.Time
	// Backoff is the memory after this decision, for the next Input.
	Backoff Backoff
}

// NewSandbox is a sandbox to make. Attempt numbers of a pod only rise.
type NewSandbox struct {
	Attempt uint32
}

// Start is one container to make and start. Its RestartCount is that of the new instance.
type Start struct {
	Container    *v1.Container
	Kind         derive.ContainerKind
	RestartCount int
}

// Stop is one instance to stop.
type Stop struct {
	ID observed.ContainerID
	// Container is its spec, or nil when the pod no longer has one of that name.
	Container *v1.Container
	// Grace is what the instance has for its preStop hook and its own end together.
	Grace  time.Duration
	Reason StopReason
	// Message is for the event.
	Message string
}

// StopReason is why an instance is stopped while its pod goes on, or that its pod ends.
type StopReason string

// The reasons. Those that the kubelet has are spelled as there.
const (
	StopPodTerminating    StopReason = "PodEnds"
	StopDefinitionChanged StopReason = "DefinitionChanged"
	StopLivenessProbe     StopReason = "LivenessProbe"
	StopStartupProbe      StopReason = "StartupProbe"
	StopUnknownState      StopReason = "Unknown"
	StopStale             StopReason = "Surplus"
	StopRestartAll        StopReason = "RestartAllContainers"
)

// CrashLoopBackOff is the reason for which a container waits that ended too soon after its start.
const ReasonCrashLoopBackOff = "CrashLoopBackOff"
