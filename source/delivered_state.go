package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// deliveredState holds the pods that the consumer has, and the pods that wait because another pod has their name or UID.
// It has no goroutine and reads no clock. It is not safe for concurrent use.
type deliveredState struct {
	pods     map[types.UID]deliveredPod
	names    map[nameKey]types.UID // the delivered pod that has each name
	waiting  map[sourcePod]waitingPod
	arrivals uint64
}

// nameKey identifies a name that only one pod may have. An API pod and a static pod may share a name: the kubelet runs both,
// and holding one back would leave its API object without an owner.
type nameKey struct {
	isStatic bool
	name     podid.FullName
}

func nameKeyOf(source podid.Source, pod *v1.Pod) nameKey {
	return nameKey{isStatic: source != podid.API, name: podid.FullNameOf(pod)}
}

// deliveredPod is one pod that the consumer has.
type deliveredPod struct {
	source   podid.Source
	original *v1.Pod // as the source reported it
	pod      *v1.Pod // as the consumer received it
}

// sourcePod identifies a pod that a source has, whether or not it is delivered.
type sourcePod struct {
	source podid.Source
	uid    types.UID
}

// waitingPod is not delivered until its name and UID are free. The earliest arrival goes first.
type waitingPod struct {
	pod     *v1.Pod
	arrival uint64
}

// batches collects the pods of one step by operation.
type batches [opCount][]*v1.Pod

func (b *batches) add(op Op, pod *v1.Pod) { b[op-OpRemove] = append(b[op-OpRemove], pod) }

// updates returns the batches in order. The first set of a source is always announced (CFG-40).
func (b *batches) updates(source podid.Source, isFirstSet bool) []Update {
	var updates []Update
	announce := isFirstSet && b[OpAdd-OpRemove] == nil && b[OpUpdate-OpRemove] == nil && b[OpDelete-OpRemove] == nil
	for i, pods := range b {
		op := OpRemove + Op(i)
		if len(pods) > 0 || (announce && op == OpAdd) {
			updates = append(updates, Update{Source: source, Op: op, Pods: pods})
		}
	}
	return updates
}

func newDeliveredState() *deliveredState {
	return &deliveredState{
		pods:    map[types.UID]deliveredPod{},
		names:   map[nameKey]types.UID{},
		waiting: map[sourcePod]waitingPod{},
	}
}

// apply applies the changes of one source and returns the batches to deliver. Removals come first, so that an old pod is
// removed before a new one takes its name. A name that becomes free goes to a pod of the same step first, then to the
// waiting pods, whose batches follow.
func (d *deliveredState) apply(source podid.Source, changes []change, isFirstSet bool, now time.Time) []Update {
	var step batches
	released := d.remove(source, changes, &step, now)
	for _, c := range changes {
		if c.pod != nil {
			d.addOrUpdate(source, c.pod, &step, now)
		}
	}
	updates := step.updates(source, isFirstSet)
	if released {
		updates = append(updates, d.admitWaiting(now)...)
	}
	return updates
}

// remove removes the pods that the source no longer has, or has under another name. It reports whether a name or UID became
// free.
func (d *deliveredState) remove(source podid.Source, changes []change, step *batches, now time.Time) (released bool) {
	for _, c := range changes {
		if c.pod == nil {
			delete(d.waiting, sourcePod{source, c.uid})
		}
		known, found := d.pods[c.uid]
		if !found || known.source != source {
			continue
		}
		if c.pod != nil && !c.removed && podid.FullNameOf(c.pod) == podid.FullNameOf(known.pod) {
			continue
		}
		step.add(OpRemove, known.lastKnown(c.lastKnown, now))
		delete(d.pods, c.uid)
		if name := nameKeyOf(source, known.pod); d.names[name] == c.uid {
			delete(d.names, name)
		}
		released = true
	}
	return released
}

// lastKnown returns the version of the pod to pass with its removal: the delivered one, or a newer one that was not
// delivered before the removal.
func (p deliveredPod) lastKnown(newest *v1.Pod, now time.Time) *v1.Pod {
	if newest == nil || newest == p.original || podid.FullNameOf(newest) != podid.FullNameOf(p.pod) || compare(p.pod, newest) == 0 {
		return p.pod
	}
	return annotate(p.source, newest, p.pod, now)
}

// addOrUpdate adds a pod that the source has to the batch of its operation.
func (d *deliveredState) addOrUpdate(source podid.Source, pod *v1.Pod, step *batches, now time.Time) {
	known, found := d.pods[pod.UID]
	if found && known.source == source {
		if known.original == pod {
			return
		}
		known.original = pod
		if op := compare(known.pod, pod); op != 0 {
			known.pod = annotate(source, pod, known.pod, now)
			step.add(op, known.pod)
		}
		d.pods[pod.UID] = known
		return
	}
	if admitted, ok := d.admit(source, pod, now); ok {
		step.add(OpAdd, admitted)
	}
}

