package derive_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/heraldnode/herald/derive"
)

func normalize(pod *v1.Pod, status v1.PodStatus) v1.PodStatus {
	status, _ = derive.Normalize(pod, status)
	return status
}

func TestSM28_WholeSeconds(t *testing.T) {
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
	got, changed := derive.Normalize(newPod(always, newContainer("a")), before)
	if !changed {
		t.Fatal("got unchanged, want changed")
	}
	whole := metav1.NewTime(noon)
	state = v1.ContainerState{
		Running:    &v1.ContainerStateRunning{StartedAt: whole},
		Terminated: &v1.ContainerStateTerminated{StartedAt: whole, FinishedAt: whole},
	}
	list = statuses{{Name: "a", State: state, LastTerminationState: state}}
	requireEqual(t, got, v1.PodStatus{
		StartTime:         &whole,
		Conditions:        []v1.PodCondition{{Type: v1.PodReady, LastProbeTime: whole, LastTransitionTime: whole}},
		ContainerStatuses: list, InitContainerStatuses: list, EphemeralContainerStatuses: list,
	})
	requireEqual(t, &before, kept)
}

func TestSM29_MessageBudget(t *testing.T) {
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
		"no containers":                 {ofContainers(0, 0, 0), strings.Repeat("x", 12289), strings.Repeat("x", 12288)},
		"one container":                 {ofContainers(1, 0, 0), strings.Repeat("x", 12288), strings.Repeat("x", 12288)},
		"five containers of all kinds":  {ofContainers(2, 2, 1), strings.Repeat("x", 5000), strings.Repeat("x", 2457)},
		"nothing left":                  {ofContainers(12289, 0, 0), "x", ""},
		"BUG-16 between characters":     {ofContainers(1, 0, 0), strings.Repeat("x", 12287) + "é", strings.Repeat("x", 12287)},
		"BUG-16 last character fits":    {ofContainers(1, 0, 0), strings.Repeat("x", 12286) + "é", strings.Repeat("x", 12286) + "é"},
		"BUG-16 invalid bytes replaced": {ofContainers(1, 0, 0), "a\xff\xfeb\xc3", "a\ufffd\ufffdb\ufffd"},
		"BUG-16 replacement fits":       {ofContainers(1, 0, 0), strings.Repeat("\xff", 12288), strings.Repeat("\ufffd", 4096)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			list := func() statuses {
				return statuses{{Name: "a", State: terminatedState(1, "Error", test.message), LastTerminationState: terminatedState(1, "Error", test.message)}}
			}
			got := normalize(test.pod, v1.PodStatus{ContainerStatuses: list(), InitContainerStatuses: list(), EphemeralContainerStatuses: list()})
			for _, statuses := range []statuses{got.ContainerStatuses, got.InitContainerStatuses, got.EphemeralContainerStatuses} {
				for _, state := range []v1.ContainerState{statuses[0].State, statuses[0].LastTerminationState} {
					if message := state.Terminated.Message; message != test.want {
						t.Fatalf("got %d bytes, want %d: %.40q", len(message), len(test.want), message)
					}
				}
			}
		})
	}
}

func TestBUG16_InvalidUTF8(t *testing.T) {
	const bad, good = "a\xffb", "a\ufffdb"
	requireEqual(t,
		normalize(newPod(always), v1.PodStatus{
			Reason: bad, Message: bad,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Reason: bad, Message: bad}},
			ContainerStatuses: statuses{
				{Name: "a", State: waitingState(bad, bad)}, {Name: "b", State: terminatedState(1, bad, bad)},
			},
		}),
		v1.PodStatus{
			Reason: good, Message: good,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Reason: good, Message: good}},
			ContainerStatuses: statuses{
				{Name: "a", State: waitingState(good, good)}, {Name: "b", State: terminatedState(1, good, good)},
			},
		})
}

