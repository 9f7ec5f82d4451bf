package manager

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert/engine"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

const (
	// saveDelay is how soon changes are stored that nobody is told about.
	saveDelay = time.Second
	// retryDelay is the pause after the checkpoint could not be written.
	retryDelay = 10 * time.Second
	// maxStartup is how long restored alerts wait for their objects.
	maxStartup = 2 * time.Minute
	// minPause keeps a timer that is always due from occupying a processor.
	minPause = time.Millisecond
)

// worker processes what is pending. It is owned by one goroutine, except where it says otherwise.
type worker struct {
	*Manager
	log *checkpoint.Log[engine.Saved] // nil without Config.State
	// saveAt is when changes are stored that are not yet; zero if there are none.
	saveAt time.Time
	// isUnsaved is set after a failure to store changes, which the engine does not return again: everything is stored then.
	isUnsaved  bool
	hasStarted atomic.Bool // startup has ended; read by all
	startupEnd time.Time
	pods       map[podid.UID]bool // that the engine knows
	restored   map[podid.UID]bool // that an earlier run left as ended, and that the engine does not know
	node       nodeState          // as last evaluated
	owned      ownedConditions
	changes    []transition.Change // reused
}

// request is a change that a caller waits for.
type request struct {
	change func(now time.Time) error
	// isQuery is set if nothing changes.
	isQuery bool
	result  chan error
}

func newWorker(m *Manager) (*worker, error) {
	w := &worker{Manager: m, pods: map[podid.UID]bool{}, restored: map[podid.UID]bool{}}
	if m.config.State == nil {
		return w, nil
	}
	var err error
	if w.log, err = checkpoint.NewLog[engine.Saved](m.config.State, "alerts", engine.SavedVersion); err != nil {
		return nil, err
	}
	w.owned, err = newOwnedConditions(m.config.State, m.config.Logger)
	return w, err
}

// run processes until ctx ends.
func (w *worker) run(ctx context.Context) {
	w.startupEnd = time.Now().Add(maxStartup)
	w.resume()
	w.evaluateNode(rule.OnNode, time.Now())
	w.publish()
	w.publishConditions(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.queue.ready:
		case r := <-w.requests:
			w.serve(ctx, r)
		}
		w.step(ctx)
		timer.Reset(w.untilNext(time.Now()))
	}
	w.step(context.WithoutCancel(ctx))
	_ = w.save(time.Now())
}

// serve makes a change that a caller waits for, and stores it.
func (w *worker) serve(ctx context.Context, r request) {
	w.mu.Lock()
	err := r.change(time.Now())
	w.mu.Unlock()
	if err == nil && !r.isQuery {
		err = w.save(time.Now())
		w.tell(ctx, w.takeEdges())
	}
	r.result <- err
}

