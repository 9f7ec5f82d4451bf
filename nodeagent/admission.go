package nodeagent

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

// rejection is why this node will not run a pod, in the words of the pod's status.
type rejection struct {
	reason string
	why    error
}

func (r *rejection) Error() string           { return r.why.Error() }
func (r *rejection) Unwrap() error           { return r.why }
func (r *rejection) RejectionReason() string { return r.reason }

// The reasons of rejections. OutOfpods is the kubelet's; it has no word for a field that it does not honour, since it
// ignores those.
const (
	reasonTooMany     = "OutOfpods"
	reasonUnsupported = "UnsupportedField"
	reasonForbidden   = "ForbiddenSource"
	reasonTooLarge    = "TooManyContainers"
)

// maxContainers is how many containers a pod may have that start with it. An object has room for thousands, each with three
// probes that may all be asked at once, and no pod needs them.
const maxContainers = 100

// admit says whether the node runs the pod.
func (n *Node) admit(pod *v1.Pod) error {
	if n.config.Runtime == RuntimeProcess && !n.config.AllowAPIPods && !podid.IsStatic(pod) {
		return &rejection{reasonForbidden, fmt.Errorf("the %s runtime isolates nothing, so it runs pods of this machine's manifests only; "+
			"--allow-api-pods lets it run those of the API server", RuntimeProcess)}
	}
	if containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); containers > maxContainers {
		return &rejection{
			reasonTooLarge, fmt.Errorf("it has %d containers, and %d is the most that a pod may have", containers, maxContainers),
		}
	}
	if err := n.runtime.Unsupported(pod); err != nil {
		return &rejection{reasonUnsupported, err}
	}
	if others := n.othersOf(podid.UID(pod.UID)); others >= n.config.MaxPods {
		return &rejection{reasonTooMany, fmt.Errorf("this node has %d pods, and %d is the most that it may have", others, n.config.MaxPods)}
	}
	return nil
}

// othersOf counts the pods that have a place on the node, but for that one: those that were admitted, and those that run
// and were not asked about yet, from before a restart.
func (n *Node) othersOf(uid podid.UID) int {
	placed := map[podid.UID]bool{}
	listed, _ := n.Agent.PLEG.Pods()
	for _, seen := range listed {
		if newer := n.Agent.PLEG.Get(seen.UID); !newer.At.IsZero() {
			seen = newer
		}
		placed[seen.UID] = seen.Running()
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
