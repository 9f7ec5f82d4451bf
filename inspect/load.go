package inspect

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

// nodeLoad returns the load of the node. It is measured all the time: asking costs nothing.
func (i *Inspector) nodeLoad() *view.NodeLoad {
	node := i.config.Stats.Node()
	return view.NewNodeLoad(node, i.config.Stats.Time(node.LevelSince))
}

// AddLoads adds their loads to views of pods. Pods that were not measured yet have none. For a while after a call, pods are measured
// four times as often: call it only if somebody wants the loads.
func (i *Inspector) AddLoads(views []view.PodView) {
	if i.config.Stats == nil {
		return
	}
	pods, now := map[podid.UID]*v1.Pod{}, time.Now()
	for _, pod := range i.config.Agent.LocalPods() {
		pods[podid.UID(pod.UID)] = pod
	}
	for n := range views {
		uid := podid.UID(views[n].Metadata.UID)
		measured, isMeasured := i.config.Stats.Pod(uid)
		if pod, found := pods[uid]; found && isMeasured {
			views[n].Load = view.NewPodLoad(measured, pod)
			for _, recent := range i.config.Tally.recent(uid, now) {
				views[n].Load.Restarts += recent.Restarts
				views[n].Load.ReadinessFlips += recent.Flips
			}
		}
	}
}

// NodeLoadHistory returns the load of the node since a time within the last 24 hours.
func (i *Inspector) NodeLoadHistory(since time.Time) view.LoadHistory {
	metadata := view.Metadata{}
	if i.config.Node != nil {
		if object := i.config.Node.Object(); object != nil {
			metadata = view.Metadata{Name: object.Name, UID: string(object.UID)}
		}
	}
	if i.config.Stats == nil {
		return view.NewNodeLoadHistory(load.Points{}, metadata)
	}
	return view.NewNodeLoadHistory(i.config.Stats.NodeDay(since), metadata)
}

// PodLoadHistory returns the load of a pod since a time within the last 24 hours, and false if the node does not have the pod. It does not
// make measurements more frequent.
func (i *Inspector) PodLoadHistory(name podid.FullName, since time.Time) (view.LoadHistory, bool) {
	pod, found := i.find(name)
	if !found {
		return view.LoadHistory{}, false
	}
	var points load.Points
	if i.config.Stats != nil {
		points, _ = i.config.Stats.PodDay(podid.UID(pod.UID), since)
	}
	return view.NewPodLoadHistory(points, view.Metadata{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}), true
}
