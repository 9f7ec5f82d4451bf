package diff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

// role is what a pod is to a node.
type role string

const (
	apiRole    role = "api"
	staticRole role = "static"
	mirrorRole role = "mirror"
)

func newPodWithRole(r role, name string, uid types.UID) *v1.Pod {
	annotations := map[string]string{podid.SourceAnnotation: "api"}
	switch r {
	case staticRole:
		annotations = map[string]string{podid.SourceAnnotation: "file", podid.HashAnnotation: "h"}
	case mirrorRole:
		annotations[podid.MirrorAnnotation] = "h"
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: uid, Annotations: annotations}}
}

// managerPair applies every operation to the kubelet's pod manager and to Herald's.
type managerPair struct {
	kubelet kubeletpod.Manager
	herald  *pod.Manager
	pods    map[types.UID]*v1.Pod
}

func newManagerPair() *managerPair {
	return &managerPair{kubelet: kubeletpod.NewBasicPodManager(), herald: pod.NewManager(), pods: map[types.UID]*v1.Pod{}}
}

func (b *managerPair) add(p *v1.Pod) {
	b.kubelet.AddPod(p)
	b.herald.AddPod(p)
	b.pods[p.UID] = p
}

func (b *managerPair) remove(p *v1.Pod) {
	b.kubelet.RemovePod(p)
	b.herald.RemovePod(p)
	delete(b.pods, p.UID)
}

// lookups holds every lookup of a manager in a form that can be compared.
type lookups struct {
	Pods, Mirrors, Orphans []string
	ByUID, ByName, Pairs   map[string]string
	ToMirror, ToPod        map[string]string
	Translated             map[string]string
}

// accessors hides the types of a manager.
type accessors struct {
	pods, mirrors []*v1.Pod
	orphans       []string
	byUID         func(types.UID) *v1.Pod
	byName        func(name string) *v1.Pod
	pair          func(*v1.Pod) (*v1.Pod, *v1.Pod)
	toMirror      map[string]string
	toPod         map[string]string
	translate     func(types.UID) string
}

func uidOf(p *v1.Pod) string {
	if p == nil {
		return ""
	}
	return string(p.UID)
}

func collectLookups(a accessors, pods map[types.UID]*v1.Pod) lookups {
	got := lookups{
		ByUID: map[string]string{}, ByName: map[string]string{}, Pairs: map[string]string{}, Translated: map[string]string{},
		ToMirror: a.toMirror, ToPod: a.toPod, Orphans: slices.Sorted(slices.Values(a.orphans)),
	}
	for _, p := range a.pods {
		got.Pods = append(got.Pods, uidOf(p))
	}
	for _, p := range a.mirrors {
		got.Mirrors = append(got.Mirrors, uidOf(p))
	}
	slices.Sort(got.Pods)
	slices.Sort(got.Mirrors)
	for uid, p := range pods {
		got.ByUID[string(uid)] = uidOf(a.byUID(uid))
		got.ByName[p.Name] = uidOf(a.byName(p.Name))
		pod, mirror := a.pair(p)
		got.Pairs[string(uid)] = uidOf(pod) + "/" + uidOf(mirror)
		got.Translated[string(uid)] = a.translate(uid)
	}
	return got
}

func (b *managerPair) kubeletLookups() lookups {
	a := accessors{toMirror: map[string]string{}, toPod: map[string]string{}}
	a.pods, a.mirrors, a.orphans = b.kubelet.GetPodsAndMirrorPods()
	a.byUID = func(uid types.UID) *v1.Pod { p, _ := b.kubelet.GetPodByUID(uid); return p }
	a.byName = func(name string) *v1.Pod { p, _ := b.kubelet.GetPodByName("ns", name); return p }
	a.pair = func(p *v1.Pod) (*v1.Pod, *v1.Pod) {
		pod, mirror, _ := b.kubelet.GetPodAndMirrorPod(p)
		return pod, mirror
	}
	a.translate = func(uid types.UID) string { return string(b.kubelet.TranslatePodUID(uid)) }
	toMirror, toPod := b.kubelet.GetUIDTranslations()
	for uid, m := range toMirror {
		a.toMirror[string(uid)] = string(m)
	}
	for m, uid := range toPod {
		a.toPod[string(m)] = string(uid)
	}
	return collectLookups(a, b.pods)
}

func (b *managerPair) heraldLookups() lookups {
	a := accessors{toMirror: map[string]string{}, toPod: map[string]string{}}
	var orphans []podid.FullName
	a.pods, a.mirrors, orphans = b.herald.GetPodsAndMirrorPods()
	for _, name := range orphans {
		a.orphans = append(a.orphans, name.String())
	}
	a.byUID = func(uid types.UID) *v1.Pod { p, _ := b.herald.GetPodByUID(podid.UID(uid)); return p }
	a.byName = func(name string) *v1.Pod { p, _ := b.herald.GetPodByName("ns", name); return p }
	a.pair = func(p *v1.Pod) (*v1.Pod, *v1.Pod) {
		pod, mirror, _ := b.herald.GetPodAndMirrorPod(p)
		return pod, mirror
	}
	a.translate = func(uid types.UID) string { return string(b.herald.TranslatePodUID(uid)) }
	toMirror, toPod := b.herald.GetUIDTranslations()
	for uid, m := range toMirror {
		a.toMirror[string(uid)] = string(m)
	}
	for m, uid := range toPod {
		a.toPod[string(m)] = string(uid)
	}
	return collectLookups(a, b.pods)
}

