package pod_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPod returns a pod with annotations given as key, value, key, value.
func newPod(name string, uid types.UID, annotations ...string) *v1.Pod {
	return heraldtest.NewPod(name, func(pod *v1.Pod) {
		pod.UID = uid
		for i := 0; i < len(annotations); i += 2 {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotations[i], annotations[i+1])
		}
	})
}

func newAPIPod(name string, uid types.UID) *v1.Pod {
	return newPod(name, uid, podid.SourceAnnotation, "api")
}

// newStaticPod returns a static pod whose UID is its hash, as the sources compute it (CFG-6).
func newStaticPod(name string, uid types.UID) *v1.Pod {
	return newPod(name, uid, podid.SourceAnnotation, "file", podid.HashAnnotation, string(uid))
}

// newMirrorPod returns the mirror of a static pod with this hash, as the API source delivers it.
func newMirrorPod(name string, uid types.UID, hash string) *v1.Pod {
	return newPod(name, uid, podid.SourceAnnotation, "api", podid.HashAnnotation, hash, podid.MirrorAnnotation, hash)
}

func fullName(name string) podid.FullName {
	return podid.FullName{Namespace: metav1.NamespaceDefault, Name: name}
}

func newManager(pods ...*v1.Pod) *pod.Manager {
	manager := pod.NewManager()
	for _, pod := range pods {
		manager.AddPod(pod)
	}
	return manager
}

func TestPM1_StaticAndMirrorPodShareName(t *testing.T) {
	static, mirror := newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1")
	manager := newManager(static, mirror)
	if got, _ := manager.GetPodByFullName(fullName("web")); got != static {
		t.Errorf("got %v, want the static pod", got)
	}
	if _, found := manager.GetPodByUID(podid.UID(mirror.UID)); found {
		t.Error("got the mirror pod as a pod to run")
	}
	manager.RemovePod(static)
	if _, mirrors, _ := manager.GetPodsAndMirrorPods(); len(mirrors) != 1 {
		t.Errorf("got mirror pods %v, want one", mirrors)
	}
}

func TestPM2PM3_EitherOrder(t *testing.T) {
	static, mirror := newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1")
	tests := map[string]*pod.Manager{
		"static first": newManager(static, mirror),
		"mirror first": newManager(mirror, static),
	}
	for name, manager := range tests {
		t.Run(name, func(t *testing.T) {
			if got := manager.TranslatePodUID("m1"); got != "s1" {
				t.Errorf("got UID %q, want s1", got)
			}
			if got, _ := manager.GetMirrorPodByPod(static); got != mirror {
				t.Errorf("got %v, want the mirror pod", got)
			}
			if got, _ := manager.GetPodByMirrorPod(mirror); got != static {
				t.Errorf("got %v, want the static pod", got)
			}
		})
	}
}

func TestPM4_OrphanedMirrorPod(t *testing.T) {
	manager := newManager(newMirrorPod("web", "m1", "s1"))
	if got := manager.GetPods(); len(got) != 0 {
		t.Errorf("got pods %v, want none", got)
	}
	if _, found := manager.GetPodByUID("m1"); found {
		t.Error("PM-12: got the mirror pod by UID")
	}
	if _, found := manager.GetPodByFullName(fullName("web")); found {
		t.Error("PM-12: got the mirror pod by name")
	}
	_, mirrors, orphans := manager.GetPodsAndMirrorPods()
	if len(mirrors) != 1 || !slices.Equal(orphans, []podid.FullName{fullName("web")}) {
		t.Errorf("got mirror pods %v and orphans %v, want one each", mirrors, orphans)
	}
}

func TestPM5_StaticPodRemoved(t *testing.T) {
	static := newStaticPod("web", "s1")
	manager := newManager(static, newMirrorPod("web", "m1", "s1"))
	manager.RemovePod(static)
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	if len(podToMirror)+len(mirrorToPod) != 0 || manager.TranslatePodUID("m1") != "m1" {
		t.Errorf("got translations %v, %v, want none", podToMirror, mirrorToPod)
	}
}

