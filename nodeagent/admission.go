package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/admission"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// Reasons of rejections that the kubelet does not have.
const (
	reasonForbidden = "ForbiddenSource"
	reasonTooLarge  = "TooManyContainers"
)

// maxContainers bounds the init and regular containers of a pod. An object has room for thousands, each with three probes
// that may run at the same time.
const maxContainers = 100

// admit returns an error if the node does not run the pod.
func (n *NodeAgent) admit(pod *v1.Pod) error {
	if n.config.Runtime == RuntimeProcess && !n.config.AllowAPIPods && !podid.IsStatic(pod) {
		return &admission.Rejection{
			Reason: reasonForbidden, Message: fmt.Sprintf("the %s runtime does not isolate pods, so it runs static pods only", RuntimeProcess),
			Field: "spec.nodeName", Remedy: "use another node, or allow pods of the API server with --allow-api-pods",
		}
	}
	if containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); containers > maxContainers {
		return &admission.Rejection{
			Reason: reasonTooLarge, Message: fmt.Sprintf("pod has %d containers", containers),
			Field: "spec.containers", Remedy: fmt.Sprintf("use at most %d, including init containers", maxContainers),
		}
	}
	node, others := n.admissionNode(pod), n.otherPods(podid.UID(pod.UID))
	rejection, victims := admission.CheckWithPreemption(pod, node, others)
	if rejection != nil && rejection.IsNodeAffinity() {
		node.Object = n.currentNode(node.Object)
		rejection, victims = admission.CheckWithPreemption(pod, node, others)
	}
	for _, victim := range victims {
		n.preempt(victim, rejection.Shortages[0].Resource)
	}
	if rejection != nil {
		return rejection
	}
	return nil
}

// admitResize returns why the node does not give the pod the resources of its spec now, or nil. What does not fit beside the other
// pods is deferred, also if it is more than the node has: a node can grow. Nothing is preempted for it (RSZ-7, RSZ-8).
func (n *NodeAgent) admitResize(pod *v1.Pod) *resize.Verdict {
	if n.config.Runtime == RuntimeProcess {
		return resize.Infeasible(fmt.Sprintf("the %s runtime does not limit the resources of containers", RuntimeProcess), "runtime")
	}
	if rejection := admission.Check(pod, n.admissionNode(pod), n.otherPods(podid.UID(pod.UID)).All()); rejection != nil {
		return resize.Deferred(rejection.Message)
	}
	return nil
}

// admissionNode returns what the admission of the pod depends on.
func (n *NodeAgent) admissionNode(pod *v1.Pod) admission.Node {
	node := admission.Node{
		Object: n.Node.Object(), Allocatable: v1.ResourceList{}, AllowedUnsafeSysctls: n.config.AllowedUnsafeSysctls,
		AppArmor: n.host.AppArmorEnabled(), SupplementalGroupsPolicy: true,
	}
	_, node.Pressures = n.Agent.Evictions.Conditions()
	if node.Object != nil { // it may have extended resources
		maps.Copy(node.Allocatable, node.Object.Status.Allocatable)
	}
	maps.Copy(node.Allocatable, n.Node.Allocatable())
	if security := pod.Spec.SecurityContext; security != nil && security.SupplementalGroupsPolicy != nil {
		ctx, cancel := context.WithTimeout(context.Background(), admissionTimeout)
		defer cancel()
		supported, err := n.runtime.SupportsGroupsPolicy(ctx)
		node.SupplementalGroupsPolicy = supported || err != nil // checked again before the sandbox is started
	}
	return node
}

// admissionTimeout bounds each request that an admission waits for.
const admissionTimeout = 2 * time.Second

// currentNode returns the API server's Node, whose labels may have changed since the last report (ADM-11).
func (n *NodeAgent) currentNode(known *v1.Node) *v1.Node {
	if n.clients.objects == nil {
		return known
	}
	ctx, cancel := context.WithTimeout(context.Background(), admissionTimeout)
	defer cancel()
	current, err := n.clients.objects.GetNode(ctx, n.config.NodeName)
	if err != nil {
		n.config.Logger.Warn("Failed to get node for admission, using the last known", "node", n.config.NodeName, "err", err)
		return known
	}
	return current
}

// otherPods returns the pods that occupy a place on the node, except the given one: admitted pods, and pods that have been
// running since before a restart and are not admitted yet. A pod that no source has is empty.
func (n *NodeAgent) otherPods(uid podid.UID) admission.Others {
	placed, ends, now := map[podid.UID]bool{}, map[podid.UID]time.Time{}, time.Now()
	listed, _ := n.Agent.PLEG.Pods()
	for _, pod := range listed {
		if newer := n.Agent.PLEG.Get(pod.UID); !newer.At.IsZero() {
			pod = newer
		}
		placed[pod.UID] = pod.Running()
	}
	for _, state := range n.Agent.Workers.Pods() {
		placed[state.UID] = state.Stage < plan.Terminated && (state.Admitted || placed[state.UID])
		ends[state.UID] = endsBy(state)
	}
	placed[uid] = false
	var others admission.Others
	for _, other := range slices.Sorted(maps.Keys(placed)) {
		if !placed[other] {
			continue
		}
		pod, found := n.Agent.Pods.GetPodByUID(other)
		if !found {
			pod = &v1.Pod{}
		}
		pod, _ = n.Agent.Allocations.AllocatedPod(pod)
		switch end := ends[other]; {
		case end.IsZero():
			others.Staying = append(others.Staying, pod)
		case now.Before(end):
			others.Ending = append(others.Ending, pod)
		default:
			others.Overdue = append(others.Overdue, pod)
		}
	}
	return others
}
