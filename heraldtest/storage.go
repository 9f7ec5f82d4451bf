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

// maxObjectBytes is etcd's limit on a request.
const maxObjectBytes = 3 << 19

// object is an API object that can be stored as protobuf.
type object interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// key identifies an object.
type key struct {
	resource        *resource
	namespace, name string
}

// change is one change of an object. before is nil for a creation, after is nil for a removal.
type change struct {
	version       int64
	key           key
	before, after object
}

// storage stores objects under one increasing resource version, and all changes since the last compaction, like etcd.
// Stored objects are immutable: they are replaced, never modified, and can be read without the lock.
type storage struct {
	mu      sync.Mutex // guards all fields below
	objects map[key]object
	version int64
	lastUID int64
	// history holds the changes after compacted, oldest first.
	history   []change
	compacted int64
	changed   chan struct{} // closed and replaced when the version increases or the history is compacted
}

func newStorage() *storage {
	return &storage{objects: map[key]object{}, changed: make(chan struct{}), version: 1}
}

func (s *storage) get(k key) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored, ok := s.objects[k]; ok {
		return stored, nil
	}
	return nil, apierrors.NewNotFound(k.resource.groupResource(), k.name)
}

// list returns the matching objects, sorted by namespace and name, and the current version.
func (s *storage) list(f filter) (objects []object, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, obj := range s.objects {
		if f.matches(k, obj) {
			objects = append(objects, obj)
		}
	}
	slices.SortFunc(objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, s.version
}

// newUID returns sequential UIDs, so that test output is reproducible.
func (s *storage) newUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUID++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.lastUID))
}

func (s *storage) create(k key, obj object) (object, error) {
	stored, _, err := roundTrip(k, obj)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.objects[k]; exists {
		return nil, apierrors.NewAlreadyExists(k.resource.groupResource(), k.name)
	}
	s.commitLocked(k, stored)
	return stored, nil
}

// update replaces an object by the versions that next returns, one after the other. A nil as the last version removes the
// object. Versions that equal their predecessor are not written. update returns the last version, or the removed object.
//
// next is called without the lock, and again if another writer was faster. It must not modify its argument.
func (s *storage) update(k key, next func(old object) ([]object, error)) (object, error) {
	for {
		old, err := s.get(k)
		if err != nil {
			return nil, err
		}
		versions, err := next(old)
		if err != nil {
			return nil, err
		}
		if versions, err = roundTripChanged(k, old, versions); err != nil {
			return nil, err
		}
		if last, ok := s.compareAndSwap(k, old, versions); ok {
			return last, nil
		}
	}
}

func (s *storage) compareAndSwap(k key, old object, versions []object) (last object, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[k] != old {
		return nil, false
	}
	last = old
	for _, version := range versions {
		s.commitLocked(k, version)
		if version == nil {
			return atVersion(last, s.version), true
		}
		last = version
	}
	return last, true
}

func (s *storage) commitLocked(k key, after object) {
	s.version++
	before := s.objects[k]
	if after == nil {
		delete(s.objects, k)
	} else {
		after.SetResourceVersion(formatVersion(s.version))
		s.objects[k] = after
	}
	s.history = append(s.history, change{version: s.version, key: k, before: before, after: after})
	s.notifyLocked()
}

// compact drops the history.
func (s *storage) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.compacted = nil, s.version
	s.notifyLocked()
}

func (s *storage) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// changesSince returns the changes after a version, and a channel that is closed when there are more. It fails with 410
// Expired if the history was compacted after the version.
func (s *storage) changesSince(version int64) ([]change, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.compacted {
		return nil, nil, newExpiredError(version, s.compacted)
	}
	first, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, version int64) int {
		return cmp.Compare(c.version, version)
	})
	return slices.Clone(s.history[first:]), s.changed, nil
}

// roundTripChanged calls roundTrip for each version and drops versions that equal their predecessor.
func roundTripChanged(k key, old object, versions []object) ([]object, error) {
	_, previous, err := roundTrip(k, old)
	if err != nil {
		return nil, err
	}
	var changed []object
	for _, version := range versions {
		if version == nil {
			return append(changed, nil), nil
		}
		stored, data, err := roundTrip(k, version)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(data, previous) {
			changed, previous = append(changed, stored), data
		}
	}
	return changed, nil
}

// roundTrip encodes the object as stored, without its resource version, and decodes it again. As in etcd, this truncates
// times to seconds.
func roundTrip(k key, obj object) (stored object, data []byte, err error) {
	obj = obj.DeepCopyObject().(object)
	obj.SetResourceVersion("")
	if data, err = obj.Marshal(); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	if len(data) > maxObjectBytes {
		return nil, nil, newStatusError(http.StatusInternalServerError, metav1.StatusReasonUnknown, "etcdserver: request is too large")
	}
	stored = k.resource.newObject()
	if err := stored.Unmarshal(data); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	return stored, data, nil
}

// atVersion returns a copy of a removed object with the version of its removal.
func atVersion(last object, version int64) object {
	removed := last.DeepCopyObject().(object)
	removed.SetResourceVersion(formatVersion(version))
	return removed
}

func formatVersion(version int64) string { return strconv.FormatInt(version, 10) }

func newExpiredError(version, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, oldest))
}
