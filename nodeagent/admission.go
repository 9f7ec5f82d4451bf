package nodeagent

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// rejection is an admission error with the reason for the pod status.
type rejection struct {
	reason string
	err    error
}

func (r *rejection) Error() string           { return r.err.Error() }
func (r *rejection) Unwrap() error           { return r.err }
func (r *rejection) RejectionReason() string { return r.reason }

// Reasons of rejections. OutOfpods is the kubelet's.
const (
	reasonTooMany     = "OutOfpods"
	reasonUnsupported = "UnsupportedField"
	reasonForbidden   = "ForbiddenSource"
	reasonTooLarge    = "TooManyContainers"
)

// maxContainers bounds the init and regular containers of a pod. An object has room for thousands, each with three probes
// that may run at the same time.
const maxContainers = 100

// admit returns an error if the node does not run the pod.
func (n *NodeAgent) admit(pod *v1.Pod) error {
	if n.config.Runtime == RuntimeProcess && !n.config.AllowAPIPods && !podid.IsStatic(pod) {
		return &rejection{reasonForbidden, fmt.Errorf("the %s runtime does not isolate pods, so it runs static pods only; "+
			"--allow-api-pods allows pods of the API server", RuntimeProcess)}
	}
	if containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); containers > maxContainers {
		return &rejection{
			reasonTooLarge, fmt.Errorf("pod has %d containers, at most %d are allowed", containers, maxContainers),
		}
	}
	if err := n.runtime.Rejected(pod); err != nil {
		return &rejection{reasonUnsupported, err}
	}
	if others := n.otherPods(podid.UID(pod.UID)); others >= n.config.MaxPods {
		return &rejection{reasonTooMany, fmt.Errorf("node has %d pods, at most %d are allowed", others, n.config.MaxPods)}
	}
	return nil
}

// otherPods counts the pods that occupy a place on the node, except the given one: admitted pods, and pods that have been
// running since before a restart and are not admitted yet.
func (n *NodeAgent) otherPods(uid podid.UID) int {
	placed := map[podid.UID]bool{}
	listed, _ := n.Agent.PLEG.Pods()
	for _, pod := range listed {
		if newer := n.Agent.PLEG.Get(pod.UID); !newer.At.IsZero() {
			pod = newer
		}
		placed[pod.UID] = pod.Running()
	}
	for _, state := range n.Agent.Workers.Pods() {
		placed[state.UID] = state.Stage < plan.Terminated && (state.Admitted || placed[state.UID])
	}
	placed[uid] = false
	others := 0
	for _, has := range placed {
		if has {
			others++
		}
	}
	return others
}
