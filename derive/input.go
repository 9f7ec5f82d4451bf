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
	Probes   ProbeResults
	// Waiting says, by container name, why a container could not be started. It is asked only for containers that are to
	// be started again (PH-31).
	Waiting map[string]Waiting
	// Resize are the pod's resize conditions, left out once the pod has ended (PH-40).
	Resize Resize
	Node   NodeInfo
	// Evict is set when the pod must fail, whatever its containers do (PH-19).
	Eviction *Eviction
	// Terminating tells that the pod's containers were stopped for good: none is started again, whatever the restart
	// policy says (PH-9).
	Terminating bool
	Now         time.Time
}

// Waiting explains why a container waits, in the API's words: CrashLoopBackOff, ErrImagePull.
type Waiting struct {
	Reason, Message string
	// Until is when the container may be started. Zero if unknown. It is not part of the status.
	Until time.Time
}

// ContainerKind is a container's role in its pod. The zero value is no kind.
type ContainerKind string

// The container kinds.
const (
	InitContainer      ContainerKind = "init"      // runs to completion before the next one starts
	SidecarContainer   ContainerKind = "sidecar"   // an init container that keeps running next to the regular ones
	RegularContainer   ContainerKind = "regular"   // an entry of spec.containers
	EphemeralContainer ContainerKind = "ephemeral" // started once, for debugging
)

// MetricLabel returns the kubelet's value of the label container_type. It counts sidecars as init containers.
func (k ContainerKind) MetricLabel() string {
	switch k {
	case InitContainer, SidecarContainer:
		return "init_container"
	case EphemeralContainer:
		return "ephemeral_container"
	default:
		return "container"
	}
}

// Eviction explains why a pod must fail.
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
type ProbeResults map[observed.ContainerID]ContainerProbeResults

// ProbeFacts is what probing knows about one container.
type ContainerProbeResults struct {
	Startup, Readiness ProbeResult
}

// Verdict is the outcome of a probe after its thresholds.
type ProbeResult int

// The verdicts. The zero value is that of a probe that has not spoken yet.
const (
	ProbeUnknown ProbeResult = iota
	ProbeSuccess
	ProbeFailure
)

// of looks a status' container up. A container without an ID was never probed.
func (p ProbeResults) of(containerID string) ContainerProbeResults {
	if len(p) == 0 || containerID == "" {
		return ContainerProbeResults{}
	}
	return p[observed.ParseContainerID(containerID)]
}
