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

// model is a trivially correct Manager: all pods in order of arrival.
type model []*v1.Pod

func newModel(pods ...*v1.Pod) *model {
	stored := &model{}
	for _, pod := range pods {
		stored.put(pod)
	}
	return stored
}

func (m *model) put(pod *v1.Pod) {
	i := slices.IndexFunc(*m, func(stored *v1.Pod) bool { return stored.UID == pod.UID })
	if i >= 0 && (*m)[i].Name == pod.Name && podid.IsMirror((*m)[i]) == podid.IsMirror(pod) {
		(*m)[i] = pod
		return
	}
	m.remove(pod)
	*m = append(*m, pod)
}

func (m *model) remove(pod *v1.Pod) {
	*m = slices.DeleteFunc(*m, func(stored *v1.Pod) bool { return stored.UID == pod.UID })
}

func (m *model) filter(match func(*v1.Pod) bool) []*v1.Pod {
	var found []*v1.Pod
	for _, pod := range *m {
		if match(pod) {
			found = append(found, pod)
		}
	}
	return found
}

// last returns the matching pod that arrived last, or nil.
func (m *model) last(match func(*v1.Pod) bool) *v1.Pod {
	found := m.filter(match)
	if len(found) == 0 {
		return nil
	}
	return found[len(found)-1]
}

func isMirror(pod *v1.Pod) bool { return podid.IsMirror(pod) }
func isToRun(pod *v1.Pod) bool  { return !podid.IsMirror(pod) }
func isStatic(pod *v1.Pod) bool { return podid.IsStatic(pod) && !podid.IsMirror(pod) }

func named(name string, match func(*v1.Pod) bool) func(*v1.Pod) bool {
	return func(pod *v1.Pod) bool { return pod.Name == name && match(pod) }
}

func (m *model) translations() (map[podid.UID]podid.MirrorUID, map[podid.MirrorUID]podid.UID) {
	podToMirror, mirrorToPod := map[podid.UID]podid.MirrorUID{}, map[podid.MirrorUID]podid.UID{}
	for _, static := range m.filter(isStatic) {
		podToMirror[podid.UID(static.UID)] = ""
		mirror := m.last(named(static.Name, isMirror))
		if mirror != nil && m.last(named(static.Name, isStatic)) == static {
			podToMirror[podid.UID(static.UID)] = podid.MirrorUID(mirror.UID)
		}
	}
	for _, mirror := range m.filter(isMirror) {
		if static := m.last(named(mirror.Name, isStatic)); static != nil {
			mirrorToPod[podid.MirrorUID(mirror.UID)] = podid.UID(static.UID)
		}
	}
	return podToMirror, mirrorToPod
}

// failer is the part of testing.TB that rapid.T has too.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// compareReaders calls every reader for each of the pods and compares the result with the model's.
func compareReaders(t failer, manager *pod.Manager, want *model, pods []*v1.Pod) {
	t.Helper()
	compareLists(t, manager, want)
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	wantPodToMirror, wantMirrorToPod := want.translations()
	if !maps.Equal(podToMirror, wantPodToMirror) || !maps.Equal(mirrorToPod, wantMirrorToPod) {
		t.Errorf("got translations %v, %v, want %v, %v", podToMirror, mirrorToPod, wantPodToMirror, wantMirrorToPod)
	}
	for _, pod := range pods {
		compareLookups(t, manager, want, pod)
		wantUID, found := wantMirrorToPod[podid.MirrorUID(pod.UID)]
		if !found {
			wantUID = podid.UID(pod.UID)
		}
		if got := manager.TranslatePodUID(pod.UID); got != wantUID {
			t.Errorf("TranslatePodUID(%s): got %s, want %s", pod.UID, got, wantUID)
		}
	}
}

