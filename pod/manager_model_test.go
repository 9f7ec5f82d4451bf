package pod_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

func podUID(s string) types.UID { return types.UID(s) }

// model is a Manager that is too simple to be wrong: everything that is held, in order of arrival.
type model []*v1.Pod

func modelOf(pods ...*v1.Pod) *model {
	held := &model{}
	for _, pod := range pods {
		held.put(pod)
	}
	return held
}

func (m *model) put(pod *v1.Pod) {
	at := slices.IndexFunc(*m, func(held *v1.Pod) bool { return held.UID == pod.UID })
	if at >= 0 && (*m)[at].Name == pod.Name && podid.IsMirror((*m)[at]) == podid.IsMirror(pod) {
		(*m)[at] = pod
		return
	}
	m.remove(pod)
	*m = append(*m, pod)
}

func (m *model) remove(pod *v1.Pod) {
	*m = slices.DeleteFunc(*m, func(held *v1.Pod) bool { return held.UID == pod.UID })
}

func (m *model) all(wanted func(*v1.Pod) bool) []*v1.Pod {
	var found []*v1.Pod
	for _, pod := range *m {
		if wanted(pod) {
			found = append(found, pod)
		}
	}
	return found
}

// last is the newest that is wanted, or nil.
func (m *model) last(wanted func(*v1.Pod) bool) *v1.Pod {
	found := m.all(wanted)
	if len(found) == 0 {
		return nil
	}
	return found[len(found)-1]
}

func isMirror(pod *v1.Pod) bool { return podid.IsMirror(pod) }
func isToRun(pod *v1.Pod) bool  { return !podid.IsMirror(pod) }
func isStatic(pod *v1.Pod) bool { return podid.IsStatic(pod) && !podid.IsMirror(pod) }

func called(name string, wanted func(*v1.Pod) bool) func(*v1.Pod) bool {
	return func(pod *v1.Pod) bool { return pod.Name == name && wanted(pod) }
}

