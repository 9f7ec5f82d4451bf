package history

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// lost is what the disk failed to keep.
type lost struct {
	dropped  int64 // records that were never written
	unsynced int64 // records that were written and that a power failure may take
}

// lose notes that records are missing, perhaps of any chain. The header of the next segment and the next record of each chain
// say so: H2.
func (w *writer) lose(added lost) {
	w.lost.dropped += added.dropped
	w.lost.unsynced += added.unsynced
	w.node.hasGap = true
	for _, state := range w.pods {
		state.hasGap = true
	}
}

// addLost records what was lost, and how the pods are now: their last records may be among it. A gap without a number was found
// at the start.
func (w *writer) addLost(now time.Time) {
	if w.lost.dropped > 0 {
		w.addAgent(now, AgentEvent{Event: EventDropped, Count: w.lost.dropped})
	}
	if w.lost.unsynced > 0 {
		w.addAgent(now, AgentEvent{Event: EventUnsynced, Count: w.lost.unsynced})
	}
	w.lost = lost{}
	if !w.hasGaps() {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		state := w.pods[uid]
		if !state.hasGap || state.seq == 0 {
			continue
		}
		if len(w.batch.lines) >= maxBatch {
			w.commit(now)
			w.batch.reset(now)
		}
		w.addGap(uid, state, now)
	}
}

func (w *writer) hasGaps() bool {
	for _, state := range w.pods {
		if state.hasGap {
			return true
		}
	}
	return false
}

// addGap records the present state of a pod after a gap.
func (w *writer) addGap(uid podid.UID, state *podState, now time.Time) {
	record := Record{Kind: KindPod, PodRef: state.PodRef, Transition: Transition{
		Prev: state.seq, Before: state.after, After: state.after, Gap: true, Cause: transition.CauseAgent,
	}}
	if state.isRemoved {
		record.Changes = []transition.Change{{Field: transition.FieldRemoved}}
	}
	state.seq = w.add(now, &record)
	state.hasGap = false
	if state.isRemoved {
		w.remove(uid, state)
	}
}

// remove marks a pod as removed. It is forgotten when its last record cannot be lost any more.
func (w *writer) remove(uid podid.UID, state *podState) {
	state.isRemoved = true
	w.removed = append(w.removed, uid)
}

// forgetRemoved forgets the removed pods. All records are synced.
func (w *writer) forgetRemoved() {
	w.removed = slices.DeleteFunc(w.removed, func(uid podid.UID) bool {
		state, found := w.pods[uid]
		if found && state.isRemoved && state.hasGap {
			return false
		}
		if found && state.isRemoved {
			delete(w.pods, uid)
		}
		return true
	})
}

// removeUnknown records the removal of pods that an earlier process recorded and that are gone.
func (w *writer) removeUnknown(known map[types.UID]bool, now time.Time) {
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		state := w.pods[uid]
		if state.version != 0 || state.isRemoved || state.seq == 0 || known[types.UID(uid)] {
			continue
		}
		if len(w.batch.lines) >= maxBatch {
			w.commit(now)
			w.batch.reset(now)
		}
		state.seq = w.add(now, &Record{Kind: KindPod, PodRef: state.PodRef, Transition: Transition{
			Prev: state.seq, Before: state.after, After: state.after, Gap: state.hasGap, Via: transition.ViaRemove,
			Cause: transition.CauseRestart, Changes: []transition.Change{{Field: transition.FieldRemoved}},
		}})
		state.hasGap = false
		w.remove(uid, state)
	}
}
