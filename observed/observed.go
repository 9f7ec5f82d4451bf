// Package observed holds what a runtime reported of one pod at one moment: its sandboxes and its containers.
//
// The values are facts, not verdicts: nothing here knows what the pod should be. They are immutable once handed on, so
// readers share them without copying.
package observed

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/podid"
)

// Pod is all that a runtime holds under one pod UID, dead instances included.
type Pod struct {
	UID  podid.UID
	Name podid.FullName
	// Sandboxes, newest first: by attempt.
	Sandboxes []Sandbox
	// Containers of every sandbox and every attempt, those of one name newest first: by restart count.
	Containers []Container
	// IPs of the newest ready sandbox, the primary one first. They outlive the sandbox: a pod that ended keeps the
	// addresses that it had (PLEG-10).
	IPs []netip.Addr
	// Resources are those of the pod's own cgroup, around its containers; nil when nobody read them.
	Resources *Resources
	// At is when the inspection began: whatever happened later may be missing.
	At time.Time
}

// Sandbox is one attempt at a pod's environment: its namespaces and its network.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// HostNetwork tells that it shares the node's network namespace.
	HostNetwork bool
	// Network is nil when the runtime leaves networking to others. Not nil and without addresses means that the
	// network's set-up failed half-way (GEN-28).
	Network *Network
}

// Network is what a runtime says about a sandbox's own network.
type Network struct {
	IPs []netip.Addr
}

// State is a container's state in the runtime's words.
type State int

// The states of a container. Unknown is the zero value, so that a forgotten state is never taken for a good one.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

func (s State) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	default:
		return "unknown"
	}
}

// Container is one instance of a container: a restart makes a new one.
type Container struct {
	// ID is <runtime>://<id>, as the API shows it.
	ID           ContainerID
	Name         string
	SandboxID    string
	State        State
	RestartCount int
	CreatedAt    time.Time
	StartedAt    time.Time
	// Exit is nil until the container has exited.
	Exit  *Exit
	Image Image
	// Resources is nil when the runtime does not report them.
	Resources *Resources
	// User is who the first process runs as; nil when the runtime does not report it.
	User *User
	// SpecHash tells which version of the container's spec this instance was made from, or 0.
	SpecHash uint64
}

// Exit is how a container ended.
type Exit struct {
	Code       int
	Reason     string
	Message    string
	FinishedAt time.Time
}

// Image is what a container was made from.
type Image struct {
	// Name as the spec asked for it, with its tag.
	Name string
	// Ref is the runtime's reference by digest: what the API shows as imageID (PH-37).
	Ref string
}

// Resources are what a runtime enforces on a running container now. A field is nil when the runtime does not say.
type Resources struct {
	MilliCPURequest, MilliCPULimit       *int64
	MemoryRequestBytes, MemoryLimitBytes *int64
}

// User is the identity of a container's first process on Linux, with the groups that the image and the runtime added.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// ContainerID names a container and the runtime that has it.
type ContainerID struct {
	Runtime, ID string
}

// String is the API's form, <runtime>://<id>; empty for no container.
func (id ContainerID) String() string {
	if id == (ContainerID{}) {
		return ""
	}
	return id.Runtime + "://" + id.ID
}

// ParseContainerID reads the API's form. Anything else is no container.
func ParseContainerID(written string) ContainerID {
	runtime, id, ok := strings.Cut(written, "://")
	if !ok || runtime == "" || id == "" {
		return ContainerID{}
	}
	return ContainerID{Runtime: runtime, ID: id}
}

// Sort puts sandboxes and containers in the order that the fields promise. Whoever fills a Pod calls it once.
//
// Attempts and restart counts only rise. The kubelet goes by the times of creation, which a clock that is set back turns
// around: what runs would be taken for old, and stopped (F14). Here they decide only where the numbers do not.
func (p *Pod) Sort() {
	slices.SortFunc(p.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(p.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID.ID, b.ID.ID))
	})
}
