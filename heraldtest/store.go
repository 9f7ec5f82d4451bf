package heraldtest

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// object is an API object that can go through etcd: as protobuf.
type object interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// key is where an object lies.
type key struct {
	resource        *resource
	namespace, name string
}

// change is one step in an object's life: before is nil when it was created, after when it was removed.
type change struct {
	version       int64
	key           key
	before, after object
}

// store is the etcd of the double: objects under one rising version, and all changes since the last compaction. The
// objects in it are never changed, only replaced, so that whoever got one may read it without the lock.
type store struct {
	mu      sync.Mutex // guards all below
	objects map[key]object
	version int64
	created int64 // objects so far, to number their UIDs
	// history holds the changes after the version floor, oldest first.
	history []change
	floor   int64
	changed chan struct{} // closed, and replaced, when the version rises or the history is compacted
}

func newStore() *store {
	return &store{objects: map[key]object{}, changed: make(chan struct{}), version: 1}
}

func (s *store) get(at key) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.objects[at]; ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(at.resource.group(), at.name)
}

// snapshot returns the objects that match, by namespace and name, and the version at which they are all there is.
func (s *store) snapshot(wanted filter) ([]object, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []object
	for at, o := range s.objects {
		if wanted.matches(at, o) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return found, s.version
}

// nextUID numbers the objects instead of drawing lots, so that a test's output is the same in each run.
func (s *store) nextUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.created))
}

func (s *store) create(at key, o object) (object, error) {
	sealed, _, err := seal(at, o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.objects[at]; exists {
		return nil, apierrors.NewAlreadyExists(at.resource.group(), at.name)
	}
	s.commitLocked(at, sealed)
	return sealed, nil
}

// transition takes an object through the versions that next makes of it; a nil as the last one removes it. Versions that
// differ in nothing from the one before are not written. It returns the last version, or what was removed. next is called
// without the lock, and again if somebody else was faster; it must leave its argument as it is.
func (s *store) transition(at key, next func(object) ([]object, error)) (object, error) {
	for {
		old, err := s.get(at)
		if err != nil {
			return nil, err
		}
		versions, err := next(old)
		if err != nil {
			return nil, err
		}
		if versions, err = sealAll(at, old, versions); err != nil {
			return nil, err
		}
		if last, won := s.replace(at, old, versions); won {
			return last, nil
		}
	}
}

func (s *store) replace(at key, old object, versions []object) (object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[at] != old {
		return nil, false
	}
	last := old
	for _, version := range versions {
		s.commitLocked(at, version)
		if version == nil {
			return tombstone(last, s.version), true
		}
		last = version
	}
	return last, true
}

func (s *store) commitLocked(at key, after object) {
	s.version++
	before := s.objects[at]
	if after == nil {
		delete(s.objects, at)
	} else {
		after.SetResourceVersion(formatVersion(s.version))
		s.objects[at] = after
	}
	s.history = append(s.history, change{version: s.version, key: at, before: before, after: after})
	s.announceLocked()
}

// compact forgets how things came to be as they are.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.floor = nil, s.version
	s.announceLocked()
}

func (s *store) announceLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// since returns the changes after a version, and a channel that is closed when there are more. It fails with 410 Expired
// if the history does not reach back that far.
func (s *store) since(version int64) ([]change, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.floor {
		return nil, nil, expired(version, s.floor)
	}
	first, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, wanted int64) int {
		return cmp.Compare(c.version, wanted)
	})
	return slices.Clone(s.history[first:]), s.changed, nil
}

// sealAll seals the versions and leaves out those that change nothing.
func sealAll(at key, old object, versions []object) ([]object, error) {
	_, last, err := seal(at, old)
	if err != nil {
		return nil, err
	}
	var sealed []object
	for _, version := range versions {
		if version == nil {
			return append(sealed, nil), nil
		}
		next, data, err := seal(at, version)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(data, last) {
			sealed, last = append(sealed, next), data
		}
	}
	return sealed, nil
}

// maxStored is etcd's limit on a request.
const maxStored = 3 << 19

// seal sends a copy of the object through its stored form, which is what truncates times to seconds, and returns that
// form too. The resource version is no part of it.
func seal(at key, o object) (object, []byte, error) {
	stripped := o.DeepCopyObject().(object)
	stripped.SetResourceVersion("")
	data, err := stripped.Marshal()
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	if len(data) > maxStored {
		return nil, nil, failure(http.StatusInternalServerError, metav1.StatusReasonUnknown, "etcdserver: request is too large")
	}
	sealed := at.resource.empty()
	if err := sealed.Unmarshal(data); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	return sealed, data, nil
}

// tombstone is an object as it was last seen, under the version at which it went out of sight.
func tombstone(last object, version int64) object {
	gone := last.DeepCopyObject().(object)
	gone.SetResourceVersion(formatVersion(version))
	return gone
}

func formatVersion(version int64) string { return strconv.FormatInt(version, 10) }

func expired(version, floor int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, floor))
}
