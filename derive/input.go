package derive

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// Input is all that [Status] looks at. Only Pod is required.
type Input struct {
	// Pod is the desired pod, with the resources that were allocated to it. Its Status is what the API server is known to
	// say; for a static pod that is its mirror's status, or nothing.
	Pod *v1.Pod
	// Previous is the status that was last published, or nil. Without one, history is taken from Pod.Status (PH-21).
	Previous *v1.PodStatus
	// Observed is what the runtime was last seen to hold, or nil when it was never asked.
	Observed *observed.Pod
	Probes   Probes
	// Waiting says, by container name, why a container could not be started. It is asked only for containers that are to
	// be started again (PH-31).
	Waiting map[string]Waiting
	// Resize are the pod's resize conditions, left out once the pod has ended (PH-40).
	Resize Resize
	Node   NodeInfo
	// Evict is set when the pod must fail, whatever its containers do (PH-19).
	Evict *Eviction
	// Terminating tells that the pod's containers were stopped for good: none is started again, whatever the restart
	// policy says (PH-9).
	Terminating bool
	Now         time.Time
}

// Waiting is why a container waits, in the API's words: CrashLoopBackOff, ErrImagePull.
type Waiting struct {
	Reason, Message string
}

// Eviction is why a pod must fail.
type Eviction struct {
	Reason, Message string
}

// NodeInfo is what a pod's status says about the machine, and what the machine can do.
type NodeInfo struct {
	// HostIPs are the node's addresses, the primary one first, at most one of each family; see [HostIPs]. Empty: not
	// known now, so what was published stays.
	HostIPs []netip.Addr
	// IPv6First tells that a pod with addresses of both families shows its IPv6 one first.
	IPv6First bool
	// RecursiveReadOnly tells that the runtime can mount volumes read-only with all that is mounted below them.
	RecursiveReadOnly bool
	// PodResources asks for the pod-level status.resources and status.allocatedResources. API servers before v1.36 drop
	// them, and a status that is never stored as it was sent would be sent for ever.
	PodResources bool
}

// Probes are the newest probe results by container ID. A result for a container that was replaced finds nobody (SM-14).
type Probes map[observed.ContainerID]ProbeFacts

// ProbeFacts is what probing knows about one container.
type ProbeFacts struct {
	Startup, Readiness Verdict
}

// Verdict is the outcome of a probe after its thresholds.
type Verdict int

// The verdicts. The zero value is that of a probe that has not spoken yet.
const (
	ProbeUndecided Verdict = iota
	ProbePassed
	ProbeFailed
)

// of looks a status' container up. A container without an ID was never probed.
func (p Probes) of(containerID string) ProbeFacts {
	if len(p) == 0 || containerID == "" {
		return ProbeFacts{}
	}
	return p[observed.ParseContainerID(containerID)]
}
