package pod_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
)

func holding(pods ...*v1.Pod) *pod.Manager {
	manager := pod.NewManager()
	for _, pod := range pods {
		manager.AddPod(pod)
	}
	return manager
}

func TestPM1AStaticPodAndItsMirrorAreKeptApartUnderOneName(t *testing.T) {
	static, mirror := staticPod("web", "s1"), mirrorPod("web", "m1", "s1")
	manager := holding(static, mirror)
	if byName, _ := manager.GetPodByFullName(fullName("web")); byName != static {
		t.Errorf("the name finds %v among the pods to run", byName)
	}
	if _, found := manager.GetPodByUID(podid.UID(mirror.UID)); found {
		t.Error("the mirror is found among the pods to run")
	}
	manager.RemovePod(static)
	if _, mirrors, _ := manager.GetPodsAndMirrorPods(); len(mirrors) != 1 {
		t.Errorf("removing the static pod left the mirrors %v", mirrors)
	}
}

func TestPM2AndPM3AStaticPodAndItsMirrorMeetInEitherOrder(t *testing.T) {
	static, mirror := staticPod("web", "s1"), mirrorPod("web", "m1", "s1")
	tests := map[string]*pod.Manager{
		"static first": holding(static, mirror),
		"mirror first": holding(mirror, static),
	}
	for name, manager := range tests {
		t.Run(name, func(t *testing.T) {
			if got := manager.TranslatePodUID("m1"); got != "s1" {
				t.Errorf("the mirror's UID became %q, want s1", got)
			}
			if got, _ := manager.GetMirrorPodByPod(static); got != mirror {
				t.Errorf("mirror of the static pod: %v", got)
			}
			if got, _ := manager.GetPodByMirrorPod(mirror); got != static {
				t.Errorf("static pod of the mirror: %v", got)
			}
		})
	}
}

func TestPM4AMirrorWithoutStaticPodIsAnOrphanAndNeverAPodToRun(t *testing.T) {
	manager := holding(mirrorPod("web", "m1", "s1"))
	if got := manager.GetPods(); len(got) != 0 {
		t.Errorf("pods to run: %v", got)
	}
	if _, found := manager.GetPodByUID("m1"); found {
		t.Error("the mirror was found by UID as a pod to run (PM-12)")
	}
	if _, found := manager.GetPodByFullName(fullName("web")); found {
		t.Error("the mirror was found by name as a pod to run (PM-12)")
	}
	_, mirrors, orphans := manager.GetPodsAndMirrorPods()
	if len(mirrors) != 1 || !slices.Equal(orphans, []podid.FullName{fullName("web")}) {
		t.Errorf("mirrors %v, orphans %v", mirrors, orphans)
	}
}

func TestPM5ARemovedStaticPodLeavesNoTranslation(t *testing.T) {
	static := staticPod("web", "s1")
	manager := holding(static, mirrorPod("web", "m1", "s1"))
	manager.RemovePod(static)
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	if len(podToMirror)+len(mirrorToPod) != 0 || manager.TranslatePodUID("m1") != "m1" {
		t.Errorf("still translated: %v, %v", podToMirror, mirrorToPod)
	}
}

func TestPM6TheLateRemovalOfAnOldMirrorKeepsTheNewOne(t *testing.T) {
	static := staticPod("web", "s1")
	before, after := mirrorPod("web", "m1", "s1"), mirrorPod("web", "m2", "s1")
	manager := holding(static, before, after)
	manager.RemovePod(before)
	if got, _ := manager.GetMirrorPodByPod(static); got != after {
		t.Errorf("mirror by name: %v, want m2", got)
	}
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	want := map[podid.MirrorUID]podid.UID{"m2": "s1"}
	if podToMirror["s1"] != "m2" || !cmp.Equal(mirrorToPod, want) {
		t.Errorf("translations %v, %v", podToMirror, mirrorToPod)
	}
}