// TestPodManager_SameLookups runs random histories in which each name has at most one pod and one mirror pod at a time,
// and a static pod outlives only its own mirror pod. There, all lookups must agree. The tests of the differences cover
// colliding names and separated pairs.
func TestPodManager_SameLookups(t *testing.T) {
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		b := newManagerPair()
		serial := 0
		holder := map[string]*v1.Pod{} // "a/pod", "a/mirror"
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "name")
				r := rapid.SampledFrom([]role{apiRole, staticRole, mirrorRole}).Draw(t, "role")
				slot := name + "/pod"
				if r == mirrorRole {
					slot = name + "/mirror"
				}
				if holder[slot] != nil || collides(r, holder[name+"/pod"], holder[name+"/mirror"]) {
					t.Skip("name is taken")
				}
				serial++
				holder[slot] = newPodWithRole(r, name, types.UID(string(r)+"-"+name+"-"+strings.Repeat("i", serial%7)))
				b.add(holder[slot])
			},
			"update": func(t *rapid.T) {
				slot := rapid.SampledFrom(names).Draw(t, "name") + rapid.SampledFrom([]string{"/pod", "/mirror"}).Draw(t, "half")
				if holder[slot] == nil {
					t.Skip("nothing to update")
				}
				holder[slot] = holder[slot].DeepCopy()
				b.kubelet.UpdatePod(holder[slot])
				b.herald.UpdatePod(holder[slot])
				b.pods[holder[slot].UID] = holder[slot]
			},
			"remove the pair": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "name")
				for _, half := range []string{"/mirror", "/pod"} {
					if p := holder[name+half]; p != nil {
						b.remove(p)
						delete(holder, name+half)
					}
				}
			},
			"": func(t *rapid.T) {
				if diff := cmp.Diff(b.kubeletLookups(), b.heraldLookups()); diff != "" {
					t.Fatalf("kubelet (-) and Herald (+) disagree:\n%s", diff)
				}
			},
		})
	})
}

// collides reports whether a pod of that role would be the wrong counterpart of a pod with the same name (PM-13).
func collides(r role, pod, m *v1.Pod) bool {
	switch r {
	case mirrorRole:
		return pod != nil && !podid.IsStatic(pod)
	case apiRole:
		return m != nil
	default:
		return false
	}
}

func TestPM5_RemovedStaticPod(t *testing.T) {
	b := newManagerPair()
	s := newPodWithRole(staticRole, "a", "s")
	b.add(s)
	b.add(newPodWithRole(mirrorRole, "a", "m"))
	b.remove(s)
	if k := b.kubeletLookups(); k.ToPod["m"] != "s" {
		t.Errorf("the kubelet no longer has this fault: %v", k.ToPod)
	}
	if h := b.heraldLookups(); len(h.ToPod) != 0 || len(h.ToMirror) != 0 {
		t.Errorf("Herald: got translations %v and %v, want none", h.ToPod, h.ToMirror)
	}
}

func TestPM6_LateMirrorRemoval(t *testing.T) {
	b := newManagerPair()
	s, old, fresh := newPodWithRole(staticRole, "a", "s"), newPodWithRole(mirrorRole, "a", "m1"), newPodWithRole(mirrorRole, "a", "m2")
	b.add(s)
	b.add(old)
	b.add(fresh)
	b.remove(old)
	if k, found := b.kubelet.GetMirrorPodByPod(s); found {
		t.Errorf("the kubelet no longer has this fault: got %s", k.UID)
	}
	if h, found := b.herald.GetMirrorPodByPod(s); !found || h.UID != "m2" {
		t.Errorf("Herald: got mirror pod %v, want m2", h)
	}
}

func TestPM7_RecreatedPod(t *testing.T) {
	b := newManagerPair()
	old, fresh := newPodWithRole(apiRole, "a", "p1"), newPodWithRole(apiRole, "a", "p2")
	b.add(old)
	b.add(fresh)
	b.remove(old)
	if _, found := b.kubelet.GetPodByName("ns", "a"); found {
		t.Error("the kubelet no longer has this fault")
	}
	if h, found := b.herald.GetPodByName("ns", "a"); !found || h.UID != "p2" {
		t.Errorf("Herald: got pod %v, want p2", h)
	}
}

func TestPM13_APIPodIsNoCounterpart(t *testing.T) {
	b := newManagerPair()
	p, m := newPodWithRole(apiRole, "a", "p"), newPodWithRole(mirrorRole, "a", "m")
	b.add(p)
	b.add(m)
	if k, found := b.kubelet.GetPodByMirrorPod(m); !found || k != p {
		t.Error("the kubelet no longer has this fault")
	}
	if h, found := b.herald.GetPodByMirrorPod(m); found {
		t.Errorf("Herald: got API pod %v as counterpart, want none", h.UID)
	}
}
