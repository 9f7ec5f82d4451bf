package agent

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// notResized is why a pod keeps the resources that it has.
const notResized = "this node does not resize containers: they keep the resources that the pod came with"

// allocated is the pod with the resources that it came with, whatever it asks for since (PW-13): a resize is not applied,
// and the pod's status says so (SM-88). A static pod that asks for others is another pod, and one that asks for nothing may
// not ask for anything later.
func (a *Agent) allocated(p *v1.Pod) *v1.Pod {
	if podid.IsStatic(p) || p.Status.QOSClass == v1.PodQOSBestEffort {
		return p
	}
	allocated, known := a.Allocations.AllocatedPod(p)
	if !known {
		a.grant(p)
	}
	if allocated == p {
		a.Allocations.ClearPodResizePendingCondition(podid.UID(p.UID))
	} else {
		a.refuseResize(p)
	}
	return allocated
}

// grant remembers what the pod has. A disk that does not take it is asked again in the pod's next turn.
func (a *Agent) grant(p *v1.Pod) {
	if err := a.Allocations.SetPodAllocation(p); err != nil {
		a.config.Logger.Error("What resources a pod has is not on disk", "pod", podid.FullNameOf(p).String(), "err", err)
	}
}

func (a *Agent) refuseResize(p *v1.Pod) {
	verdict := derive.ResizeCondition{Reason: v1.PodReasonInfeasible, Message: notResized, Generation: p.Generation}
	if a.Allocations.SetPodResizePendingCondition(podid.UID(p.UID), verdict) {
		a.config.Events.Event(p, v1.EventTypeWarning, "ResizeInfeasible",
			fmt.Sprintf("Pod resize of generation %d: %s", p.Generation, notResized))
	}
}