func compareLookups(t failer, manager *pod.Manager, want *model, given *v1.Pod) {
	t.Helper()
	check := func(reader string, got *v1.Pod, found bool, wantPod *v1.Pod) {
		t.Helper()
		if got != wantPod || found != (wantPod != nil) {
			t.Errorf("%s(%s %s): got %p, %v, want %p", reader, given.Name, given.UID, got, found, wantPod)
		}
	}
	static := want.last(named(given.Name, isStatic))
	mirror := want.last(named(given.Name, isMirror))
	got, found := manager.GetPodByUID(podid.UID(given.UID))
	check("GetPodByUID", got, found, want.last(func(pod *v1.Pod) bool { return pod.UID == given.UID && isToRun(pod) }))
	got, found = manager.GetPodByFullName(podid.FullNameOf(given))
	check("GetPodByFullName", got, found, want.last(named(given.Name, isToRun)))
	got, found = manager.GetPodByName(given.Namespace, given.Name)
	check("GetPodByName", got, found, want.last(named(given.Name, isToRun)))
	got, found = manager.GetPodByMirrorPod(given)
	check("GetPodByMirrorPod", got, found, static)
	gotStatic, gotMirror := manager.GetStaticPodAndMirrorPod(podid.FullNameOf(given))
	check("GetStaticPodAndMirrorPod", gotStatic, gotStatic != nil, static)
	check("GetStaticPodAndMirrorPod", gotMirror, gotMirror != nil, mirror)

	wantPod, wantMirror := given, mirror
	switch {
	case isMirror(given):
		wantPod, wantMirror = static, given
	case !isStatic(given):
		wantMirror = nil
	}
	got, gotMirror, wasMirror := manager.GetPodAndMirrorPod(given)
	check("GetPodAndMirrorPod", got, got != nil, wantPod)
	check("GetPodAndMirrorPod", gotMirror, gotMirror != nil, wantMirror)
	if wasMirror != isMirror(given) {
		t.Errorf("GetPodAndMirrorPod(%s): got wasMirror %v, want %v", given.UID, wasMirror, isMirror(given))
	}
	if isStatic(given) {
		got, found = manager.GetMirrorPodByPod(given)
		check("GetMirrorPodByPod", got, found, mirror)
	}
}

func compareLists(t failer, manager *pod.Manager, want *model) {
	t.Helper()
	compare := func(reader string, got, want []*v1.Pod) {
		t.Helper()
		byUID := func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) }
		if !slices.Equal(slices.SortedFunc(slices.Values(got), byUID), slices.SortedFunc(slices.Values(want), byUID)) {
			t.Errorf("%s: got %v, want %v", reader, got, want)
		}
	}
	compare("GetPods", manager.GetPods(), want.filter(isToRun))
	pods, mirrors, orphans := manager.GetPodsAndMirrorPods()
	compare("GetPodsAndMirrorPods: pods", pods, want.filter(isToRun))
	compare("GetPodsAndMirrorPods: mirrors", mirrors, want.filter(isMirror))

	orphaned, mirrored := map[podid.FullName]int{}, map[podid.FullName]int{}
	pairs := map[*v1.Pod]*v1.Pod{}
	for _, pod := range want.filter(func(pod *v1.Pod) bool { return isMirror(pod) || isStatic(pod) }) {
		mirrored[podid.FullNameOf(pod)] = 1
		if isStatic(pod) {
			pairs[pod] = want.last(named(pod.Name, isMirror))
		} else if want.last(named(pod.Name, isStatic)) == nil {
			orphaned[podid.FullNameOf(pod)] = 1
		}
	}
	if diff := cmp.Diff(orphaned, count(orphans)); diff != "" {
		t.Errorf("orphaned mirror pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(mirrored, count(manager.GetMirroredNames())); diff != "" {
		t.Errorf("GetMirroredNames (-want +got):\n%s", diff)
	}
	if got := manager.GetStaticPodToMirrorPodMap(); !maps.Equal(got, pairs) {
		t.Errorf("GetStaticPodToMirrorPodMap: got %v, want %v", got, pairs)
	}
}

func count[T comparable](items []T) map[T]int {
	counts := map[T]int{}
	for _, item := range items {
		counts[item]++
	}
	return counts
}

var anyPod = rapid.Custom(func(t *rapid.T) *v1.Pod {
	name := rapid.SampledFrom([]string{"web", "db", "cache"}).Draw(t, "name")
	uid := types.UID(rapid.SampledFrom([]string{"u1", "u2", "u3", "u4", "u5"}).Draw(t, "uid"))
	switch rapid.SampledFrom([]string{"api", "static", "mirror"}).Draw(t, "role") {
	case "static":
		return newStaticPod(name, uid)
	case "mirror":
		return newMirrorPod(name, uid, "h")
	default:
		return newAPIPod(name, uid)
	}
})

func TestManager_MatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		manager, model := pod.NewManager(), newModel()
		var drawn []*v1.Pod
		draw := func(t *rapid.T) *v1.Pod {
			pod := anyPod.Draw(t, "pod")
			drawn = append(drawn, pod)
			return pod
		}
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { pod := draw(t); manager.AddPod(pod); model.put(pod) },
			"update": func(t *rapid.T) { pod := draw(t); manager.UpdatePod(pod); model.put(pod) },
			"remove": func(t *rapid.T) { pod := draw(t); manager.RemovePod(pod); model.remove(pod) },
			"set": func(t *rapid.T) {
				pods := rapid.SliceOfN(anyPod, 0, 6).Draw(t, "pods")
				manager.SetPods(pods)
				*model = *newModel(pods...)
			},
			"": func(t *rapid.T) { compareReaders(t, manager, model, drawn) },
		})
	})
}
