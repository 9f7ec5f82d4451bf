package source

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
)

// sourceState implements Sink for one source. It holds the desired pods and which of them changed since the Mux last took
// the changes. A source may report any number of sets meanwhile: only the newest version of each pod is kept.
type sourceState struct {
	source   podid.Source
	wake     wakeup.Signal
	problems *problemSet

	mu         sync.Mutex // guards all below
	desired    map[types.UID]*v1.Pod
	dirty      map[types.UID]bool    // changed since takeChanges; true if removed meanwhile
	lastKnown  map[types.UID]*v1.Pod // newest version of the pods that were removed meanwhile
	dirtyOrder []types.UID           // keys of dirty in the order of arrival
	complete   bool                  // Replace was called
	announced  bool                  // the batches of the first set were handed to the Mux
	unacked    int                   // batches of the first set without Ack
	changedAt  time.Time             // when the set was completed or last changed
}

// change is what happened to one pod of a source since the last step.
type change struct {
	uid types.UID
	pod *v1.Pod // nil if the source no longer has it
	// removed is set if the pod was removed meanwhile, even if the source has it again.
	removed bool
	// lastKnown is the newest version before the removal. The consumer may not have it, and it may hold the grace period.
	lastKnown *v1.Pod
}

func newSourceState(source podid.Source, wake wakeup.Signal, problems *problemSet) *sourceState {
	return &sourceState{
		source:    source,
		wake:      wake,
		problems:  problems,
		desired:   map[types.UID]*v1.Pod{},
		dirty:     map[types.UID]bool{},
		lastKnown: map[types.UID]*v1.Pod{},
	}
}

// Replace implements Sink.
func (s *sourceState) Replace(pods []*v1.Pod) {
	desired, invalid := indexByUID(s.source, pods)
	s.problems.report(reporter{s.source, reportedSet}, invalid, time.Now())
	s.mu.Lock()
	for _, uid := range s.missingLocked(desired) {
		s.markLocked(uid, true)
	}
	for _, pod := range pods {
		if desired[pod.UID] == pod && s.desired[pod.UID] != pod {
			s.markLocked(pod.UID, false)
		}
	}
	s.desired = desired
	if !s.complete {
		s.complete, s.changedAt = true, time.Now()
	}
	s.mu.Unlock()
	s.wake.Set()
}

// Apply implements Sink.
func (s *sourceState) Apply(updated []*v1.Pod, deleted []types.UID) {
	valid, invalid := indexByUID(s.source, updated)
	s.problems.report(reporter{s.source, reportedChange}, invalid, time.Now())
	s.mu.Lock()
	for _, uid := range deleted {
		if _, found := s.desired[uid]; found {
			s.markLocked(uid, true)
			delete(s.desired, uid)
		}
	}
	for _, pod := range updated {
		if valid[pod.UID] == pod && s.desired[pod.UID] != pod {
			s.desired[pod.UID] = pod
			s.markLocked(pod.UID, false)
		}
	}
	s.mu.Unlock()
	s.wake.Set()
}

// Report implements Sink.
func (s *sourceState) Report(problems []Problem) {
	current := make([]podProblem, 0, len(problems))
	for _, problem := range problems {
		problem.Source = s.source
		current = append(current, podProblem{Problem: problem.withoutSince()})
	}
	s.problems.report(reporter{s.source, reportedInput}, current, time.Now())
}

// indexByUID returns the pods by UID, and a problem for each pod that it skips: pods without a UID, and all but the first
// of the pods that share one.
func indexByUID(source podid.Source, pods []*v1.Pod) (map[types.UID]*v1.Pod, []podProblem) {
	byUID := make(map[types.UID]*v1.Pod, len(pods))
	var skipped []podProblem
	for _, pod := range pods {
		var message string
		switch other := byUID[pod.UID]; {
		case pod.UID == "":
			message = "skipped: the pod has no UID"
		case other != nil && other != pod:
			message = fmt.Sprintf("skipped: pod %s has the same UID %s", podid.FullNameOf(other), pod.UID)
		default:
			byUID[pod.UID] = pod
			continue
		}
		skipped = append(skipped, podProblem{pod: pod, Problem: Problem{
			Source: source, Location: podid.FullNameOf(pod).String(), Field: "metadata.uid", Message: message, Pod: podid.FullNameOf(pod),
		}})
	}
	return byUID, skipped
}

// missingLocked returns the UIDs of the desired pods that are not in next, sorted by name.
func (s *sourceState) missingLocked(next map[types.UID]*v1.Pod) []types.UID {
	var missing []types.UID
	for uid := range s.desired {
		if next[uid] == nil {
			missing = append(missing, uid)
		}
	}
	slices.SortFunc(missing, func(a, b types.UID) int {
		x, y := s.desired[a], s.desired[b]
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(a, b))
	})
	return missing
}

func (s *sourceState) markLocked(uid types.UID, removed bool) {
	removedBefore, marked := s.dirty[uid]
	if !marked {
		s.dirtyOrder = append(s.dirtyOrder, uid)
	}
	s.dirty[uid] = removedBefore || removed
	s.changedAt = time.Now()
	if removed {
		s.lastKnown[uid] = s.desired[uid]
	}
}

// takeChanges returns the changes since the last call. isFirstSet is set if they complete the first set of the source.
func (s *sourceState) takeChanges() (changes []change, isFirstSet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range s.dirtyOrder {
		changes = append(changes, change{uid: uid, pod: s.desired[uid], removed: s.dirty[uid], lastKnown: s.lastKnown[uid]})
	}
	s.dirtyOrder = nil
	clear(s.dirty)
	clear(s.lastKnown)
	return changes, s.complete && !s.announced
}

// awaitAcks makes the source ready once all these batches are acknowledged.
func (s *sourceState) awaitAcks(updates []Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = true
	for i := range updates {
		if updates[i].Source == s.source {
			s.unacked++
			updates[i].ack = sync.OnceFunc(s.countAck)
		}
	}
}

func (s *sourceState) countAck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unacked--
}

// ready reports whether the consumer has acted on the first set of the source.
func (s *sourceState) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.announced && s.unacked == 0
}
