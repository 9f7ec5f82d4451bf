package remedy

import (
	"slices"
	"time"
)

// Object is what an action is about. All fields are empty for the node, Container for a whole pod.
type Object struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// String returns the object as "the node", "namespace/pod" or "namespace/pod container".
func (o Object) String() string {
	switch {
	case o.Pod == "":
		return "the node"
	case o.Container == "":
		return o.Namespace + "/" + o.Pod
	default:
		return o.Namespace + "/" + o.Pod + " " + o.Container
	}
}

// Subject returns what an action of this type acts upon if the alert is about the object: its pod, the node, or the object itself.
func (t Type) Subject(o Object) Object {
	switch {
	case t == Cordon || t == Uncordon:
		return Object{}
	case kinds[t].perPod:
		return Object{Namespace: o.Namespace, Pod: o.Pod}
	default:
		return o
	}
}

// Facts is what is known about the alert, its object and the node at the time of a decision.
type Facts struct {
	// Object is what the alert is about.
	Object Object
	// FiredAt is when the alert fired. Muted is set if a silence or another alert mutes it.
	FiredAt time.Time
	Muted   bool
	// OnlyIf is the answer of the policy's own expression, NotAllowed why it is not true.
	OnlyIf     bool
	NotAllowed string
	// Pod is nil if the object is the node, or if the node does not have the pod.
	Pod  *Pod
	Node Node
	// Breaker is the reason why disruptive actions are suspended; empty if they are not. SuspendedUntil is when that ends at the earliest.
	Breaker        string
	SuspendedUntil time.Time
}

// Node is what is known about the node.
type Node struct {
	// StartedAt is when this run of the agent began.
	StartedAt time.Time
	// Pods is the number of pods on the node.
	Pods int
	// RuntimeUnknown is set while the container runtime is not observed, so that the states of containers are not known.
	RuntimeUnknown bool
}

// Pod is what is known about the pod of an alert.
type Pod struct {
	Static      bool
	Terminating bool
	// OptedOut is set by the annotation OptOutAnnotation of the pod.
	OptedOut      bool
	Priority      int32
	OwnerKind     string // of its controller; empty without one
	RestartPolicy string
	// StartedAt is when the node began to run the pod; zero if that is not known.
	StartedAt time.Time
	// Container is nil if the alert is about the pod, or if the pod has no such container.
	Container *Container
}

// Container is what is known about the container of an alert.
type Container struct {
	// Kind is init, sidecar, regular or ephemeral.
	Kind    string
	Running bool
	// StartedAt is when the running instance was started.
	StartedAt time.Time
}

// OptOutAnnotation is the annotation with which a pod refuses all actions; its value is OptOutNever.
const (
	OptOutAnnotation = "heraldnode.github.io/remediation"
	OptOutNever      = "never"
)

const (
	// criticalPriority is the lowest priority of the classes system-node-critical and system-cluster-critical.
	criticalPriority = 2_000_000_000
	systemNamespace  = "kube-system"
	// minAge is how long a pod or container must have run before it is restarted.
	minAge = 5 * time.Minute
)

// isProtected reports whether the pod may be acted upon only if it is named.
func (f *Facts) isProtected() bool {
	return f.Pod.Priority >= criticalPriority || f.Pod.Static && f.Object.Namespace == systemNamespace
}

func (f *Facts) isNamed(p *Policy) bool {
	return slices.Contains(p.Pods, f.Object.Namespace+"/"+f.Object.Pod)
}
