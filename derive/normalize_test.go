package derive_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

func normalized(pod *v1.Pod, status v1.PodStatus) v1.PodStatus {
	status, _ = derive.Normalize(pod, status)
	return status
}

func TestSM28TimesAreInWholeSeconds(t *testing.T) {
	odd := metav1.NewTime(noon.Add(999 * time.Millisecond))
	state := v1.ContainerState{
		Running:    &v1.ContainerStateRunning{StartedAt: odd},
		Terminated: &v1.ContainerStateTerminated{StartedAt: odd, FinishedAt: odd},
	}
	list := statuses{{Name: "a", State: state, LastTerminationState: state}}
	before := v1.PodStatus{
		StartTime:         &odd,
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, LastProbeTime: odd, LastTransitionTime: odd}},
		ContainerStatuses: list, InitContainerStatuses: list, EphemeralContainerStatuses: list,
	}
	kept := before.DeepCopy()
	got, changed := derive.Normalize(newPod(always, container("a")), before)
	if !changed {
		t.Fatal("it says that nothing changed")
	}
	whole := metav1.NewTime(noon)
	state = v1.ContainerState{
		Running:    &v1.ContainerStateRunning{StartedAt: whole},
		Terminated: &v1.ContainerStateTerminated{StartedAt: whole, FinishedAt: whole},
	}
	list = statuses{{Name: "a", State: state, LastTerminationState: state}}
	mustEqual(t, got, v1.PodStatus{
		StartTime:         &whole,
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, LastProbeTime: whole, LastTransitionTime: whole}},
		ContainerStatuses: list, InitContainerStatuses: list, EphemeralContainerStatuses: list,
	})
	mustEqual(t, &before, kept)
}

func TestSM29MessagesShareTheBudgetOfThePod(t *testing.T) {
	ofContainers := func(regular, init, ephemeral int) *v1.Pod {
		pod := newPod(always)
		pod.Spec.Containers = make([]v1.Container, regular)
		pod.Spec.InitContainers = make([]v1.Container, init)
		pod.Spec.EphemeralContainers = make([]v1.EphemeralContainer, ephemeral)
		return pod
	}
	tests := map[string]struct {
		pod     *v1.Pod
		message string
		want    string
	}{
		"all of it":                                  {ofContainers(0, 0, 0), strings.Repeat("x", 12289), strings.Repeat("x", 12288)},
		"one of one":                                 {ofContainers(1, 0, 0), strings.Repeat("x", 12288), strings.Repeat("x", 12288)},
		"one of five, of any kind":                   {ofContainers(2, 2, 1), strings.Repeat("x", 5000), strings.Repeat("x", 2457)},
		"so many that none is left":                  {ofContainers(12289, 0, 0), "x", ""},
		"BUG-16 between characters":                  {ofContainers(1, 0, 0), strings.Repeat("x", 12287) + "é", strings.Repeat("x", 12287)},
		"BUG-16 which may just fit":                  {ofContainers(1, 0, 0), strings.Repeat("x", 12286) + "é", strings.Repeat("x", 12286) + "é"},
		"BUG-16 broken ones are replaced, each byte": {ofContainers(1, 0, 0), "a\xff\xfeb\xc3", "a\ufffd\ufffdb\ufffd"},
		"BUG-16 and the result still fits":           {ofContainers(1, 0, 0), strings.Repeat("\xff", 12288), strings.Repeat("\ufffd", 4096)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			list := func() statuses {
				return statuses{{Name: "a", State: endedWith(1, "Error", test.message), LastTerminationState: endedWith(1, "Error", test.message)}}
			}
			got := normalized(test.pod, v1.PodStatus{ContainerStatuses: list(), InitContainerStatuses: list(), EphemeralContainerStatuses: list()})
			for _, statuses := range []statuses{got.ContainerStatuses, got.InitContainerStatuses, got.EphemeralContainerStatuses} {
				for _, state := range []v1.ContainerState{statuses[0].State, statuses[0].LastTerminationState} {
					if message := state.Terminated.Message; message != test.want {
						t.Fatalf("%d bytes, want %d: %.40q", len(message), len(test.want), message)
					}
				}
			}
		})
	}
}

func TestBUG16InvalidTextIsReplacedWhereverTheServerWould(t *testing.T) {
	const bad, good = "a\xffb", "a\ufffdb"
	mustEqual(t,
		normalized(newPod(always), v1.PodStatus{
			Reason: bad, Message: bad,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Reason: bad, Message: bad}},
			ContainerStatuses: statuses{
				{Name: "a", State: waitsFor(bad, bad)}, {Name: "b", State: endedWith(1, bad, bad)},
			},
		}),
		v1.PodStatus{
			Reason: good, Message: good,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Reason: good, Message: good}},
			ContainerStatuses: statuses{
				{Name: "a", State: waitsFor(good, good)}, {Name: "b", State: endedWith(1, good, good)},
			},
		})
}

