package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// keepHouse makes up for what was missed, at short intervals (PW-44..51).
func (a *Agent) keepHouse(ctx context.Context) error {
	ticker := time.NewTicker(a.config.Housekeeping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.housekeep(ctx)
		}
	}
}

func (a *Agent) housekeep(ctx context.Context) {
	a.Workers.Housekeep(a.Pods.GetPods(), a.held(), a.Sources.Ready)
	if !a.Sources.AllReady() {
		return
	}
	known := a.known()
	a.Statuses.RemoveOrphanedStatuses(known)
	a.removeVolumes(ctx, known)
}

// held is what the runtime has, or nil when that is not known now (PW-51).
func (a *Agent) held() []*observed.Pod {
	pods, at := a.Pleg.Pods()
	if at.IsZero() || time.Since(at) > 10*a.config.Housekeeping {
		return nil
	}
	if pods == nil {
		pods = []*observed.Pod{}
	}
	return pods
}

// known are all pods that somebody wants, with their mirrors, and all that are not gone from this node yet.
func (a *Agent) known() map[types.UID]bool {
	known := map[types.UID]bool{}
	pods, mirrors, _ := a.Pods.GetPodsAndMirrorPods()
	for _, p := range pods {
		known[p.UID] = true
	}
	for _, p := range mirrors {
		known[p.UID] = true
	}
	for _, state := range a.Workers.Pods() {
		known[types.UID(state.UID)] = true
	}
	return known
}

// removeVolumes ends what an earlier agent left of pods that nobody knows any more, once their containers are gone too.
func (a *Agent) removeVolumes(ctx context.Context, known map[types.UID]bool) {
	held := a.held()
	if a.config.Volumes == nil || held == nil {
		return
	}
	left, err := a.config.Volumes.Pods()
	if err != nil {
		a.config.Logger.Error("Folders of pods cannot be listed", "err", err)
		return
	}
	running := map[podid.UID]bool{}
	for _, p := range held {
		running[p.UID] = true
	}
	for _, uid := range left {
		if known[types.UID(uid)] || running[uid] {
			continue
		}
		if err := a.config.Volumes.Unmount(ctx, uid); err != nil {
			a.config.Logger.Error("The folder of a pod that is gone cannot be removed", "uid", uid, "err", err)
		}
	}
}