func (m *model) translations() (map[podid.UID]podid.MirrorUID, map[podid.MirrorUID]podid.UID) {
	podToMirror, mirrorToPod := map[podid.UID]podid.MirrorUID{}, map[podid.MirrorUID]podid.UID{}
	for _, static := range m.all(isStatic) {
		podToMirror[podid.UID(static.UID)] = ""
		mirror := m.last(called(static.Name, isMirror))
		if mirror != nil && m.last(called(static.Name, isStatic)) == static {
			podToMirror[podid.UID(static.UID)] = podid.MirrorUID(mirror.UID)
		}
	}
	for _, mirror := range m.all(isMirror) {
		if static := m.last(called(mirror.Name, isStatic)); static != nil {
			mirrorToPod[podid.MirrorUID(mirror.UID)] = podid.UID(static.UID)
		}
	}
	return podToMirror, mirrorToPod
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// compareReaders asks every reader about each of the pods, and compares its answer with the model's.
func compareReaders(t failer, manager *pod.Manager, held *model, about []*v1.Pod) {
	t.Helper()
	compareLists(t, manager, held)
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	wantPodToMirror, wantMirrorToPod := held.translations()
	if !maps.Equal(podToMirror, wantPodToMirror) || !maps.Equal(mirrorToPod, wantMirrorToPod) {
		t.Errorf("translations %v, %v; want %v, %v", podToMirror, mirrorToPod, wantPodToMirror, wantMirrorToPod)
	}
	for _, pod := range about {
		compareLookups(t, manager, held, pod)
		want, found := wantMirrorToPod[podid.MirrorUID(pod.UID)]
		if !found {
			want = podid.UID(pod.UID)
		}
		if got := manager.TranslatePodUID(pod.UID); got != want {
			t.Errorf("TranslatePodUID(%s) = %s, want %s", pod.UID, got, want)
		}
	}
}

func compareLookups(t failer, manager *pod.Manager, held *model, about *v1.Pod) {
	t.Helper()
	check := func(reader string, got *v1.Pod, found bool, want *v1.Pod) {
		t.Helper()
		if got != want || found != (want != nil) {
			t.Errorf("%s(%s %s) = %p, %v; want %p", reader, about.Name, about.UID, got, found, want)
		}
	}
	static := held.last(called(about.Name, isStatic))
	mirror := held.last(called(about.Name, isMirror))
	got, found := manager.GetPodByUID(podid.UID(about.UID))
	check("GetPodByUID", got, found, held.last(func(pod *v1.Pod) bool { return pod.UID == about.UID && isToRun(pod) }))
	got, found = manager.GetPodByFullName(podid.FullNameOf(about))
	check("GetPodByFullName", got, found, held.last(called(about.Name, isToRun)))
	got, found = manager.GetPodByName(about.Namespace, about.Name)
	check("GetPodByName", got, found, held.last(called(about.Name, isToRun)))
	got, found = manager.GetPodByMirrorPod(about)
	check("GetPodByMirrorPod", got, found, static)
	gotStatic, gotMirror := manager.GetStaticPodAndMirrorPod(podid.FullNameOf(about))
	check("GetStaticPodAndMirrorPod", gotStatic, gotStatic != nil, static)
	check("GetStaticPodAndMirrorPod", gotMirror, gotMirror != nil, mirror)

	wantPod, wantMirror := about, mirror
	switch {
	case isMirror(about):
		wantPod, wantMirror = static, about
	case !isStatic(about):
		wantMirror = nil
	}
	got, gotMirror, wasMirror := manager.GetPodAndMirrorPod(about)
	check("GetPodAndMirrorPod", got, got != nil, wantPod)
	check("GetPodAndMirrorPod", gotMirror, gotMirror != nil, wantMirror)
	if wasMirror != isMirror(about) {
		t.Errorf("GetPodAndMirrorPod(%s): was mirror %v", about.UID, wasMirror)
	}
	if isStatic(about) {
		got, found = manager.GetMirrorPodByPod(about)
		check("GetMirrorPodByPod", got, found, mirror)
	}
}

func compareLists(t failer, manager *pod.Manager, held *model) {
	t.Helper()
	same := func(reader string, got, want []*v1.Pod) {
		t.Helper()
		byUID := func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) }
		if !slices.Equal(slices.SortedFunc(slices.Values(got), byUID), slices.SortedFunc(slices.Values(want), byUID)) {
			t.Errorf("%s = %v, want %v", reader, got, want)
		}
	}
	same("GetPods", manager.GetPods(), held.all(isToRun))
	pods, mirrors, orphans := manager.GetPodsAndMirrorPods()
	same("GetPodsAndMirrorPods: pods", pods, held.all(isToRun))
	same("GetPodsAndMirrorPods: mirrors", mirrors, held.all(isMirror))

	orphaned, mirrored := map[podid.FullName]int{}, map[podid.FullName]int{}
	withMirrors := map[*v1.Pod]*v1.Pod{}
	for _, pod := range held.all(func(pod *v1.Pod) bool { return isMirror(pod) || isStatic(pod) }) {
		mirrored[podid.FullNameOf(pod)] = 1
		if isStatic(pod) {
			withMirrors[pod] = held.last(called(pod.Name, isMirror))
		} else if held.last(called(pod.Name, isStatic)) == nil {
			orphaned[podid.FullNameOf(pod)] = 1
		}
	}
	if diff := cmp.Diff(orphaned, times(orphans)); diff != "" {
		t.Errorf("orphaned mirrors: %s", diff)
	}
	if diff := cmp.Diff(mirrored, times(manager.GetMirroredNames())); diff != "" {
		t.Errorf("GetMirroredNames: %s", diff)
	}
	if got := manager.GetStaticPodToMirrorPodMap(); !maps.Equal(got, withMirrors) {
		t.Errorf("GetStaticPodToMirrorPodMap = %v, want %v", got, withMirrors)
	}
}

func times[T comparable](list []T) map[T]int {
	count := map[T]int{}
	for _, item := range list {
		count[item]++
	}
	return count
}

var anyPod = rapid.Custom(func(t *rapid.T) *v1.Pod {
	name := rapid.SampledFrom([]string{"web", "db", "cache"}).Draw(t, "name")
	uid := types.UID(rapid.SampledFrom([]string{"u1", "u2", "u3", "u4", "u5"}).Draw(t, "uid"))
	switch rapid.SampledFrom([]string{"api", "static", "mirror"}).Draw(t, "role") {
	case "static":
		return staticPod(name, uid)
	case "mirror":
		return mirrorPod(name, uid, "h")
	default:
		return apiPod(name, uid)
	}
})

func TestTheManagerAgreesWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		manager, held := pod.NewManager(), &model{}
		var about []*v1.Pod
		one := func(t *rapid.T) *v1.Pod {
			pod := anyPod.Draw(t, "pod")
			about = append(about, pod)
			return pod
		}
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { pod := one(t); manager.AddPod(pod); held.put(pod) },
			"update": func(t *rapid.T) { pod := one(t); manager.UpdatePod(pod); held.put(pod) },
			"remove": func(t *rapid.T) { pod := one(t); manager.RemovePod(pod); held.remove(pod) },
			"set": func(t *rapid.T) {
				pods := rapid.SliceOfN(anyPod, 0, 6).Draw(t, "pods")
				manager.SetPods(pods)
				*held = *modelOf(pods...)
			},
			"": func(t *rapid.T) { compareReaders(t, manager, held, about) },
		})
	})
}
