package agent

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// LocalPodByName returns a pod with its local status, as in LocalPods. A static pod has the name of its mirror. If a pod was replaced by
// one of the same name, the desired one is returned; otherwise one that is still on the node, also if it has ended.
func (a *Agent) LocalPodByName(namespace, name string) (*v1.Pod, bool) {
	if pod, found := a.Pods.GetPodByName(namespace, name); found {
		return a.LocalPod(pod), true
	}
	var last *v1.Pod
	for _, state := range a.Workers.Pods() {
		pod := state.Pod
		if pod != nil && podid.FullNameOf(pod) == (podid.FullName{Namespace: namespace, Name: name}) &&
			(last == nil || last.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			last = pod
		}
	}
	if last == nil {
		return nil, false
	}
	return a.LocalPod(last), true
}

// LastTurn returns when the loop that handles updates of pods and housekeeping last turned, or the zero time if it has not begun. It
// turns at least every HousekeepingInterval unless something blocks it.
func (a *Agent) LastTurn() time.Time {
	if turn := a.loop.lastTurn.Load(); turn != nil {
		return *turn
	}
	return time.Time{}
}
