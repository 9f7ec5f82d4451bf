package source

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// apiStore is where the reflector puts what it reads. A list becomes a complete set; an event becomes the change of one
// pod, whatever the number of the others. The reflector's goroutine owns it.
type apiStore struct {
	node  string
	sink  Sink
	desk  *apiReports
	alive func() // something came over the watch
	known map[podid.FullName]types.UID
}

func newAPIStore(node string, sink Sink, desk *apiReports, alive func()) *apiStore {
	return &apiStore{node: node, sink: sink, desk: desk, alive: alive, known: map[podid.FullName]types.UID{}}
}

// Replace implements cache.ReflectorStore.
func (s *apiStore) Replace(items []any, _ string) error {
	s.alive()
	s.known = make(map[podid.FullName]types.UID, len(items))
	pods := make([]*v1.Pod, 0, len(items))
	foreign := ""
	for _, item := range items {
		pod, isPod := item.(*v1.Pod)
		switch {
		case !isPod:
			return fmt.Errorf("list of pods has a %T", item)
		case pod.Spec.NodeName != s.node:
			foreign = s.describeForeign(pod)
		default:
			s.known[podid.FullNameOf(pod)] = pod.UID
			pods = append(pods, trim(pod))
		}
	}
	s.desk.sawForeign(foreign)
	s.sink.Replace(pods)
	return nil
}

// Add implements cache.ReflectorStore.
func (s *apiStore) Add(item any) error { return s.Update(item) }

// Update implements cache.ReflectorStore. A pod whose name another one had has replaced it, even if nobody said so.
func (s *apiStore) Update(item any) error {
	s.alive()
	pod, isPod := item.(*v1.Pod)
	if !isPod {
		return fmt.Errorf("watch of pods has a %T", item)
	}
	if pod.Spec.NodeName != s.node {
		s.desk.sawForeign(s.describeForeign(pod))
		return nil
	}
	name := podid.FullNameOf(pod)
	var gone []types.UID
	if before, found := s.known[name]; found && before != pod.UID {
		gone = append(gone, before)
	}
	s.known[name] = pod.UID
	s.sink.Apply([]*v1.Pod{trim(pod)}, gone)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *apiStore) Delete(item any) error {
	s.alive()
	pod, isPod := item.(*v1.Pod)
	if !isPod {
		return fmt.Errorf("watch of pods has a %T", item)
	}
	if name := podid.FullNameOf(pod); s.known[name] == pod.UID {
		delete(s.known, name)
	}
	s.sink.Apply(nil, []types.UID{pod.UID})
	return nil
}

// Resync implements cache.ReflectorStore; the reflector is not asked for it.
func (s *apiStore) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: the watch is alive even though nothing happens.
func (s *apiStore) Bookmark(string) error {
	s.alive()
	return nil
}

func (s *apiStore) describeForeign(pod *v1.Pod) string {
	return fmt.Sprintf("sent pods that are not bound to node %s, such as %s on %q; they are left out: "+
		"the field selector spec.nodeName is missing", s.node, podid.FullNameOf(pod), pod.Spec.NodeName)
}

// trim leaves out what no stage reads and what is often half of an object: who wrote which field.
func trim(pod *v1.Pod) *v1.Pod {
	trimmed := *pod
	trimmed.ManagedFields = nil
	return &trimmed
}
