package agent

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/observed"
)

// housekeep makes up for what was missed (PW-44..51).
func (a *Agent) housekeep() {
	a.Workers.Housekeep(a.Pods.GetPods(), a.held(), a.Sources.Ready)
	if a.Sources.AllReady() {
		known := a.known()
		a.Statuses.RemoveOrphanedStatuses(known)
		a.Allocations.RemoveOrphanedPods(known)
	}
}

// held is what the runtime has, or nil when that is not known now (PW-51). Of a slow runtime it is known late, and yet known.
func (a *Agent) held() []*observed.Pod {
	if a.PLEG.Healthy() != nil {
		return nil
	}
	pods, _ := a.PLEG.Pods()
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
