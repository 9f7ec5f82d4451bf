package pod

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// nameEntry holds all pods and mirror pods with one full name.
//
// Usually there is at most one of each. There are more when a pod is force-deleted and recreated while its predecessor is
// still stored (PM-7), when the removal of a mirror pod arrives after the addition of its successor (PM-6), or when two
// sources provide the same name. The name then refers to the pod that arrived last, until it is removed, and then to the one
// before it. The order of arrival counts, not that of updates: otherwise two pods that are updated in turn would pass the
// name, and with it the mirror pod, back and forth.
type nameEntry struct {
	arrivals []*v1.Pod // all pods, in order of arrival

	// The pods that the name refers to, or nil. They are computed on write, so that a read is one map lookup.
	pod    *v1.Pod // the pod to run
	mirror *v1.Pod
	static *v1.Pod // the static pod of the mirror pods; never an API pod of the same name (PM-13)
}

func (e nameEntry) add(pod *v1.Pod) nameEntry {
	return newNameEntry(append(e.arrivals, pod))
}

func (e nameEntry) remove(pod *v1.Pod) nameEntry {
	return newNameEntry(slices.DeleteFunc(e.arrivals, func(stored *v1.Pod) bool { return stored == pod }))
}

// replace stores the pod at the position of old.
func (e nameEntry) replace(old, pod *v1.Pod) nameEntry {
	e.arrivals[slices.Index(e.arrivals, old)] = pod
	return newNameEntry(e.arrivals)
}

func newNameEntry(arrivals []*v1.Pod) nameEntry {
	entry := nameEntry{arrivals: arrivals}
	for _, pod := range arrivals {
		if podid.IsMirror(pod) {
			entry.mirror = pod
			continue
		}
		entry.pod = pod
		if podid.IsStatic(pod) {
			entry.static = pod
		}
	}
	return entry
}

// uidTranslation maps between the UIDs of static and mirror pods. A published translation is immutable, so that reading it
// needs neither lock nor copy. A write copies only the map that it changes; static pods are few and rarely change, and
// writes of API pods copy nothing.
type uidTranslation struct {
	podToMirror map[podid.UID]podid.MirrorUID // all static pods; "" for one without mirror pod (PM-11)
	mirrorToPod map[podid.MirrorUID]podid.UID // only mirror pods with a static pod (PM-5)
}

// TranslatePodUID returns the UID under which this node runs the pod: for a mirror pod's UID that of its static pod, and any
// other UID unchanged (PM-10). Every request that names a pod by UID must be translated.
func (m *Manager) TranslatePodUID(uid types.UID) podid.UID {
	if static, found := m.uids.Load().mirrorToPod[podid.MirrorUID(uid)]; found {
		return static
	}
	return podid.UID(uid)
}

// GetUIDTranslations returns a consistent snapshot of both directions. The maps are shared and must not be modified.
//
// podToMirror contains every static pod, with "" for one without mirror pod, which distinguishes it from an API pod (PM-11).
// If several static pods have the same name, only the one that arrived last has the mirror pod. mirrorToPod contains every
// mirror pod with a static pod, including one that was replaced but not yet removed.
func (m *Manager) GetUIDTranslations() (
	podToMirror map[podid.UID]podid.MirrorUID, mirrorToPod map[podid.MirrorUID]podid.UID,
) {
	translation := m.uids.Load()
	return translation.podToMirror, translation.mirrorToPod
}

// updateTranslationLocked updates the translation after pod replaced old; either may be nil.
func (m *Manager) updateTranslationLocked(old, pod *v1.Pod) {
	if !hasTwoUIDs(old) && !hasTwoUIDs(pod) {
		return
	}
	update := newTranslationUpdate(m.uids.Load())
	if old != nil {
		if _, found := m.pods[podid.UID(old.UID)]; !found {
			update.podToMirror.delete(podid.UID(old.UID))
		}
		if _, found := m.mirrors[podid.MirrorUID(old.UID)]; !found {
			update.mirrorToPod.delete(podid.MirrorUID(old.UID))
		}
		update.apply(m.names[podid.FullNameOf(old)])
	}
	if pod != nil {
		update.apply(m.names[podid.FullNameOf(pod)])
	}
	if update.podToMirror.isCopied || update.mirrorToPod.isCopied {
		m.uids.Store(update.result())
	}
}

func (m *Manager) rebuildTranslationLocked() {
	update := newTranslationUpdate(&uidTranslation{})
	for _, entry := range m.names {
		update.apply(entry)
	}
	m.uids.Store(update.result())
}

// hasTwoUIDs reports whether the pod, if any, is a static or mirror pod.
func hasTwoUIDs(pod *v1.Pod) bool {
	return pod != nil && (podid.IsStatic(pod) || podid.IsMirror(pod))
}

// translationUpdate computes the next uidTranslation.
type translationUpdate struct {
	podToMirror copyOnWrite[podid.UID, podid.MirrorUID]
	mirrorToPod copyOnWrite[podid.MirrorUID, podid.UID]
}

func newTranslationUpdate(current *uidTranslation) *translationUpdate {
	u := &translationUpdate{}
	u.podToMirror.entries, u.mirrorToPod.entries = current.podToMirror, current.mirrorToPod
	return u
}

// apply updates the pairs of one name.
func (u *translationUpdate) apply(entry nameEntry) {
	for _, pod := range entry.arrivals {
		uid, mirrorUID := podid.UID(pod.UID), podid.MirrorUID(pod.UID)
		switch {
		case podid.IsMirror(pod) && entry.static != nil && mirrorUID != "":
			u.mirrorToPod.set(mirrorUID, podid.UID(entry.static.UID))
		case podid.IsMirror(pod):
			u.mirrorToPod.delete(mirrorUID)
		case pod == entry.static && entry.mirror != nil:
			u.podToMirror.set(uid, podid.MirrorUID(entry.mirror.UID))
		case podid.IsStatic(pod):
			u.podToMirror.set(uid, "")
		default:
			u.podToMirror.delete(uid)
		}
	}
}

func (u *translationUpdate) result() *uidTranslation {
	return &uidTranslation{podToMirror: u.podToMirror.entries, mirrorToPod: u.mirrorToPod.entries}
}

// copyOnWrite is a map that is shared until the first change, which copies it.
type copyOnWrite[K, V comparable] struct {
	entries  map[K]V
	isCopied bool
}

func (c *copyOnWrite[K, V]) set(key K, value V) {
	if old, found := c.entries[key]; found && old == value {
		return
	}
	c.copy()
	c.entries[key] = value
}

func (c *copyOnWrite[K, V]) delete(key K) {
	if _, found := c.entries[key]; !found {
		return
	}
	c.copy()
	delete(c.entries, key)
}

func (c *copyOnWrite[K, V]) copy() {
	if c.isCopied {
		return
	}
	c.isCopied = true
	if c.entries = maps.Clone(c.entries); c.entries == nil {
		c.entries = map[K]V{}
	}
}
