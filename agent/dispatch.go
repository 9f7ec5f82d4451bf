package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/worker"
)

// dispatch takes in what the sources want (CFG-42), and keeps house in between: one after the other, for to housekeeping
// a pod that arrives meanwhile would be one that nobody wants.
//
// It begins when the runtime has answered once or is known not to: pods that were told of the network before anybody asked
// about it would all complain that it is not there.
func (a *Agent) dispatch(ctx context.Context) error {
	a.health.await(ctx)
	housekeeping := time.NewTicker(a.config.HousekeepingInterval)
	defer housekeeping.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case update, open := <-a.Sources.Updates():
			if !open { // the sources have their own word on it
				<-ctx.Done()
				return nil
			}
			a.take(update)
			update.Ack()
		case <-housekeeping.C:
			a.housekeep()
		}
	}
}

// take acts on one batch. The address book is always right before anybody else hears of a change: whoever looks a pod up
// meanwhile finds what is wanted now (CFG-43, CFG-44).
func (a *Agent) take(update source.Update) {
	pods := slices.SortedStableFunc(slices.Values(update.Pods), func(x, y *v1.Pod) int {
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) // the older win admission after a restart (CFG-43)
	})
	for _, p := range pods {
		if update.Op == source.OpRemove {
			a.Pods.RemovePod(p)
		} else {
			a.Pods.UpdatePod(p)
		}
	}
	if update.Op == source.OpAdd {
		a.Allocations.BackfillPodResizeConditions(pods) // SM-92
	}
	for _, p := range pods {
		switch {
		case podid.IsMirror(p):
			a.takeMirror(p)
		case update.Op == source.OpRemove:
			a.Workers.UpdatePod(worker.Update{Op: plan.OpKill, Pod: p})
		case update.Op == source.OpReconcile:
			a.reconcile(p)
		default:
			a.wanted(p, update.Op)
		}
		a.Mirrors.Enqueue(podid.FullNameOf(p))
	}
}

func (a *Agent) wanted(p *v1.Pod, op source.Op) {
	u := worker.Update{Op: plan.OpUpdate, Pod: p}
	if op == source.OpAdd {
		u.Op = plan.OpCreate
	}
	u.Mirror = a.mirrorOf(p)
	a.Workers.UpdatePod(u)
	a.Statuses.Reconcile(p)
}

// mirrorOf is the mirror of exactly this pod, or nil. One of an earlier manifest tells of another pod, whose start and
// restarts are not this one's.
func (a *Agent) mirrorOf(p *v1.Pod) *v1.Pod {
	if mirror, found := a.Pods.GetMirrorPodByPod(p); found && podid.IsMirrorOf(mirror, p) {
		return mirror
	}
	return nil
}

// takeMirror has the static pod's worker see its mirror, and the mirror get the static pod's status.
func (a *Agent) takeMirror(mirror *v1.Pod) {
	static, found := a.Pods.GetPodByMirrorPod(mirror)
	if !found {
		return
	}
	a.Workers.UpdatePod(worker.Update{Op: plan.OpSync, Pod: static, Mirror: a.mirrorOf(static)})
	a.Statuses.Reconcile(mirror)
}

// reconcile takes in a newer copy of a pod of which the same is wanted (CFG-45). What others wrote over our word is put
// right; a readiness gate that was turned needs a new status (SM-97), and an end that somebody else told is one (PW-7).
func (a *Agent) reconcile(p *v1.Pod) {
	a.Statuses.Reconcile(p)
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if ended || derive.NeedToReconcileReadiness(p) {
		a.Workers.UpdatePod(worker.Update{Op: plan.OpSync, Pod: p})
	}
}

// heed wakes the worker of each pod that changed in the runtime (PLEG-17).
func (a *Agent) heed(ctx context.Context) error {
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

// stopped hears that all containers of a pod have ended: its mirror may go (PW-43).
func (a *Agent) stopped(name podid.FullName) { a.Mirrors.Enqueue(name) }

// safety answers what the status manager asks before it reports an end, or deletes an object. The workers are made after it.
type safety struct{ agent *Agent }

func (s safety) PodCouldHaveRunningContainers(uid podid.UID) bool {
	return s.agent.Workers.PodCouldHaveRunningContainers(uid)
}

func (s safety) PodResourcesAreReclaimed(p *v1.Pod, status *v1.PodStatus) bool {
	return s.agent.Workers.PodResourcesAreReclaimed(p, status)
}
