package agent

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/worker"
)

// admit decides whether the node runs the pod, with the resources that an earlier agent allocated to it (RSZ-26), and allocates
// them.
func (a *Agent) admit(pod *v1.Pod) error {
	allocated, _ := a.Allocations.AllocatedPod(pod)
	if a.config.Admit != nil {
		if err := a.config.Admit(allocated); err != nil {
			return err
		}
	}
	if hasAllocation(pod) {
		a.Allocations.AdmitPod(allocated)
	}
	return nil
}

// hasAllocation reports whether the pod's resources can change while it runs. A BestEffort pod has none, and must remain one.
func hasAllocation(pod *v1.Pod) bool { return derive.QOSClass(pod) != v1.PodQOSBestEffort }

// allocatedPod returns the pod with the resources that it is allocated (PW-13, RSZ-2).
func (a *Agent) allocatedPod(pod *v1.Pod) *v1.Pod {
	if !hasAllocation(pod) {
		return pod
	}
	if err := a.Allocations.EnsurePodAllocation(pod); err != nil { // retried in the next sync
		a.config.Logger.Error("Failed to save pod allocation", "pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID, "err", err)
	}
	allocated, _ := a.Allocations.AllocatedPod(pod)
	return allocated
}

// resizeAfter tries pending resizes after pods were added or removed (RSZ-4). After a restart of the agent, those whose resize
// was not accepted yet are queued again (RSZ-26).
func (a *Agent) resizeAfter(op source.Op, pods []*v1.Pod) {
	switch op {
	case source.OpAdd:
		queued := false
		for _, pod := range pods {
			queued = !podid.IsMirror(pod) && a.Allocations.QueueResize(pod) || queued
		}
		if queued {
			a.retryPendingResizes(allocation.TriggerPodsAdded)
		}
	case source.OpRemove:
		a.retryPendingResizes(allocation.TriggerPodsRemoved)
	}
}

// retryPendingResizes decides about pending resizes, once all sources have reported their pods (RSZ-5). It is called by dispatch
// only.
func (a *Agent) retryPendingResizes(trigger allocation.Trigger) {
	if a.Allocations.HasPendingResizes() && a.Sources.AllReady() {
		a.Workers.WithoutAdmissions(func() { a.Allocations.RetryPendingResizes(trigger) })
	}
}

// resizablePod returns a pod that is admitted and has not ended.
func (a *Agent) resizablePod(uid podid.UID) (*v1.Pod, bool) {
	pod, found := a.Pods.GetPodByUID(uid)
	if !found || pod.DeletionTimestamp != nil {
		return nil, false
	}
	state, found := a.Workers.Pod(uid)
	return pod, found && state.Stage == plan.Syncing
}

// reasonNoResizer is why a runtime cannot carry out any resize.
const reasonNoResizer = "this node does not support resizing: containers keep the resources that the pod was admitted with"

func (a *Agent) decideResize(pod *v1.Pod) *resize.Verdict {
	if _, ok := a.config.Runtime.(worker.Resizer); !ok {
		return resize.Infeasible(reasonNoResizer, "runtime")
	}
	if a.config.AdmitResize == nil {
		return nil
	}
	return a.config.AdmitResize(pod)
}

// resizes implements worker.Resizes with the allocation manager.
type resizes struct{ *Agent }

func (r resizes) State(uid podid.UID) derive.Resize { return r.Allocations.ResizeState(uid) }

func (r resizes) Actuated(pod *v1.Pod) (resize.State, bool) { return r.Allocations.ActuatedState(pod) }

func (r resizes) SetActuated(pod *v1.Pod, name string, quantities resize.Quantities) error {
	return r.Allocations.SetActuated(pod, name, quantities)
}

func (r resizes) SetInProgress(pod *v1.Pod, inProgress bool) {
	uid := podid.UID(pod.UID)
	if inProgress {
		r.Allocations.SetPodResizeInProgressCondition(uid, derive.ResizeCondition{Generation: pod.Generation})
		return
	}
	if allocated, _ := r.Allocations.AllocatedPod(pod); allocated != pod {
		return // another resize was accepted since the pod was looked at
	}
	if generation, found := r.Allocations.ClearPodResizeInProgressCondition(uid); found {
		r.config.Events.Event(pod, v1.EventTypeNormal, "ResizeCompleted", resize.Message("completed", pod, generation, ""))
	}
}

func (r resizes) SetFailed(pod *v1.Pod, err error) {
	uid := podid.UID(pod.UID)
	condition := derive.ResizeCondition{Reason: v1.PodReasonError, Message: err.Error(), Generation: pod.Generation}
	if generation, changed := r.Allocations.SetPodResizeInProgressCondition(uid, condition); changed {
		r.config.Events.Event(pod, v1.EventTypeWarning, "ResizeError", resize.Message("error", pod, generation, err.Error()))
	}
}
