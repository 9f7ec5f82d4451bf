package agent

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/worker"
)

// dispatchLoop is the state of dispatch that others use.
type dispatchLoop struct {
	// retryResizes is set when a pod has stopped: deferred resizes may fit now.
	retryResizes wakeup.Signal
	// lastTurn is when dispatch last turned.
	lastTurn atomic.Pointer[time.Time]
}

// dispatch handles the updates of the sources (CFG-42) and runs housekeeping. Never concurrent: housekeeping would treat a
// pod that arrives mid-pass as orphaned.
//
// It waits for the first health check of the runtime. Otherwise every pod would report that the network is not ready.
func (a *Agent) dispatch(ctx context.Context) error {
	a.health.waitForFirst(ctx)
	housekeeping := time.NewTicker(a.config.HousekeepingInterval)
	defer housekeeping.Stop()
	for {
		now := time.Now()
		a.loop.lastTurn.Store(&now)
		select {
		case <-ctx.Done():
			return nil
		case update, ok := <-a.Sources.Updates():
			if !ok { // Sources.Run returns the error
				<-ctx.Done()
				return nil
			}
			if update.Source == podid.API {
				a.waitForList(ctx)
			}
			a.handleUpdate(update)
			update.Ack()
		case <-a.loop.retryResizes:
			a.retryPendingResizes(allocation.TriggerPodTerminated)
		case <-housekeeping.C:
			a.housekeep()
			a.retryPendingResizes(allocation.TriggerPeriodic)
		}
	}
}

// waitForList waits until a healthy runtime was listed, for at most listTimeout. Running pods are known then, and the others
// are admitted in order (CFG-43). Static pods need no list: each is observed first.
func (a *Agent) waitForList(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	poll := time.NewTicker(listPollInterval)
	defer poll.Stop()
	for ctx.Err() == nil && a.health.runtimeError() == nil {
		if _, listedAt := a.PLEG.Pods(); !listedAt.IsZero() {
			return
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
}

const (
	listTimeout      = 10 * time.Second
	listPollInterval = 10 * time.Millisecond
)

// handleUpdate updates the pod manager before any other component, so that they all find the newest pods there (CFG-43,
// CFG-44).
func (a *Agent) handleUpdate(update source.Update) {
	pods := slices.SortedStableFunc(slices.Values(update.Pods), func(a, b *v1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) // after a restart the oldest pod is admitted first (CFG-43)
	})
	var resized bool
	for _, pod := range pods {
		if update.Op == source.OpRemove {
			a.Pods.RemovePod(pod)
			continue
		}
		before, found := a.Pods.GetPodByUID(podid.UID(pod.UID))
		a.Pods.UpdatePod(pod)
		if update.Op == source.OpUpdate && found && !podid.IsMirror(pod) && a.Allocations.RequestResize(before, pod) {
			resized = true
		}
	}
	if update.Op == source.OpAdd {
		a.Allocations.BackfillPodResizeConditions(pods) // SM-92
	}
	if resized { // before a worker reports that it has seen the new spec
		a.retryPendingResizes(allocation.TriggerPodUpdated)
	}
	now := time.Now()
	for _, pod := range pods {
		a.starts.observe(update, pod, now)
		switch {
		case podid.IsMirror(pod):
			a.handleMirror(pod)
		case update.Op == source.OpRemove:
			a.Workers.UpdatePod(worker.Update{Op: plan.OpKill, Pod: pod})
		case update.Op == source.OpReconcile:
			a.reconcile(pod)
		case update.Op == source.OpAdd:
			a.updateWorker(pod, plan.OpCreate)
		default:
			a.updateWorker(pod, plan.OpUpdate)
		}
		a.Mirrors.Enqueue(podid.FullNameOf(pod))
		a.changes.announce(types.UID(a.Pods.TranslatePodUID(pod.UID)))
	}
	a.resizeAfter(update.Op, pods)
}

func (a *Agent) updateWorker(pod *v1.Pod, op plan.Op) {
	a.Workers.UpdatePod(worker.Update{Op: op, Pod: pod, Mirror: a.mirrorOf(pod)})
	a.Statuses.Reconcile(pod)
}

// mirrorOf returns the mirror of exactly this pod, or nil. A mirror of an earlier manifest describes another pod with its
// own start time and restart counts.
func (a *Agent) mirrorOf(pod *v1.Pod) *v1.Pod {
	if mirror, found := a.Pods.GetMirrorPodByPod(pod); found && podid.IsMirrorOf(mirror, pod) {
		return mirror
	}
	return nil
}

// handleMirror passes the mirror to the worker of its static pod, and the static pod's status to the mirror.
func (a *Agent) handleMirror(mirror *v1.Pod) {
	static, found := a.Pods.GetPodByMirrorPod(mirror)
	if !found {
		return
	}
	a.Workers.UpdatePod(worker.Update{Op: plan.OpSync, Pod: static, Mirror: a.mirrorOf(static)})
	a.Statuses.Reconcile(mirror)
}

// reconcile handles a change of a pod's status in the API server (CFG-45). The status manager corrects what other writers
// changed. A changed readiness gate needs a new status (SM-97), and a terminal phase ends the pod (PW-7).
func (a *Agent) reconcile(pod *v1.Pod) {
	a.Statuses.Reconcile(pod)
	if derive.IsTerminal(pod.Status.Phase) || derive.NeedToReconcileReadiness(pod) {
		a.Workers.UpdatePod(worker.Update{Op: plan.OpSync, Pod: pod})
	}
}

// wakeChangedPods wakes the worker of each pod that changed in the runtime (PLEG-17).
func (a *Agent) wakeChangedPods(ctx context.Context) error {
	for {
		uids, err := a.PLEG.WaitForChanges(ctx)
		if err != nil {
			return err
		}
		for _, uid := range uids {
			a.Workers.Wake(uid)
		}
	}
}

// housekeep corrects for missed updates (PW-44..51).
func (a *Agent) housekeep() {
	a.Workers.Housekeep(a.Pods.GetPods(), a.runtimePods(), a.Sources.Ready)
	if a.Sources.AllReady() {
		known := a.knownPods()
		a.Statuses.RemoveOrphanedStatuses(known)
		a.Allocations.RemoveOrphanedPods(known)
		a.changes.retain(known)
		a.config.OnKnownPods(known)
	}
}

// runtimePods returns the last list of pods in the runtime, or nil if it is outdated (PW-51). A slow runtime has an old list
// that is still valid.
func (a *Agent) runtimePods() []*observed.Pod {
	if a.PLEG.Healthy() != nil {
		return nil
	}
	pods, _ := a.PLEG.Pods()
	if pods == nil {
		pods = []*observed.Pod{}
	}
	return pods
}

// knownPods returns all desired pods, their mirrors, and the pods that still have a worker.
func (a *Agent) knownPods() map[types.UID]bool {
	known := map[types.UID]bool{}
	pods, mirrors, _ := a.Pods.GetPodsAndMirrorPods()
	for _, list := range [][]*v1.Pod{pods, mirrors} {
		for _, pod := range list {
			known[pod.UID] = true
		}
	}
	for _, state := range a.Workers.Pods() {
		known[types.UID(state.UID)] = true
	}
	return known
}