func TestPM6_OldMirrorRemovedLate(t *testing.T) {
	static := newStaticPod("web", "s1")
	before, after := newMirrorPod("web", "m1", "s1"), newMirrorPod("web", "m2", "s1")
	manager := newManager(static, before, after)
	manager.RemovePod(before)
	if got, _ := manager.GetMirrorPodByPod(static); got != after {
		t.Errorf("got mirror pod %v, want m2", got)
	}
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	want := map[podid.MirrorUID]podid.UID{"m2": "s1"}
	if podToMirror["s1"] != "m2" || !cmp.Equal(mirrorToPod, want) {
		t.Errorf("got translations %v, %v, want s1 and m2", podToMirror, mirrorToPod)
	}
}

func TestBUG8_MirrorRecreated(t *testing.T) {
	static, before := newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1")
	manager := newManager(static, before)
	manager.RemovePod(before)
	if podToMirror, _ := manager.GetUIDTranslations(); podToMirror["s1"] != "" {
		t.Errorf("got mirror UID %q, want none", podToMirror["s1"])
	}
	manager.AddPod(newMirrorPod("web", "m2", "s1"))
	podToMirror, _ := manager.GetUIDTranslations()
	if podToMirror["s1"] != "m2" || manager.TranslatePodUID("m2") != "s1" || manager.TranslatePodUID("m1") != "m1" {
		t.Errorf("got translations %v, want s1 and m2", podToMirror)
	}
}

