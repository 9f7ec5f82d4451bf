package cli

import (
	"maps"
	"slices"
	"time"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/plan"
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

func (p *waitedPod) hasName(v *view.PodView) bool {
	return p.view.Metadata.Namespace == v.Metadata.Namespace && p.view.Metadata.Name == v.Metadata.Name
}

func (p *waitedPod) isEnding() bool {
	return p.view.Worker.Stage != "" && p.view.Worker.Stage != plan.Syncing.String()
}

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
	if w.synced && event != view.Deleted {
		w.replace(v, now)
	}
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
		if !pod.isSeen || !w.goal.isDelete && w.isReplaced(pod) {
			w.gone(pod, now)
		}
	}
}

// replace says that earlier pods of the same name are gone: a watch tells of one pod for each name. A pod that still waits for an
// earlier one has not replaced it.
func (w *waiter) replace(v *view.PodView, now time.Time) {
	if v.Why.Code == explain.CodeWaitsForName {
		return
	}
	for _, pod := range w.pods {
		if !pod.isGone && pod.hasName(v) && pod.view.Metadata.UID != v.Metadata.UID {
			w.gone(pod, now)
		}
	}
}

// isReplaced reports whether the pod ends and another one of its name does not.
func (w *waiter) isReplaced(pod *waitedPod) bool {
	for _, other := range w.pods {
		if other.isSeen && pod.hasName(&other.view) && pod.isEnding() && !other.isEnding() {
			return true
		}
	}
	return false
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