// admit delivers a new pod, or makes it wait if another pod has its name or UID.
func (d *deliveredState) admit(source podid.Source, pod *v1.Pod, now time.Time) (*v1.Pod, bool) {
	key := sourcePod{source, pod.UID}
	if _, blocked := d.blocker(source, pod); blocked {
		entry, found := d.waiting[key]
		if !found {
			d.arrivals++
			entry.arrival = d.arrivals
		}
		entry.pod = pod
		d.waiting[key] = entry
		return nil, false
	}
	delete(d.waiting, key)
	admitted := annotate(source, pod, nil, now)
	d.pods[pod.UID] = deliveredPod{source: source, original: pod, pod: admitted}
	if needsUniqueName(source, pod) {
		d.names[nameKeyOf(source, pod)] = pod.UID
	}
	return admitted, true
}

// blocker returns the delivered pod that has the UID or the name of this one.
func (d *deliveredState) blocker(source podid.Source, pod *v1.Pod) (deliveredPod, bool) {
	if other, found := d.pods[pod.UID]; found {
		return other, true
	}
	if !needsUniqueName(source, pod) {
		return deliveredPod{}, false
	}
	uid, found := d.names[nameKeyOf(source, pod)]
	return d.pods[uid], found
}

// needsUniqueName reports whether no other pod may have the name. A mirror pod shares the name of its static pod. Only the
// API server has mirror pods.
func needsUniqueName(source podid.Source, pod *v1.Pod) bool {
	return source != podid.API || !podid.IsMirror(pod)
}

// admitWaiting admits the waiting pods whose name and UID are free, the earliest first.
func (d *deliveredState) admitWaiting(now time.Time) []Update {
	var updates []Update
	for _, key := range d.waitingInOrder() {
		pod, ok := d.admit(key.source, d.waiting[key].pod, now)
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

func (d *deliveredState) waitingInOrder() []sourcePod {
	return slices.SortedFunc(maps.Keys(d.waiting), func(a, b sourcePod) int {
		return cmp.Compare(d.waiting[a].arrival, d.waiting[b].arrival)
	})
}

// conflicts returns a problem for each waiting pod (CFG-36). Unlike the kubelet, it covers conflicts between
// static sources.
func (d *deliveredState) conflicts() []podProblem {
	var problems []podProblem
	for _, key := range d.waitingInOrder() {
		pod := d.waiting[key].pod
		blocker, _ := d.blocker(key.source, pod)
		field := "metadata.name"
		if blocker.pod.UID == pod.UID {
			field = "metadata.uid"
		}
		problems = append(problems, podProblem{pod: pod, Problem: Problem{
			Source:   key.source,
			Location: podid.FullNameOf(pod).String(),
			Field:    field,
			Pod:      podid.FullNameOf(pod),
			Message: fmt.Sprintf("not started (UID %s): conflicts with pod %s (UID %s, source %s); "+
				"it starts when that pod is removed", pod.UID, podid.FullNameOf(blocker.pod), blocker.pod.UID, blocker.source),
		}})
	}
	return problems
}

// compare returns the operation for a consumer that has the older version of a pod, or 0 if nothing relevant changed.
func compare(older, newer *v1.Pod) Op {
	switch {
	case older.ResourceVersion != "" && older.ResourceVersion == newer.ResourceVersion:
		return 0 // the same object of the API server
	case !equalDesired(older, newer):
		if newer.DeletionTimestamp != nil {
			return OpDelete
		}
		return OpUpdate
	case !equality.Semantic.DeepEqual(&older.Status, &newer.Status), !equalMetadata(older, newer):
		return OpReconcile
	default:
		return 0
	}
}

// equalDesired reports whether both versions have the same desired state (CFG-37). Cheap comparisons come first.
func equalDesired(a, b *v1.Pod) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		maps.Equal(a.Labels, b.Labels) &&
		equalAnnotations(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// equalMetadata compares version, finalizers and owners. Managed fields are ignored: they say which client wrote a field,
// not its value.
func equalMetadata(a, b *v1.Pod) bool {
	return a.ResourceVersion == b.ResourceVersion &&
		a.Generation == b.Generation &&
		slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// isLocalAnnotation reports whether only this node sets the annotation. Local annotations are never compared and never
// overwritten by a source (CFG-38).
func isLocalAnnotation(key string) bool {
	return key == podid.SourceAnnotation || key == podid.MirrorAnnotation || key == podid.SeenAnnotation
}

func equalAnnotations(a, b map[string]string) bool {
	return containsAnnotations(a, b) && containsAnnotations(b, a)
}

// containsAnnotations reports whether all contains every annotation of subset that is not local.
func containsAnnotations(all, subset map[string]string) bool {
	for key, value := range subset {
		if isLocalAnnotation(key) {
			continue
		}
		if other, found := all[key]; !found || other != value {
			return false
		}
	}
	return true
}

// annotate returns a copy of the pod with the local annotations (CFG-6). A pod that was delivered before keeps the local
// annotations of previous. Only the annotations are copied, all else is shared with pod.
func annotate(source podid.Source, pod, previous *v1.Pod, now time.Time) *v1.Pod {
	annotated := *pod
	annotated.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(annotated.Annotations, pod.Annotations)
	if previous == nil {
		annotated.Annotations[podid.SourceAnnotation] = string(source)
		annotated.Annotations[podid.SeenAnnotation] = now.Format(time.RFC3339Nano)
		return &annotated
	}
	maps.DeleteFunc(annotated.Annotations, func(key, _ string) bool { return isLocalAnnotation(key) })
	for key, value := range previous.Annotations {
		if isLocalAnnotation(key) {
			annotated.Annotations[key] = value
		}
	}
	return &annotated
}