func TestSM30ListsHaveAFixedOrder(t *testing.T) {
	pod := withInit(newPod(always, container("b"), container("a")), container("z"), container("y"), container("x"))
	list := func(names ...string) (list statuses) {
		for _, name := range names {
			list = append(list, stateless(name))
		}
		return list
	}
	before := v1.PodStatus{
		ContainerStatuses: list("b", "c", "a"), EphemeralContainerStatuses: list("f", "e"),
		InitContainerStatuses: list("stranger", "x", "other", "z", "y"),
	}
	got := normalized(pod, before)
	mustEqual(t, got, v1.PodStatus{
		ContainerStatuses: list("a", "b", "c"), EphemeralContainerStatuses: list("e", "f"),
		InitContainerStatuses: list("z", "y", "x", "stranger", "other"),
	})
	mustEqual(t, before.ContainerStatuses, list("b", "c", "a"))
}

func TestEachOddityAloneIsSeen(t *testing.T) {
	odd, bad := metav1.NewTime(noon.Add(time.Millisecond)), "a\xffb"
	condition := func(c v1.PodCondition) v1.PodStatus { return v1.PodStatus{Conditions: []v1.PodCondition{c}} }
	state := func(s v1.ContainerState) v1.PodStatus { return v1.PodStatus{ContainerStatuses: statuses{{State: s}}} }
	list := statuses{{Name: "b"}, {Name: "a"}}
	tests := map[string]v1.PodStatus{
		"start time":          {StartTime: &odd},
		"reason":              {Reason: bad},
		"message":             {Message: bad},
		"transition time":     condition(v1.PodCondition{LastTransitionTime: odd}),
		"probe time":          condition(v1.PodCondition{LastProbeTime: odd}),
		"condition's reason":  condition(v1.PodCondition{Reason: bad}),
		"condition's message": condition(v1.PodCondition{Message: bad}),
		"waiting reason":      state(waitsFor(bad, "")),
		"waiting message":     state(waitsFor("", bad)),
		"running":             state(v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: odd}}),
		"started":             state(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: odd}}),
		"finished":            state(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: odd}}),
		"terminated reason":   state(endedWith(1, bad, "")),
		"terminated message":  state(endedWith(1, "", bad)),
		"too long a message":  state(endedWith(1, "", strings.Repeat("x", 12289))),
		"last state":          {ContainerStatuses: statuses{{LastTerminationState: waitsFor(bad, "")}}},
		"init container":      {InitContainerStatuses: statuses{{State: waitsFor(bad, "")}}},
		"ephemeral container": {EphemeralContainerStatuses: statuses{{State: waitsFor(bad, "")}}},
		"order":               {ContainerStatuses: list},
		"order of init":       {InitContainerStatuses: statuses{{Name: "stranger"}, {Name: "init"}}},
		"order of ephemeral":  {EphemeralContainerStatuses: list},
	}
	for name, before := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(always), container("init"))
			once, changed := derive.Normalize(pod, before)
			if !changed || cmp.Equal(once, before) {
				t.Fatal("it was not seen")
			}
			if _, again := derive.Normalize(pod, once); again {
				t.Fatal("it was not mended")
			}
		})
	}
}

func TestANormalStatusIsReturnedAsItIs(t *testing.T) {
	pod, normal := largeStatus()
	got, changed := derive.Normalize(pod, normal)
	if changed || &got.ContainerStatuses[0] != &normal.ContainerStatuses[0] {
		t.Fatal("it was copied")
	}
	if n := testing.AllocsPerRun(100, func() { derive.Normalize(pod, normal) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestATimeFromThisProcessClockIsNotNormal(t *testing.T) {
	now := time.Now().Truncate(0)
	withReading := time.Now()
	withReading = withReading.Add(-time.Duration(withReading.Nanosecond()))
	pod := newPod(always)
	got, changed := derive.Normalize(pod, v1.PodStatus{StartTime: &metav1.Time{Time: withReading}})
	if !changed || got.StartTime.Time != got.StartTime.Round(0) {
		t.Fatal("the monotonic reading is still there")
	}
	if !got.StartTime.Time.Equal(withReading) || got.StartTime.After(now.Add(time.Second)) {
		t.Fatalf("%v became %v", withReading, got.StartTime)
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("plain", uint8(1), int64(0))
	f.Add("caf\xc3", uint8(3), int64(1))
	f.Add(strings.Repeat("é", 9000), uint8(2), int64(1e9-1))
	f.Fuzz(func(t *testing.T, message string, containers uint8, nanoseconds int64) {
		pod := newPod(always)
		pod.Spec.Containers = make([]v1.Container, containers)
		when := metav1.NewTime(noon.Add(time.Duration(nanoseconds)))
		before := v1.PodStatus{
			Message: message, StartTime: &when,
			ContainerStatuses: statuses{{Name: "a", State: endedWith(1, message, message), LastTerminationState: waitsFor(message, message)}},
		}
		got, changed := derive.Normalize(pod, before)
		cut := got.ContainerStatuses[0].State.Terminated.Message
		if !utf8.ValidString(cut) || !utf8.ValidString(got.Message) || len(cut) > 12288/max(1, int(containers)) {
			t.Fatalf("%q was cut to %q", message, cut)
		}
		if len(cut) > 0 && utf8.ValidString(message) && !strings.HasPrefix(message, cut) {
			t.Fatalf("%q is no part of %q", cut, message)
		}
		if changed == derive.Equal(&before, &got) {
			t.Fatalf("changed is %v", changed)
		}
		if again, changed := derive.Normalize(pod, got); changed || !derive.Equal(&got, &again) {
			t.Fatal("a normal status was changed again")
		}
	})
}
