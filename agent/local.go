package agent

import (
	"cmp"
	"context"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/status"
)

// LocalPods are all pods that this node should run, and those that it has not got rid of yet, each with what the node itself
// says of it: whatever the API server knows, and whether or not there is one (PM-16).
func (a *Agent) LocalPods() []*v1.Pod {
	pods := a.Pods.GetPods()
	known := make(map[string]bool, len(pods))
	for _, p := range pods {
		known[string(p.UID)] = true
	}
	for _, state := range a.Workers.Pods() {
		if state.Pod != nil && !known[string(state.UID)] {
			pods = append(pods, state.Pod)
		}
	}
	local := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		local = append(local, a.localPod(p))
	}
	slices.SortFunc(local, func(x, y *v1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
	})
	return local
}

func (a *Agent) localPod(p *v1.Pod) *v1.Pod {
	local := *p
	if status, found := a.Statuses.GetPodStatus(p.UID); found {
		local.Status = status
	}
	return withAge(&local)
}

// withAge lets a pod that no API server created be as old as its start on this node.
func withAge(p *v1.Pod) *v1.Pod {
	if p.CreationTimestamp.IsZero() && p.Status.StartTime != nil {
		p.CreationTimestamp = *p.Status.StartTime
	}
	return p
}

// WatchLocalPods yields LocalPods as they are added, change and go, beginning with those that there are, until ctx ends.
func (a *Agent) WatchLocalPods(ctx context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		changes := a.Statuses.Changes(ctx) // listen first: what happens meanwhile is told twice, not missed
		shown := map[string]bool{}
		for _, p := range a.LocalPods() {
			shown[string(p.UID)] = true
			if !yield(watch.Event{Type: watch.Added, Object: p}) {
				return
			}
		}
		for change := range changes {
			if !yield(eventOf(change, shown)) {
				return
			}
		}
	}
}

// eventOf words a change for somebody who was shown these pods, and notes what it shows.
func eventOf(change status.Change, shown map[string]bool) watch.Event {
	local := *change.Pod
	local.Status = *change.Status
	event := watch.Event{Type: watch.Modified, Object: withAge(&local)}
	switch uid := string(change.UID); {
	case change.Removed:
		event.Type = watch.Deleted
		delete(shown, uid)
	case !shown[uid]:
		event.Type = watch.Added
		shown[uid] = true
	}
	return event
}