func TestSM30_ListOrder(t *testing.T) {
	pod := withInit(newPod(always, newContainer("b"), newContainer("a")), newContainer("z"), newContainer("y"), newContainer("x"))
	list := func(names ...string) (list statuses) {
		for _, name := range names {
			list = append(list, withoutState(name))
		}
		return list
	}
	before := v1.PodStatus{
		ContainerStatuses: list("b", "c", "a"), EphemeralContainerStatuses: list("f", "e"),
		InitContainerStatuses: list("stranger", "x", "other", "z", "y"),
	}
	got := normalize(pod, before)
	requireEqual(t, got, v1.PodStatus{
		ContainerStatuses: list("a", "b", "c"), EphemeralContainerStatuses: list("e", "f"),
		InitContainerStatuses: list("z", "y", "x", "stranger", "other"),
	})
	requireEqual(t, before.ContainerStatuses, list("b", "c", "a"))
}

func TestNormalize_EachField(t *testing.T) {
	odd, bad := metav1.NewTime(noon.Add(time.Millisecond)), "a\xffb"
	condition := func(c v1.PodCondition) v1.PodStatus { return v1.PodStatus{Conditions: []v1.PodCondition{c}} }
	state := func(s v1.ContainerState) v1.PodStatus { return v1.PodStatus{ContainerStatuses: statuses{{State: s}}} }
	list := statuses{{Name: "b"}, {Name: "a"}}
	tests := map[string]v1.PodStatus{
		"start time":                {StartTime: &odd},
		"reason":                    {Reason: bad},
		"message":                   {Message: bad},
		"transition time":           condition(v1.PodCondition{LastTransitionTime: odd}),
		"probe time":                condition(v1.PodCondition{LastProbeTime: odd}),
		"condition reason":          condition(v1.PodCondition{Reason: bad}),
		"condition message":         condition(v1.PodCondition{Message: bad}),
		"waiting reason":            state(waitingState(bad, "")),
		"waiting message":           state(waitingState("", bad)),
		"running":                   state(v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: odd}}),
		"started":                   state(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: odd}}),
		"finished":                  state(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: odd}}),
		"terminated reason":         state(terminatedState(1, bad, "")),
		"terminated message":        state(terminatedState(1, "", bad)),
		"long message":              state(terminatedState(1, "", strings.Repeat("x", 12289))),
		"last state":                {ContainerStatuses: statuses{{LastTerminationState: waitingState(bad, "")}}},
		"init container":            {InitContainerStatuses: statuses{{State: waitingState(bad, "")}}},
		"ephemeral container":       {EphemeralContainerStatuses: statuses{{State: waitingState(bad, "")}}},
		"order":                     {ContainerStatuses: list},
		"init container order":      {InitContainerStatuses: statuses{{Name: "stranger"}, {Name: "init"}}},
		"ephemeral container order": {EphemeralContainerStatuses: list},
	}
	for name, before := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(always), newContainer("init"))
			once, changed := derive.Normalize(pod, before)
			if !changed || cmp.Equal(once, before) {
				t.Fatal("got unchanged, want changed")
			}
			if _, again := derive.Normalize(pod, once); again {
				t.Fatal("got changed again, want unchanged")
			}
		})
	}
}

func TestNormalize_Unchanged(t *testing.T) {
	pod, normal := newLargeStatus()
	got, changed := derive.Normalize(pod, normal)
	if changed || &got.ContainerStatuses[0] != &normal.ContainerStatuses[0] {
		t.Fatal("got a copy, want the same status")
	}
	if n := testing.AllocsPerRun(100, func() { derive.Normalize(pod, normal) }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}

func TestNormalize_MonotonicClock(t *testing.T) {
	now := time.Now().Truncate(0)
	withReading := time.Now()
	withReading = withReading.Add(-time.Duration(withReading.Nanosecond()))
	pod := newPod(always)
	got, changed := derive.Normalize(pod, v1.PodStatus{StartTime: &metav1.Time{Time: withReading}})
	if !changed || got.StartTime.Time != got.StartTime.Round(0) {
		t.Fatal("got a monotonic reading, want none")
	}
	if !got.StartTime.Time.Equal(withReading) || got.StartTime.After(now.Add(time.Second)) {
		t.Fatalf("got %v, want %v", got.StartTime, withReading)
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
			ContainerStatuses: statuses{{Name: "a", State: terminatedState(1, message, message), LastTerminationState: waitingState(message, message)}},
		}
		got, changed := derive.Normalize(pod, before)
		cut := got.ContainerStatuses[0].State.Terminated.Message
		if !utf8.ValidString(cut) || !utf8.ValidString(got.Message) || len(cut) > 12288/max(1, int(containers)) {
			t.Fatalf("got invalid or long %q from %q", cut, message)
		}
		if len(cut) > 0 && utf8.ValidString(message) && !strings.HasPrefix(message, cut) {
			t.Fatalf("got %q, want a prefix of %q", cut, message)
		}
		if changed == derive.Equal(&before, &got) {
			t.Fatalf("got changed %v, want %v", changed, !changed)
		}
		if again, changed := derive.Normalize(pod, got); changed || !derive.Equal(&got, &again) {
			t.Fatal("got changed again, want unchanged")
		}
	})
}

