package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// ledger is what the consumer was told, and which pods wait because another one has their name. It decides; it owns no
// goroutine and reads no clock. One goroutine uses it.
type ledger struct {
	told    map[types.UID]entry
	holders map[podid.FullName]types.UID
	waiting map[claim]waiter
	arrived uint64
}

// entry is one pod that the consumer knows.
type entry struct {
	source podid.Source
	given  *v1.Pod // as the source gave it
	pod    *v1.Pod // as the consumer got it
}

// claim names a pod that a source wants, whether or not it may run.
type claim struct {
	source podid.Source
	uid    types.UID
}

// waiter is a pod that is held back until its name and UID are free. Earlier arrivals go first.
type waiter struct {
	pod     *v1.Pod
	arrival uint64
}

// change is what became of one pod of a source since the last step.
type change struct {
	uid types.UID
	pod *v1.Pod // nil: the source no longer wants it
	// gone tells that it was removed meanwhile, even if it is wanted again now.
	gone bool
	// last is the newest version before that: the consumer may not have heard of it, and it may say how the pod is to end.
	last *v1.Pod
}

// batches collects the pods of one step by operation.
type batches [opCount][]*v1.Pod

func (b *batches) add(op Op, pod *v1.Pod) { b[op-OpRemove] = append(b[op-OpRemove], pod) }

// updates puts the batches in their order. The first set of a source always announces itself (CFG-40).
func (b *batches) updates(source podid.Source, first bool) []Update {
	var updates []Update
	announce := first && b[OpAdd-OpRemove] == nil && b[OpUpdate-OpRemove] == nil && b[OpDelete-OpRemove] == nil
	for i, pods := range b {
		op := OpRemove + Op(i)
		if len(pods) > 0 || (announce && op == OpAdd) {
			updates = append(updates, Update{Source: source, Op: op, Pods: pods})
		}
	}
	return updates
}

func newLedger() *ledger {
	return &ledger{
		told:    map[types.UID]entry{},
		holders: map[podid.FullName]types.UID{},
		waiting: map[claim]waiter{},
	}
}

// apply takes the changes of one source and returns what the consumer must hear. Pods that go come first, so that an
// old pod leaves before a new one takes its name. A source that had a name may give it to another of its own pods; only
// then is it offered to those that wait, whose batches follow.
func (l *ledger) apply(source podid.Source, changes []change, first bool, now time.Time) []Update {
	var step batches
	released := l.removeGone(source, changes, &step, now)
	for _, c := range changes {
		if c.pod != nil {
			l.upsert(source, c.pod, &step, now)
		}
	}
	updates := step.updates(source, first)
	if released {
		updates = append(updates, l.admitWaiting(now)...)
	}
	return updates
}

// removeGone takes out the pods that the source no longer wants, or wants as another pod under the same UID, and
// reports whether that freed a name.
func (l *ledger) removeGone(source podid.Source, changes []change, step *batches, now time.Time) (released bool) {
	for _, c := range changes {
		if c.pod == nil {
			delete(l.waiting, claim{source, c.uid})
		}
		known, found := l.told[c.uid]
		if !found || known.source != source {
			continue
		}
		if c.pod != nil && !c.gone && podid.FullNameOf(c.pod) == podid.FullNameOf(known.pod) {
			continue
		}
		step.add(OpRemove, known.newest(source, c.last, now))
		delete(l.told, c.uid)
		if name := podid.FullNameOf(known.pod); l.holders[name] == c.uid {
			delete(l.holders, name)
		}
		released = true
	}
	return released
}

// newest is the pod as it was last known: as the consumer was told, or as it was after that and before it was removed.
func (e entry) newest(source podid.Source, last *v1.Pod, now time.Time) *v1.Pod {
	if last == nil || last == e.given || podid.FullNameOf(last) != podid.FullNameOf(e.pod) || compare(e.pod, last) == 0 {
		return e.pod
	}
	return adopt(source, last, e.pod, now)
}

// upsert takes a pod that the source wants.
func (l *ledger) upsert(source podid.Source, pod *v1.Pod, step *batches, now time.Time) {
	known, found := l.told[pod.UID]
	if found && known.source == source {
		if known.given == pod {
			return
		}
		known.given = pod
		if op := compare(known.pod, pod); op != 0 {
			known.pod = adopt(source, pod, known.pod, now)
			step.add(op, known.pod)
		}
		l.told[pod.UID] = known
		return
	}
	if adopted, ok := l.admit(source, pod, now); ok {
		step.add(OpAdd, adopted)
	}
}

// admit gives a new pod its name and UID, or lets it wait when another pod has one of them.
func (l *ledger) admit(source podid.Source, pod *v1.Pod, now time.Time) (*v1.Pod, bool) {
	key := claim{source, pod.UID}
	if _, taken := l.blocker(source, pod); taken {
		waits, again := l.waiting[key]
		if !again {
			l.arrived++
			waits.arrival = l.arrived
		}
		waits.pod = pod
		l.waiting[key] = waits
		return nil, false
	}
	delete(l.waiting, key)
	adopted := adopt(source, pod, nil, now)
	l.told[pod.UID] = entry{source: source, given: pod, pod: adopted}
	if needsName(source, pod) {
		l.holders[podid.FullNameOf(pod)] = pod.UID
	}
	return adopted, true
}

// blocker is the pod that stands in the way of this one.
func (l *ledger) blocker(source podid.Source, pod *v1.Pod) (entry, bool) {
	if other, taken := l.told[pod.UID]; taken {
		return other, true
	}
	if !needsName(source, pod) {
		return entry{}, false
	}
	uid, taken := l.holders[podid.FullNameOf(pod)]
	return l.told[uid], taken
}

// needsName reports whether the pod must have its name for itself: all but the mirrors, which share their static pod's.
// Only the API server can tell of a mirror.
func needsName(source podid.Source, pod *v1.Pod) bool {
	return source != podid.API || !podid.IsMirror(pod)
}

// admitWaiting offers what was freed to the pods that wait, the earliest first.
func (l *ledger) admitWaiting(now time.Time) []Update {
	var updates []Update
	for _, key := range l.queue() {
		pod, ok := l.admit(key.source, l.waiting[key].pod, now)
		switch last := len(updates) - 1; {
		case !ok:
		case last >= 0 && updates[last].Source == key.source:
			updates[last].Pods = append(updates[last].Pods, pod)
		default:
			updates = append(updates, Update{Source: key.source, Op: OpAdd, Pods: []*v1.Pod{pod}})
		}
	}
	return updates
}

// queue lists who waits, in the order of arrival.
func (l *ledger) queue() []claim {
	return slices.SortedFunc(maps.Keys(l.waiting), func(a, b claim) int {
		return cmp.Compare(l.waiting[a].arrival, l.waiting[b].arrival)
	})
}

// conflicts explains which pods are held back and why (CFG-36, and across sources, which the kubelet does not check).
func (l *ledger) conflicts() []complaint {
	var all []complaint
	for _, key := range l.queue() {
		pod := l.waiting[key].pod
		holder, _ := l.blocker(key.source, pod)
		field := "metadata.name"
		if holder.pod.UID == pod.UID {
			field = "metadata.uid"
		}
		all = append(all, complaint{pod: pod, Problem: Problem{
			Source:   key.source,
			Location: podid.FullNameOf(pod).String(),
			Field:    field,
			Message: fmt.Sprintf("held back with UID %s, because pod %s with UID %s from source %s was there first; "+
				"it runs when that pod is gone", pod.UID, podid.FullNameOf(holder.pod), holder.pod.UID, holder.source),
		}})
	}
	return all
}
