package pod

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// translation connects the two UIDs of static pods. It is immutable once published, so that reading it needs neither
// lock nor copy. A write that changes a pair copies the map that it changes; static pods are few and change seldom. A
// write that changes no pair, as all those of API pods, copies nothing.
type translation struct {
	podToMirror map[podid.UID]podid.MirrorUID // every static pod; "" for one without mirror (PM-11)
	mirrorToPod map[podid.MirrorUID]podid.UID // only mirrors whose static pod is held (PM-5)
}

// TranslatePodUID is the UID under which this node runs the pod: a mirror's UID becomes that of its static pod, any
// other stays as it is (PM-10). Every door through which a user may name a pod by UID leads through here.
func (m *Manager) TranslatePodUID(uid types.UID) podid.UID {
	if static, found := m.uids.Load().mirrorToPod[podid.MirrorUID(uid)]; found {
		return static
	}
	return podid.UID(uid)
}

// GetUIDTranslations returns both directions as they were at one instant. The maps are shared: only read them.
//
// podToMirror has every static pod, with "" if it has no mirror, which tells "static without mirror" from "not
// static" (PM-11). Of several static pods of one name only the newest has the mirror. mirrorToPod has every mirror
// whose static pod is held, also one that was succeeded by another and is not yet removed.
func (m *Manager) GetUIDTranslations() (
	podToMirror map[podid.UID]podid.MirrorUID, mirrorToPod map[podid.MirrorUID]podid.UID,
) {
	now := m.uids.Load()
	return now.podToMirror, now.mirrorToPod
}

// retranslateLocked brings the translation up to date after pod took the place of old; either may be nil.
func (m *Manager) retranslateLocked(old, pod *v1.Pod) {
	if !isOfAPair(old) && !isOfAPair(pod) {
		return
	}
	next := newRevision(m.uids.Load())
	if old != nil {
		if _, held := m.pods[podid.UID(old.UID)]; !held {
			next.podToMirror.unset(podid.UID(old.UID))
		}
		if _, held := m.mirrors[podid.MirrorUID(old.UID)]; !held {
			next.mirrorToPod.unset(podid.MirrorUID(old.UID))
		}
		next.translate(m.names[podid.FullNameOf(old)])
	}
	if pod != nil {
		next.translate(m.names[podid.FullNameOf(pod)])
	}
	if next.podToMirror.forked || next.mirrorToPod.forked {
		m.uids.Store(next.translation())
	}
}

func (m *Manager) translateAllLocked() {
	next := newRevision(&translation{})
	for _, sharers := range m.names {
		next.translate(sharers)
	}
	m.uids.Store(next.translation())
}

// revision is a translation in the making.
type revision struct {
	podToMirror fork[podid.UID, podid.MirrorUID]
	mirrorToPod fork[podid.MirrorUID, podid.UID]
}

func newRevision(of *translation) *revision {
	r := &revision{}
	r.podToMirror.entries, r.mirrorToPod.entries = of.podToMirror, of.mirrorToPod
	return r
}

func (r *revision) translation() *translation {
	return &translation{podToMirror: r.podToMirror.entries, mirrorToPod: r.mirrorToPod.entries}
}

// translate makes the pairs of one name right.
func (r *revision) translate(sharers namesakes) {
	for _, pod := range sharers.arrivals {
		uid, mirrorUID := podid.UID(pod.UID), podid.MirrorUID(pod.UID)
		switch {
		case podid.IsMirror(pod) && sharers.static != nil && mirrorUID != "":
			r.mirrorToPod.set(mirrorUID, podid.UID(sharers.static.UID))
		case podid.IsMirror(pod):
			r.mirrorToPod.unset(mirrorUID)
		case pod == sharers.static && sharers.mirror != nil:
			r.podToMirror.set(uid, podid.MirrorUID(sharers.mirror.UID))
		case podid.IsStatic(pod):
			r.podToMirror.set(uid, "")
		default:
			r.podToMirror.unset(uid)
		}
	}
}

// isOfAPair reports whether the pod, if any, is a half of what is translated.
func isOfAPair(pod *v1.Pod) bool {
	return pod != nil && (podid.IsStatic(pod) || podid.IsMirror(pod))
}

// fork is a shared map until the first difference, then a copy of it.
type fork[K, V comparable] struct {
	entries map[K]V
	forked  bool
}

func (f *fork[K, V]) set(key K, value V) {
	if old, found := f.entries[key]; found && old == value {
		return
	}
	f.own()
	f.entries[key] = value
}

func (f *fork[K, V]) unset(key K) {
	if _, found := f.entries[key]; !found {
		return
	}
	f.own()
	delete(f.entries, key)
}

func (f *fork[K, V]) own() {
	if f.forked {
		return
	}
	f.forked = true
	if f.entries = maps.Clone(f.entries); f.entries == nil {
		f.entries = map[K]V{}
	}
}