func TestPM7_LastArrivalHasName(t *testing.T) {
	before, after := newAPIPod("web", "a1"), newAPIPod("web", "a2")
	tests := map[string]struct {
		change func(*pod.Manager)
		want   *v1.Pod
	}{
		"both stored":   {func(*pod.Manager) {}, after},
		"older removed": {func(m *pod.Manager) { m.RemovePod(before) }, after},
		"older updated": {func(m *pod.Manager) { m.UpdatePod(before) }, after},
		"newer removed": {func(m *pod.Manager) { m.RemovePod(after) }, before},
		"both removed":  {func(m *pod.Manager) { m.RemovePod(after); m.RemovePod(before) }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			manager := newManager(before, after)
			test.change(manager)
			if got, _ := manager.GetPodByName(metav1.NamespaceDefault, "web"); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestPM8_SetPods(t *testing.T) {
	manager := newManager(newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1"), newAPIPod("db", "a1"))
	remaining := newAPIPod("cache", "a2")
	manager.SetPods([]*v1.Pod{remaining})
	pods, mirrors, _ := manager.GetPodsAndMirrorPods()
	if !slices.Equal(pods, []*v1.Pod{remaining}) || len(mirrors) != 0 || manager.TranslatePodUID("m1") != "m1" {
		t.Errorf("got pods %v and mirror pods %v, want only %v", pods, mirrors, remaining)
	}
}

func TestPM9_Metrics(t *testing.T) {
	withEphemeral := func(count int) *v1.Pod {
		pod := newAPIPod("web", "a1")
		pod.Spec.EphemeralContainers = make([]v1.EphemeralContainer, count)
		return pod
	}
	manager := newManager(withEphemeral(1), newStaticPod("db", "s1"), newMirrorPod("db", "m1", "s1"))
	manager.UpdatePod(withEphemeral(3))
	manager.UpdatePod(withEphemeral(2))
	manager.RemovePod(newAPIPod("gone", "unknown"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(manager.Collector())
	want := `
# HELP kubelet_desired_pods Number of pods that this node should run. static is true for those that do not come from the API server.
# TYPE kubelet_desired_pods gauge
kubelet_desired_pods{static=""} 1
kubelet_desired_pods{static="true"} 1
# HELP kubelet_managed_ephemeral_containers Number of ephemeral containers in the pods that this node should run.
# TYPE kubelet_managed_ephemeral_containers gauge
kubelet_managed_ephemeral_containers 2
# HELP kubelet_mirror_pods Number of mirror pods that the API server shows for this node.
# TYPE kubelet_mirror_pods gauge
kubelet_mirror_pods 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestPM10_TranslatePodUID(t *testing.T) {
	manager := newManager(newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1"), newAPIPod("db", "a1"),
		newStaticPod("odd", "s2"), newMirrorPod("odd", "", "s2"))
	for given, want := range map[types.UID]podid.UID{"m1": "s1", "s1": "s1", "a1": "a1", "unknown": "unknown", "": ""} {
		if got := manager.TranslatePodUID(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

func TestPM11_GetUIDTranslations(t *testing.T) {
	manager := newManager(newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1"), newStaticPod("db", "s2"), newAPIPod("cache", "a1"))
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	if want := map[podid.UID]podid.MirrorUID{"s1": "m1", "s2": ""}; !cmp.Equal(podToMirror, want) {
		t.Errorf("podToMirror: got %v, want %v", podToMirror, want)
	}
	if want := map[podid.MirrorUID]podid.UID{"m1": "s1"}; !cmp.Equal(mirrorToPod, want) {
		t.Errorf("mirrorToPod: got %v, want %v", mirrorToPod, want)
	}
}

func TestPM13_APIPodWithSameName(t *testing.T) {
	static, mirror, apiPod := newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1"), newAPIPod("web", "a1")
	manager := newManager(mirror, apiPod)
	if got, found := manager.GetPodByMirrorPod(mirror); found {
		t.Errorf("got %v for an orphaned mirror pod, want none", got)
	}
	if got, found := manager.GetMirrorPodByPod(apiPod); found {
		t.Errorf("got mirror pod %v of an API pod, want none", got)
	}
	if _, _, orphans := manager.GetPodsAndMirrorPods(); len(orphans) != 1 {
		t.Errorf("got orphans %v, want the mirror pod's name", orphans)
	}
	manager = newManager(static, mirror, apiPod)
	if got, _ := manager.GetPodByMirrorPod(mirror); got != static || manager.TranslatePodUID("m1") != "s1" {
		t.Errorf("got %v beside a newer API pod, want the static pod", got)
	}
}

func TestPM14_GetPodAndMirrorPod(t *testing.T) {
	static, mirror := newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1")
	unmirrored, orphan, apiPod := newStaticPod("db", "s2"), newMirrorPod("old", "m2", "s0"), newAPIPod("cache", "a1")
	manager := newManager(static, mirror, unmirrored, orphan, apiPod)
	tests := map[string]struct {
		given, pod, mirror *v1.Pod
		wasMirror          bool
	}{
		"static pod":                {static, static, mirror, false},
		"mirror pod":                {mirror, static, mirror, true},
		"static pod without mirror": {unmirrored, unmirrored, nil, false},
		"orphaned mirror pod":       {orphan, nil, orphan, true},
		"API pod":                   {apiPod, apiPod, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod, mirror, wasMirror := manager.GetPodAndMirrorPod(test.given)
			if pod != test.pod || mirror != test.mirror || wasMirror != test.wasMirror {
				t.Errorf("got %v, %v, %v, want %v, %v, %v", pod, mirror, wasMirror, test.pod, test.mirror, test.wasMirror)
			}
		})
	}
}

func TestPM15_Lists(t *testing.T) {
	static, mirror, unmirrored := newStaticPod("web", "s1"), newMirrorPod("web", "m1", "s1"), newStaticPod("db", "s2")
	manager := newManager(static, mirror, unmirrored, newAPIPod("cache", "a1"), newMirrorPod("old", "m2", "s0"))
	got := manager.GetStaticPodToMirrorPodMap()
	if len(got) != 2 || got[static] != mirror || got[unmirrored] != nil {
		t.Errorf("got %v, want two static pods, one with a mirror pod", got)
	}
	names := manager.GetMirroredNames()
	slices.SortFunc(names, func(a, b podid.FullName) int { return strings.Compare(a.Name, b.Name) })
	if want := []podid.FullName{fullName("db"), fullName("old"), fullName("web")}; !slices.Equal(names, want) {
		t.Errorf("got names %v, want %v", names, want)
	}
}

func TestManager_RoleOrNameChanged(t *testing.T) {
	tests := map[string]struct{ before, after *v1.Pod }{
		"API pod to mirror pod": {newAPIPod("web", "u1"), newMirrorPod("web", "u1", "s1")},
		"mirror pod to API pod": {newMirrorPod("web", "u1", "s1"), newAPIPod("web", "u1")},
		"static to mirror pod":  {newStaticPod("web", "u1"), newMirrorPod("web", "u1", "s1")},
		"name changed":          {newStaticPod("web", "u1"), newStaticPod("shop", "u1")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, manager := range []*pod.Manager{newManager(test.before, test.after), newManager(test.after)} {
				compareReaders(t, manager, newModel(test.after), []*v1.Pod{test.before, test.after})
			}
		})
	}
}