// untilNext returns the time until something is due.
func (w *worker) untilNext(now time.Time) time.Duration {
	next := now.Add(24 * time.Hour)
	due := []time.Time{w.engine.Next(), w.saveAt}
	if !w.hasStarted.Load() {
		due = append(due, w.startupEnd)
	}
	for _, at := range due {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return max(minPause, next.Sub(now))
}

// step processes what is pending and what is due.
func (w *worker) step(ctx context.Context) {
	taken := w.queue.take()
	w.process(&taken)
	now := time.Now()
	w.confirmRestored(taken.known, now)
	w.mu.Lock()
	w.engine.Advance(now)
	isStarted := w.endStartup(taken.known, now)
	w.mu.Unlock()
	edges := w.takeEdges()
	isTold := w.tell(ctx, edges)
	if isStarted {
		w.config.Notifier.Reconcile(w.engine.Alerts())
	}
	isNode := taken.node != 0 || taken.rules != nil || isStarted
	if isTold || isNode {
		w.publish()
	}
	if isNode || slices.ContainsFunc(edges, hasCondition) {
		w.publishConditions(now)
	}
	if len(taken.versions)+len(taken.events)+len(edges) > 0 && w.saveAt.IsZero() {
		w.saveAt = now.Add(saveDelay)
	}
	if !w.saveAt.IsZero() && !now.Before(w.saveAt) {
		_ = w.save(now)
		w.publish() // pending alerts
	}
}

func hasCondition(edge engine.Edge) bool { return edge.Rule != nil && edge.Rule.Condition != nil }

// takeEdges returns what changed.
func (w *worker) takeEdges() []engine.Edge {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.engine.Take()
}

// process passes what is pending to the engine.
func (w *worker) process(taken *pending) {
	if taken.rules != nil {
		w.mu.Lock()
		w.setRules(taken.rules, time.Now())
		w.mu.Unlock()
	}
	for i := range taken.versions {
		w.addVersion(&taken.versions[i])
	}
	for _, uid := range slices.Sorted(maps.Keys(taken.facts)) {
		w.addFacts(uid, taken.facts[uid]|taken.allPods)
	}
	if taken.allPods != 0 {
		for uid := range w.pods {
			if taken.facts[uid] == 0 {
				w.addFacts(uid, taken.allPods)
			}
		}
	}
	for _, event := range taken.events {
		w.mu.Lock()
		w.engine.NodeEvent(event.kind, event.at)
		w.mu.Unlock()
	}
	if taken.node != 0 {
		w.evaluateNode(taken.node, time.Now())
	}
}

// addVersion evaluates a version, after it has counted those that it stands for.
func (w *worker) addVersion(v *Version) {
	delete(w.restored, v.UID)
	if v.Restored {
		if v.After.Phase == v1.PodSucceeded || v.After.Phase == v1.PodFailed { // others get a status of this run
			w.restored[v.UID] = true
		}
		return
	}
	if v.Removed && len(v.counted) == 0 {
		w.mu.Lock()
		w.engine.PodRemoved(v.UID, v.Time)
		w.mu.Unlock()
		delete(w.pods, v.UID)
		return
	}
	view := w.config.Views.PodVersion(v.Pod, v.After, v.Version, v.Time)
	w.pods[v.UID] = true
	change := func(changes []transition.Change, at time.Time) {
		w.attributeStops(changes)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.engine.PodChanged(engine.PodChange{UID: v.UID, View: view, Changes: changes, Trigger: rule.OnStatus, At: at})
	}
	for _, counted := range v.counted {
		change(counted.changes, counted.at)
	}
	if v.Removed {
		v.counted = nil
		w.addVersion(v)
		return
	}
	w.changes = transition.AppendPod(w.changes[:0], v.Before, v.After)
	change(w.changes, v.Time)
}

// attributeStops adds to the ends of containers why the agent stopped them.
func (w *worker) attributeStops(changes []transition.Change) {
	for i := range changes {
		if exit := changes[i].Exit; exit != nil && exit.ContainerID != "" {
			exit.StoppedBy = w.queue.takeStop(exit.ContainerID)
		}
	}
}

// addFacts evaluates a pod as it is now.
func (w *worker) addFacts(uid podid.UID, trigger rule.Trigger) {
	if !w.pods[uid] {
		return
	}
	view, found := w.config.Views.PodNow(uid)
	if !found {
		return // its removal follows
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.engine.PodChanged(engine.PodChange{UID: uid, View: view, Trigger: trigger, At: time.Now()})
}

// confirmRestored evaluates the pods that ended in an earlier run and that the node still has. They may never get another status.
func (w *worker) confirmRestored(known map[types.UID]bool, now time.Time) {
	if len(w.restored) == 0 || known == nil && now.Before(w.startupEnd) {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(w.restored)) {
		if known == nil || known[types.UID(uid)] {
			delete(w.restored, uid)
			w.pods[uid] = true
			w.addFacts(uid, rule.OnStatus)
		}
	}
}

// endStartup resolves restored alerts of pods that are gone, once all pods of the node were seen, or after maxStartup. It reports whether
// it has. The caller holds the lock.
func (w *worker) endStartup(known map[types.UID]bool, now time.Time) bool {
	if w.hasStarted.Load() {
		return false
	}
	isComplete := known != nil
	for uid := range known {
		isComplete = isComplete && w.pods[podid.UID(uid)]
	}
	if !isComplete && now.Before(w.startupEnd) {
		return false
	}
	w.hasStarted.Store(true)
	w.engine.EndStartup(now)
	return true
}

// save stores what changed.
func (w *worker) save(now time.Time) error {
	w.saveAt = time.Time{}
	w.mu.Lock()
	changed := w.engine.SaveChanged()
	w.mu.Unlock()
	if w.log == nil || changed.IsEmpty() && !w.isUnsaved {
		return nil
	}
	err := w.log.Append(changed, w.engine.Save)
	if w.isUnsaved = err != nil; w.isUnsaved {
		w.config.Logger.Error("Failed to store alerts, will retry", "retryAfter", retryDelay, "err", err)
		w.saveAt = now.Add(retryDelay)
	}
	return err
}