// notCompared lists the fields that Equal ignores, including everything below them, with the reason. A field that is neither
// compared nor listed fails the test.
var notCompared = map[string]string{
	".NominatedNodeName":                    "written by the scheduler",
	".QOSClass":                             "immutable",
	".ResourceClaimStatuses":                "written by the claim controller",
	".ExtendedResourceClaimStatus":          "written by the scheduler",
	".NodeAllocatableResourceClaimStatuses": "written by the scheduler",
	".Conditions[0].LastProbeTime":          "no reason to write",
	".Conditions[0].LastTransitionTime":     "follows from the status",
	".Conditions[0].ObservedGeneration":     "no reason to write",
}

// newFilledStatus returns a status without zero values: every list has one element and every pointer a target.
func newFilledStatus(seed int64) *v1.PodStatus {
	status := &v1.PodStatus{}
	randfill.NewWithSeed(seed).NilChance(0).NumElements(1, 1).Funcs(
		func(t *metav1.Time, c randfill.Continue) {
			*t = metav1.NewTime(noon.Add(time.Duration(c.Int31()) * time.Second))
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(int64(c.Int31()), resource.DecimalSI)
		},
	).Fill(status)
	status.Conditions[0].Type = v1.PodReady
	return status
}

func TestSM32_EveryField(t *testing.T) {
	used := map[string]bool{}
	original := newFilledStatus(1)
	for path := range allChanges(reflect.ValueOf(original.DeepCopy()).Elem(), "") {
		changed := original.DeepCopy()
		applied := false
		for at, apply := range allChanges(reflect.ValueOf(changed).Elem(), "") {
			if at == path {
				apply()
				applied = true
				break
			}
		}
		if !applied {
			t.Fatalf("no change for %s", path)
		}
		ignored := ignoredPrefix(path)
		used[ignored] = true
		if equal := derive.Equal(original, changed); equal != (ignored != "") || derive.Equal(changed, original) != equal {
			t.Errorf("%s: got equal %v after a change; compare the field or add it to notCompared", path, equal)
		}
	}
	for path := range notCompared {
		if !used[path] {
			t.Errorf("%s is in notCompared but does not exist", path)
		}
	}
}

func ignoredPrefix(path string) string {
	for ignored := range notCompared {
		if strings.HasPrefix(path, ignored) {
			return ignored
		}
	}
	return ""
}

// allChanges iterates over all single changes of a value: another leaf value, a nil pointer, a removed element.
func allChanges(v reflect.Value, path string) func(yield func(string, func()) bool) {
	return func(yield func(string, func()) bool) { eachChange(v, path, yield) }
}

func eachChange(v reflect.Value, path string, yield func(string, func()) bool) bool {
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		return yield(path, func() { value.Time = value.Add(time.Second) })
	case *resource.Quantity:
		return yield(path, func() { value.Add(resource.MustParse("1")) })
	}
	empty := func() { v.SetZero() }
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !eachChange(v.Field(i), path+"."+v.Type().Field(i).Name, yield) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		return yield(path+"=nil", empty) && eachChange(v.Elem(), path, yield)
	case reflect.Slice:
		return yield(path+"=empty", empty) && eachChange(v.Index(0), path+"[0]", yield)
	case reflect.Map:
		return yield(path+"=empty", empty) && eachMapChange(v, path, yield)
	default:
		return yield(path, func() { changeLeaf(v) })
	}
}

