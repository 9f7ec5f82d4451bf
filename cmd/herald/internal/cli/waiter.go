package cli

import (
	"maps"
	"slices"
	"time"

	"github.com/heraldnode/herald/view"
)

// waiter tracks which pods have met a goal. A pod that has met it once counts as met for ever, as with kubectl.
type waiter struct {
	goal    goal
	names   []string // empty: all pods of the watch
	started time.Time
	synced  bool // all existing pods are known
	pods    map[string]*waitedPod
	met     []metPod
}

// waitedPod is a pod by its namespace, name and UID.
type waitedPod struct {
	view   view.PodView
	isMet  bool
	isSeen bool // on the current connection
	isGone bool
}

func (p *waitedPod) key() string { return p.view.Metadata.Namespace + "/" + p.view.Metadata.Name }

// metPod is a pod that has met the goal, and after what time.
type metPod struct {
	name  string
	after time.Duration
}

func newWaiter(g goal, names []string, now time.Time) *waiter {
	return &waiter{goal: g, names: names, started: now, pods: map[string]*waitedPod{}}
}

// update applies an event of a watch.
func (w *waiter) update(event view.WatchType, v *view.PodView, isMet bool, now time.Time) {
	id := v.Metadata.Namespace + "/" + v.Metadata.Name + "/" + v.Metadata.UID
	pod := w.pods[id]
	if pod == nil {
		if event == view.Deleted || w.synced && w.goal.isDelete {
			return // a pod that came after the deletion was asked for
		}
		pod = &waitedPod{}
		w.pods[id] = pod
	}
	pod.view, pod.isSeen = *v, true
	if event == view.Deleted {
		w.gone(pod, now)
		return
	}
	pod.isGone = false
	if isMet {
		w.setMet(pod, now)
	}
}

// disconnected says that the watch begins anew.
func (w *waiter) disconnected() {
	w.synced = w.synced && w.goal.isDelete // pods of a later agent are not waited for
	for _, pod := range w.pods {
		pod.isSeen = false
	}
}

// synchronized says that the watch has listed all pods that exist: others are gone.
func (w *waiter) synchronized(now time.Time) {
	w.synced = true
	for _, pod := range w.pods {
		if !pod.isSeen {
			w.gone(pod, now)
		}
	}
}

func (w *waiter) gone(pod *waitedPod, now time.Time) {
	pod.isGone = true
	if w.goal.isDelete {
		w.setMet(pod, now)
	}
}

func (w *waiter) setMet(pod *waitedPod, now time.Time) {
	if !pod.isMet {
		pod.isMet = true
		w.met = append(w.met, metPod{pod.key(), now.Sub(w.started)})
	}
}

// takeMet returns the pods that have met the goal since the last call.
func (w *waiter) takeMet() []metPod {
	met := w.met
	w.met = nil
	return met
}

// unmet returns the existing pods that have not met the goal, sorted by name.
func (w *waiter) unmet() []*waitedPod {
	var unmet []*waitedPod
	for _, id := range slices.Sorted(maps.Keys(w.pods)) {
		if pod := w.pods[id]; !pod.isMet && !pod.isGone {
			unmet = append(unmet, pod)
		}
	}
	return unmet
}

// absent returns the names of which no pod has met the goal or exists. A deleted one may be absent.
func (w *waiter) absent() []string {
	if w.goal.isDelete {
		return nil
	}
	var absent []string
	for _, name := range w.names {
		isKnown := false
		for _, pod := range w.pods {
			isKnown = isKnown || pod.view.Metadata.Name == name && (pod.isMet || !pod.isGone)
		}
		if !isKnown {
			absent = append(absent, name)
		}
	}
	return absent
}

// done reports whether all pods have met the goal. Unless they are to be deleted, there must be one.
func (w *waiter) done() bool {
	if !w.synced || len(w.unmet()) > 0 || len(w.absent()) > 0 {
		return false
	}
	if w.goal.isDelete {
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), func(pod *waitedPod) bool { return pod.isMet })
}