func TestBUG8TheTranslationFollowsAMirrorThatWasMadeAnew(t *testing.T) {
	static, before := staticPod("web", "s1"), mirrorPod("web", "m1", "s1")
	manager := holding(static, before)
	manager.RemovePod(before)
	if podToMirror, _ := manager.GetUIDTranslations(); podToMirror["s1"] != "" {
		t.Errorf("without a mirror the static pod became %q", podToMirror["s1"])
	}
	manager.AddPod(mirrorPod("web", "m2", "s1"))
	podToMirror, _ := manager.GetUIDTranslations()
	if podToMirror["s1"] != "m2" || manager.TranslatePodUID("m2") != "s1" || manager.TranslatePodUID("m1") != "m1" {
		t.Errorf("translation did not follow: %v", podToMirror)
	}
}

func TestPM7ANameBelongsToTheNewestPodThatIsHeld(t *testing.T) {
	before, after := apiPod("web", "a1"), apiPod("web", "a2")
	tests := map[string]struct {
		change func(*pod.Manager)
		want   *v1.Pod
	}{
		"the newer one arrived":          {func(*pod.Manager) {}, after},
		"the older one is removed late":  {func(m *pod.Manager) { m.RemovePod(before) }, after},
		"the older one is updated":       {func(m *pod.Manager) { m.UpdatePod(before) }, after},
		"the newer one is removed first": {func(m *pod.Manager) { m.RemovePod(after) }, before},
		"both are removed":               {func(m *pod.Manager) { m.RemovePod(after); m.RemovePod(before) }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			manager := holding(before, after)
			test.change(manager)
			if got, _ := manager.GetPodByName("shop", "web"); got != test.want {
				t.Errorf("the name finds %v, want %v", got, test.want)
			}
		})
	}
}

func TestPM8SetPodsReplacesEverything(t *testing.T) {
	manager := holding(staticPod("web", "s1"), mirrorPod("web", "m1", "s1"), apiPod("db", "a1"))
	kept := apiPod("cache", "a2")
	manager.SetPods([]*v1.Pod{kept})
	pods, mirrors, _ := manager.GetPodsAndMirrorPods()
	if !slices.Equal(pods, []*v1.Pod{kept}) || len(mirrors) != 0 || manager.TranslatePodUID("m1") != "m1" {
		t.Errorf("pods %v, mirrors %v", pods, mirrors)
	}
}

