package localapi

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/heraldnode/herald/internal/wakeup"
)

// maxChanges is the number of changes that are kept for watches. A watch that falls further behind must list again.
const maxChanges = 1024

// key identifies an object of a kind.
type key struct{ namespace, name string }

func keyOf(o object) key { return key{o.GetNamespace(), o.GetName()} }

// change is a change of one object. Before is nil if it was added, after is nil if it was deleted.
type change struct {
	version       uint64
	kind          *kind
	before, after object
}

// store holds the served objects with their resource versions, and the recent changes. Stored objects are never modified.
type store struct {
	mu       sync.Mutex // guards all below
	version  uint64     // of the last change
	objects  map[*kind]map[key]object
	changes  []change // oldest first
	dropped  uint64   // the version of the newest change that is not kept any more
	watchers map[wakeup.Signal]struct{}
	closed   bool
}

func newStore(version uint64) *store {
	return &store{version: version, dropped: version, objects: map[*kind]map[key]object{}, watchers: map[wakeup.Signal]struct{}{}}
}

// set stores the object, which the store owns from now on. With a nil object it deletes what has the key.
func (s *store) set(k *kind, id key, after object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[k][id]
	if after == nil && before == nil {
		return
	}
	s.version++
	if after != nil {
		after.GetObjectKind().SetGroupVersionKind(k.groupVersionKind())
		after.SetResourceVersion(strconv.FormatUint(s.version, 10))
	}
	if s.objects[k] == nil {
		s.objects[k] = map[key]object{}
	}
	if after == nil {
		delete(s.objects[k], id)
	} else {
		s.objects[k][id] = after
	}
	s.append(change{version: s.version, kind: k, before: before, after: after})
}

// append must be called with mu held.
func (s *store) append(c change) {
	if len(s.changes) >= 2*maxChanges { // drop many at once: it copies
		kept := s.changes[len(s.changes)-maxChanges:]
		s.dropped = s.changes[len(s.changes)-maxChanges-1].version
		s.changes = append(make([]change, 0, 2*maxChanges), kept...)
	}
	s.changes = append(s.changes, c)
	for watcher := range s.watchers {
		watcher.Set()
	}
}

// get returns the object with the key, or nil.
func (s *store) get(k *kind, id key) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k][id]
}

// has reports whether the namespace has an object of one of the kinds.
func (s *store) has(namespace string, ofKinds ...*kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range ofKinds {
		for id := range s.objects[k] {
			if id.namespace == namespace {
				return true
			}
		}
	}
	return false
}

// list returns all objects of a kind, sorted, and the version of the store.
func (s *store) list(k *kind) ([]object, uint64) {
	s.mu.Lock()
	objects, version := slices.Collect(maps.Values(s.objects[k])), s.version
	s.mu.Unlock()
	slices.SortFunc(objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, version
}

// since returns the changes of a kind after a version, and the version of the store. It reports false if some of them are not
// kept any more, or if the version is in the future.
func (s *store) since(k *kind, version uint64) (changes []change, current uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.dropped || version > s.version {
		return nil, s.version, false
	}
	first, _ := slices.BinarySearchFunc(s.changes, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	for _, c := range s.changes[first:] {
		if c.kind == k {
			changes = append(changes, c)
		}
	}
	return changes, s.version, true
}

// subscribe returns a signal that is set by every change and when the store is closed.
func (s *store) subscribe() (changed wakeup.Signal, unsubscribe func()) {
	changed = wakeup.New()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[changed] = struct{}{}
	return changed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, changed)
	}
}

// close ends all watches.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for watcher := range s.watchers {
		watcher.Set()
	}
}

func (s *store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
