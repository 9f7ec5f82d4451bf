package source

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// intake is one source's Sink: it keeps what the source wants now and which pods changed since the Mux last asked. A
// source may tell any number of sets while the consumer is busy; only the newest version of each pod is kept.
type intake struct {
	source   podid.Source
	wake     func()
	problems *registry

	mu        sync.Mutex // guards all below
	desired   map[types.UID]*v1.Pod
	dirty     map[types.UID]bool    // changed since the last take; true: was removed meanwhile
	last      map[types.UID]*v1.Pod // of those that were removed, the newest version before
	order     []types.UID           // of dirty, as they came
	complete  bool                  // a complete set was told
	announced bool                  // and handed on
	untaken   int                   // batches of that first set on which the consumer has not acted yet
}

func newIntake(source podid.Source, wake func(), problems *registry) *intake {
	return &intake{
		source:   source,
		wake:     wake,
		problems: problems,
		desired:  map[types.UID]*v1.Pod{},
		dirty:    map[types.UID]bool{},
		last:     map[types.UID]*v1.Pod{},
	}
}

// Replace implements Sink.
func (in *intake) Replace(pods []*v1.Pod) {
	next, bad := index(in.source, pods)
	in.problems.report(reporter{in.source, "set"}, bad, time.Now())
	in.mu.Lock()
	for _, uid := range in.missingLocked(next) {
		in.markLocked(uid, true)
	}
	for _, pod := range pods {
		if next[pod.UID] == pod && in.desired[pod.UID] != pod {
			in.markLocked(pod.UID, false)
		}
	}
	in.desired = next
	in.complete = true
	in.mu.Unlock()
	in.wake()
}

// Apply implements Sink.
func (in *intake) Apply(changed []*v1.Pod, gone []types.UID) {
	next, bad := index(in.source, changed)
	in.problems.report(reporter{in.source, "change"}, bad, time.Now())
	in.mu.Lock()
	for _, uid := range gone {
		if _, found := in.desired[uid]; found {
			in.markLocked(uid, true)
			delete(in.desired, uid)
		}
	}
	for _, pod := range changed {
		if next[pod.UID] == pod && in.desired[pod.UID] != pod {
			in.desired[pod.UID] = pod
			in.markLocked(pod.UID, false)
		}
	}
	in.mu.Unlock()
	in.wake()
}

// Report implements Sink.
func (in *intake) Report(problems []Problem) {
	found := make([]complaint, 0, len(problems))
	for _, p := range problems {
		p.Source = in.source
		found = append(found, complaint{Problem: timeless(p)})
	}
	in.problems.report(reporter{in.source, "source"}, found, time.Now())
}

// index finds pods by UID. The first of two with one UID stays; a pod without one has no identity and is left out.
func index(source podid.Source, pods []*v1.Pod) (map[types.UID]*v1.Pod, []complaint) {
	byUID := make(map[types.UID]*v1.Pod, len(pods))
	var bad []complaint
	for _, pod := range pods {
		var message string
		switch other := byUID[pod.UID]; {
		case pod.UID == "":
			message = "pod without a UID is left out"
		case other != nil && other != pod:
			message = fmt.Sprintf("pod is left out: pod %s before it has the same UID %s", podid.FullNameOf(other), pod.UID)
		default:
			byUID[pod.UID] = pod
			continue
		}
		bad = append(bad, complaint{pod: pod, Problem: Problem{
			Source: source, Location: podid.FullNameOf(pod).String(), Field: "metadata.uid", Message: message,
		}})
	}
	return byUID, bad
}

// missingLocked lists the pods that next no longer has, by name.
func (in *intake) missingLocked(next map[types.UID]*v1.Pod) []types.UID {
	var missing []types.UID
	for uid := range in.desired {
		if next[uid] == nil {
			missing = append(missing, uid)
		}
	}
	slices.SortFunc(missing, func(a, b types.UID) int {
		x, y := in.desired[a], in.desired[b]
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(a, b))
	})
	return missing
}

func (in *intake) markLocked(uid types.UID, gone bool) {
	before, marked := in.dirty[uid]
	if !marked {
		in.order = append(in.order, uid)
	}
	in.dirty[uid] = before || gone
	if gone {
		in.last[uid] = in.desired[uid]
	}
}

// take hands over what changed since the last call. It reports first when that completes the source's first set.
func (in *intake) take() (changes []change, first bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, uid := range in.order {
		changes = append(changes, change{uid: uid, pod: in.desired[uid], gone: in.dirty[uid], last: in.last[uid]})
	}
	in.order = nil
	clear(in.dirty)
	clear(in.last)
	first = in.complete && !in.announced
	return changes, first
}

// announce makes the source ready once all these batches were taken.
func (in *intake) announce(updates []Update) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.announced = true
	for i := range updates {
		if updates[i].Source == in.source {
			in.untaken++
			updates[i].taken = sync.OnceFunc(in.oneTaken)
		}
	}
}

func (in *intake) oneTaken() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.untaken--
}

// ready reports whether the consumer knows all that the source wanted when it first spoke.
func (in *intake) ready() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.announced && in.untaken == 0
}