func TestPM9TheNumbersFollowWhatIsHeld(t *testing.T) {
	withEphemeral := func(count int) *v1.Pod {
		pod := apiPod("web", "a1")
		pod.Spec.EphemeralContainers = make([]v1.EphemeralContainer, count)
		return pod
	}
	manager := holding(withEphemeral(1), staticPod("db", "s1"), mirrorPod("db", "m1", "s1"))
	manager.UpdatePod(withEphemeral(3))
	manager.UpdatePod(withEphemeral(2))
	manager.RemovePod(apiPod("gone", "never-held"))
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

func TestPM10OnlyAMirrorsUIDIsTranslated(t *testing.T) {
	manager := holding(staticPod("web", "s1"), mirrorPod("web", "m1", "s1"), apiPod("db", "a1"),
		staticPod("odd", "s2"), mirrorPod("odd", "", "s2"))
	for given, want := range map[string]podid.UID{"m1": "s1", "s1": "s1", "a1": "a1", "stranger": "stranger", "": ""} {
		if got := manager.TranslatePodUID(podUID(given)); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
	}
}

func TestPM11TranslationsTellStaticWithoutMirrorFromNotStatic(t *testing.T) {
	manager := holding(staticPod("web", "s1"), mirrorPod("web", "m1", "s1"), staticPod("db", "s2"), apiPod("cache", "a1"))
	podToMirror, mirrorToPod := manager.GetUIDTranslations()
	if want := map[podid.UID]podid.MirrorUID{"s1": "m1", "s2": ""}; !cmp.Equal(podToMirror, want) {
		t.Errorf("pod to mirror: %v, want %v", podToMirror, want)
	}
	if want := map[podid.MirrorUID]podid.UID{"m1": "s1"}; !cmp.Equal(mirrorToPod, want) {
		t.Errorf("mirror to pod: %v, want %v", mirrorToPod, want)
	}
}

func TestPM13AnAPIPodIsNeverTakenForTheCounterpartOfAMirror(t *testing.T) {
	static, mirror, intruder := staticPod("web", "s1"), mirrorPod("web", "m1", "s1"), apiPod("web", "a1")
	alone := holding(mirror, intruder)
	if got, found := alone.GetPodByMirrorPod(mirror); found {
		t.Errorf("the mirror's counterpart is %v", got)
	}
	if got, found := alone.GetMirrorPodByPod(intruder); found {
		t.Errorf("the API pod has mirror %v", got)
	}
	if _, _, orphans := alone.GetPodsAndMirrorPods(); len(orphans) != 1 {
		t.Errorf("orphans: %v, want the mirror's name", orphans)
	}
	beside := holding(static, mirror, intruder)
	if got, _ := beside.GetPodByMirrorPod(mirror); got != static || beside.TranslatePodUID("m1") != "s1" {
		t.Errorf("beside a newer API pod the mirror's counterpart is %v", got)
	}
}

func TestPM14EitherHalfIsCompletedToThePair(t *testing.T) {
	static, mirror := staticPod("web", "s1"), mirrorPod("web", "m1", "s1")
	lonely, orphan, ordinary := staticPod("db", "s2"), mirrorPod("old", "m2", "s0"), apiPod("cache", "a1")
	manager := holding(static, mirror, lonely, orphan, ordinary)
	tests := map[string]struct {
		given, pod, mirror *v1.Pod
		wasMirror          bool
	}{
		"static pod":                {static, static, mirror, false},
		"mirror":                    {mirror, static, mirror, true},
		"static pod without mirror": {lonely, lonely, nil, false},
		"mirror without static pod": {orphan, nil, orphan, true},
		"ordinary pod":              {ordinary, ordinary, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod, mirror, wasMirror := manager.GetPodAndMirrorPod(test.given)
			if pod != test.pod || mirror != test.mirror || wasMirror != test.wasMirror {
				t.Errorf("got %v, %v, %v", pod, mirror, wasMirror)
			}
		})
	}
}

func TestPM15StaticPodsAreListedWithTheirMirrors(t *testing.T) {
	static, mirror, lonely := staticPod("web", "s1"), mirrorPod("web", "m1", "s1"), staticPod("db", "s2")
	manager := holding(static, mirror, lonely, apiPod("cache", "a1"), mirrorPod("old", "m2", "s0"))
	got := manager.GetStaticPodToMirrorPodMap()
	if len(got) != 2 || got[static] != mirror || got[lonely] != nil {
		t.Errorf("static pods with mirrors: %v", got)
	}
	names := manager.GetMirroredNames()
	slices.SortFunc(names, func(a, b podid.FullName) int { return strings.Compare(a.Name, b.Name) })
	if want := []podid.FullName{fullName("db"), fullName("old"), fullName("web")}; !slices.Equal(names, want) {
		t.Errorf("names with a static pod or a mirror: %v, want %v", names, want)
	}
}

func TestAPodThatChangesItsRoleOrNameIsHeldOnce(t *testing.T) {
	tests := map[string]struct{ before, after *v1.Pod }{
		"ordinary becomes mirror": {apiPod("web", "u1"), mirrorPod("web", "u1", "s1")},
		"mirror becomes ordinary": {mirrorPod("web", "u1", "s1"), apiPod("web", "u1")},
		"static becomes mirror":   {staticPod("web", "u1"), mirrorPod("web", "u1", "s1")},
		"pinned UID, new name":    {staticPod("web", "u1"), staticPod("shop", "u1")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			manager, fresh := holding(test.before, test.after), holding(test.after)
			compareReaders(t, manager, modelOf(test.after), []*v1.Pod{test.before, test.after})
			compareReaders(t, fresh, modelOf(test.after), []*v1.Pod{test.before, test.after})
		})
	}
}
