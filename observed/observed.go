// Package observed holds the state of a pod as the container runtime reported it: its sandboxes and its containers.
//
// The types hold facts only and carry no desired state. Values are immutable once published, so readers share them
// without copying.
package observed

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/podid"
)

// Pod is everything that the runtime holds under one pod UID, exited instances included.
type Pod struct {
	UID  podid.UID
	Name podid.FullName
	// Source is where the pod came from when its sandbox was created. Empty if the runtime does not say.
	Source podid.Source
	// SeenAt is when the agent that created the newest sandbox had first seen the pod. Zero if the runtime does not say.
	SeenAt time.Time
	// Sandboxes are sorted by attempt, newest first.
	Sandboxes []Sandbox
	// Containers of every sandbox and every attempt. Those of one name are sorted by restart count, newest first.
	Containers []Container
	// IPs of the newest ready sandbox, the primary address first. A pod that ended keeps the addresses of its last
	// sandbox (PLEG-10).
	IPs []netip.Addr
	// Resources of the pod's own cgroup. Nil if they were not read.
	Resources *Resources
	// At is when the inspection began. Later changes may be missing.
	At time.Time
}

// Sandbox is one attempt at creating the pod's environment: its namespaces and its network.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// HostNetwork reports whether the sandbox shares the node's network namespace.
	HostNetwork bool
	// Network is nil if the runtime does not manage networking. A network without addresses means that its setup failed
	// halfway (GEN-28).
	Network *Network
}

// Network is the runtime's report on a sandbox's own network.
type Network struct {
	IPs []netip.Addr
}

// State is the state of a container.
type State int

// Container states. Unknown is the zero value, so that a missing state is never mistaken for a healthy one.
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

// Container is one instance of a container. A restart creates a new instance.
type Container struct {
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
	// Resources is nil if the runtime does not report them.
	Resources *Resources
	// User is the identity of the first process. Nil if the runtime does not report it.
	User *User
	// SpecHash identifies the version of the container's spec that this instance was created from. Zero if unknown.
	SpecHash uint64
}

// Exit describes how a container ended.
type Exit struct {
	Code       int
	Reason     string
	Message    string
	FinishedAt time.Time
}

// Image is the image that a container was created from.
type Image struct {
	// Name as requested in the spec, including the tag.
	Name string
	// Ref is the runtime's reference by digest, which the API shows as imageID (PH-37).
	Ref string
}

// Resources are the limits that the runtime enforces on a running container. A field is nil if the runtime does not report
// it.
type Resources struct {
	MilliCPURequest, MilliCPULimit       *int64
	MemoryRequestBytes, MemoryLimitBytes *int64
}

// User is the Linux identity of a container's first process, including the groups that the image and the runtime added.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// StoredImage is an image that the runtime has.
type StoredImage struct {
	ID            string
	Digests, Tags []string // names with digests and with tags
	Size          int64    // bytes
}

// ContainerID identifies a container and its runtime.
type ContainerID struct {
	Runtime, ID string
}

// String returns the form that the API uses, <runtime>://<id>. It returns an empty string for the zero ID.
func (id ContainerID) String() string {
	if id == (ContainerID{}) {
		return ""
	}
	return id.Runtime + "://" + id.ID
}

// ParseContainerID parses the form that the API uses. It returns the zero ID for any other input.
func ParseContainerID(text string) ContainerID {
	runtime, id, ok := strings.Cut(text, "://")
	if !ok || runtime == "" || id == "" {
		return ContainerID{}
	}
	return ContainerID{Runtime: runtime, ID: id}
}

// Sort establishes the order that the fields Sandboxes and Containers promise. Producers of a Pod call it once.
//
// Attempts and restart counts only increase, so they decide. The kubelet sorts by creation time, which a clock that is set
// back reverses: the running instance would be taken for an old one and stopped (F14). Here creation times only break ties.
func (p *Pod) Sort() {
	slices.SortFunc(p.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(p.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID.ID, b.ID.ID))
	})
}

// NewestSandbox returns the latest sandbox, ready or not.
func (p *Pod) NewestSandbox() (Sandbox, bool) {
	if len(p.Sandboxes) == 0 {
		return Sandbox{}, false
	}
	return p.Sandboxes[0], true
}

// ReadySandboxes returns the number of ready sandboxes. More than one means that sandbox creations raced (GEN-25).
func (p *Pod) ReadySandboxes() int {
	ready := 0
	for _, sandbox := range p.Sandboxes {
		if sandbox.Ready {
			ready++
		}
	}
	return ready
}

// Instances returns the instances of the named container, newest first. The first one determines the container's status,
// the second one its last termination state (PH-24).
func (p *Pod) Instances(name string) []Container {
	var instances []Container
	for _, container := range p.Containers {
		if container.Name == name {
			instances = append(instances, container)
		}
	}
	return instances
}

// Newest returns the newest instance of a container, or nil.
func (p *Pod) Newest(name string) *Container {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i]
		}
	}
	return nil
}

// ActiveContainers returns the containers of the newest sandbox. Containers of an older sandbox, for example from before a
// reboot, say nothing about the present (PH-15).
func (p *Pod) ActiveContainers() []Container {
	newest, ok := p.NewestSandbox()
	if !ok {
		return nil
	}
	var active []Container
	for _, container := range p.Containers {
		if container.SandboxID == newest.ID {
			active = append(active, container)
		}
	}
	return active
}

// Running reports whether any container is running.
func (p *Pod) Running() bool {
	return slices.ContainsFunc(p.Containers, func(container Container) bool { return container.State == Running })
}
