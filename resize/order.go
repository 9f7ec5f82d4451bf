package resize

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/derive"
)

// Pending is a resize that the node has not accepted yet.
type Pending struct {
	// Desired is the pod, Allocated the pod with its allocated resources.
	Desired, Allocated *v1.Pod
	// Since is when the resize became pending. Zero if it was not decided yet.
	Since time.Time
}

// Compare orders pending resizes by who is decided first (RSZ-6): those that raise no request, then by priority, then pods of the
// class Guaranteed, then those that have been pending for longest. Two pods that raise nothing are ordered by the rest, where
// the kubelet's order puts each before the other (BUG-126).
func Compare(a, b Pending) int {
	return cmp.Or(
		compareBools(b.raisesRequests(), a.raisesRequests()),
		cmp.Compare(ptr.Deref(b.Desired.Spec.Priority, 0), ptr.Deref(a.Desired.Spec.Priority, 0)),
		compareBools(a.isGuaranteed(), b.isGuaranteed()),
		compareBools(!a.Since.IsZero(), !b.Since.IsZero()),
		a.Since.Compare(b.Since),
	)
}

// compareBools puts true before false.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func (p Pending) raisesRequests() bool {
	desired, allocated := podRequests(p.Desired), podRequests(p.Allocated)
	return desired.MilliCPURequest > allocated.MilliCPURequest || desired.MemoryRequest > allocated.MemoryRequest
}

// LowersRequests reports whether the resize leaves more CPU or memory to other pods.
func (p Pending) LowersRequests() bool {
	desired, allocated := podRequests(p.Desired), podRequests(p.Allocated)
	return desired.MilliCPURequest < allocated.MilliCPURequest || desired.MemoryRequest < allocated.MemoryRequest
}

func (p Pending) isGuaranteed() bool { return derive.QOSClass(p.Desired) == v1.PodQOSGuaranteed }

func podRequests(pod *v1.Pod) Quantities {
	return newQuantities(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), nil)
}

// Verdict is why the node does not accept a resize.
type Verdict struct {
	// Reason is v1.PodReasonInfeasible or v1.PodReasonDeferred.
	Reason string
	// Message is that of the pod's condition.
	Message string
	// Detail is the label of the metric for infeasible resizes.
	Detail string
}

// IsInfeasible reports whether only another spec, or another start of the agent, can change the verdict (RSZ-9).
func (v Verdict) IsInfeasible() bool { return v.Reason == v1.PodReasonInfeasible }

// Deferred returns the verdict for a resize that must wait, such as for resources of other pods.
func Deferred(message string) *Verdict {
	return &Verdict{Reason: v1.PodReasonDeferred, Message: message}
}

// Infeasible returns the verdict for a resize that this node cannot carry out. detail is a label of metrics.
func Infeasible(message, detail string) *Verdict {
	return &Verdict{Reason: v1.PodReasonInfeasible, Message: message, Detail: detail}
}