func eachMapChange(v reflect.Value, path string, yield func(string, func()) bool) bool {
	key := v.MapKeys()[0]
	value := reflect.New(v.Type().Elem()).Elem()
	value.Set(v.MapIndex(key))
	again := yield(path+"[key]", func() {
		v.SetMapIndex(key, reflect.Value{})
		other := reflect.New(v.Type().Key()).Elem()
		other.SetString(key.String() + "x")
		v.SetMapIndex(other, value)
	})
	return again && eachChange(value, path+"[value]", func(path string, change func()) bool {
		return yield(path, func() { change(); v.SetMapIndex(key, value) })
	})
}

func changeLeaf(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	default:
		panic(fmt.Sprintf("no way to change a value of type %s", v.Type()))
	}
}

func TestSM32_Conditions(t *testing.T) {
	of := func(conditions ...v1.PodCondition) *v1.PodStatus { return &v1.PodStatus{Conditions: conditions} }
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	unready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse}
	disrupted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}
	foreign := v1.PodCondition{Type: "lb", Status: v1.ConditionTrue}
	tests := map[string]struct {
		a, b *v1.PodStatus
		want bool
	}{
		"order":               {of(ready, disrupted), of(disrupted, ready), true},
		"foreign condition":   {of(ready, foreign), of(ready), true},
		"missing condition":   {of(ready, disrupted), of(ready), false},
		"DisruptionTarget":    {of(disrupted), of(v1.PodCondition{Type: v1.DisruptionTarget}), false},
		"last of duplicates":  {of(unready, ready), of(ready), true},
		"first of duplicates": {of(ready, unready), of(ready), false},
		"nil and empty":       {of(), &v1.PodStatus{Conditions: []v1.PodCondition{}}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if derive.Equal(test.a, test.b) != test.want || derive.Equal(test.b, test.a) != test.want {
				t.Fatalf("got equal %v, want %v", !test.want, test.want)
			}
		})
	}
	for _, conditionType := range append(derive.OwnedConditions(), v1.DisruptionTarget) {
		if derive.Equal(of(v1.PodCondition{Type: conditionType}), of()) {
			t.Errorf("%s: got equal, want different", conditionType)
		}
	}
}

func TestSM32_EquivalentValues(t *testing.T) {
	equal := func(a, b v1.PodStatus) {
		t.Helper()
		if !derive.Equal(&a, &b) {
			t.Errorf("got %+v and %+v different, want equal", a, b)
		}
	}
	equal(v1.PodStatus{AllocatedResources: newResourceList("cpu", "1000m")}, v1.PodStatus{AllocatedResources: newResourceList("cpu", "1")})
	equal(v1.PodStatus{AllocatedResources: v1.ResourceList{}}, v1.PodStatus{})
	equal(v1.PodStatus{PodIPs: []v1.PodIP{}, ContainerStatuses: statuses{}}, v1.PodStatus{})
	utc, local := metav1.NewTime(noon), metav1.NewTime(noon.In(time.FixedZone("east", 3600)))
	equal(v1.PodStatus{StartTime: &utc}, v1.PodStatus{StartTime: &local})
}

func TestSM32_Allocations(t *testing.T) {
	one := newFilledStatus(2)
	other := one.DeepCopy()
	if n := testing.AllocsPerRun(100, func() { derive.Equal(one, other) }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}

func TestOwnedConditions_Copy(t *testing.T) {
	got := derive.OwnedConditions()
	if !slices.Contains(got, v1.PodReady) || slices.Contains(got, v1.DisruptionTarget) || len(got) != 8 {
		t.Fatalf("got %v", got)
	}
	got[0] = "spoiled"
	if !derive.IsOwnedCondition(v1.PodScheduled) || derive.IsOwnedCondition("spoiled") || derive.IsOwnedCondition(v1.DisruptionTarget) {
		t.Fatal("got a shared list, want a copy")
	}
}
