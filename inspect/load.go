package inspect

import (
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// nodeLoad returns the load of the node. It is measured all the time: asking costs nothing.
func (i *Inspector) nodeLoad() *view.NodeLoad {
	load := i.config.Stats.Node()
	return view.NewNodeLoad(load, i.config.Stats.Time(load.LevelSince))
}

// AddLoads adds their loads to views of pods. Pods that were not measured yet have none. For a while after a call, pods are measured
// four times as often: call it only if somebody wants the loads.
func (i *Inspector) AddLoads(views []view.PodView) {
	if i.config.Stats == nil {
		return
	}
	pods := map[podid.UID]*v1.Pod{}
	for _, pod := range i.config.Agent.LocalPods() {
		pods[podid.UID(pod.UID)] = pod
	}
	for n := range views {
		uid := podid.UID(views[n].Metadata.UID)
		load, isMeasured := i.config.Stats.Pod(uid)
		if pod, found := pods[uid]; found && isMeasured {
			views[n].Load = view.NewPodLoad(load, pod)
		}
	}
}
