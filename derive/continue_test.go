package derive_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

func at(kind v1.PodConditionType, status v1.ConditionStatus, when time.Time) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(when)}
}

func TestSM24ATransitionTimeMovesWithTheStatusAndOnlyForward(t *testing.T) {
	tests := map[string]struct {
		old  []v1.PodCondition
		next v1.PodCondition
		now  time.Time
		want time.Time
	}{
		"the same status":                  {[]v1.PodCondition{at(v1.PodReady, "True", noon)}, at(v1.PodReady, "True", time.Time{}), later, noon},
		"whatever time came with it":       {[]v1.PodCondition{at(v1.PodReady, "True", noon)}, at(v1.PodReady, "True", later), later, noon},
		"another status":                   {[]v1.PodCondition{at(v1.PodReady, "True", noon)}, at(v1.PodReady, "False", noon), later, later},
		"a first condition":                {nil, at(v1.PodReady, "False", time.Time{}), later, later},
		"in whole seconds":                 {nil, at(v1.PodReady, "False", time.Time{}), later.Add(time.Second / 2), later},
		"I6 the clock went back":           {[]v1.PodCondition{at(v1.PodReady, "True", later)}, at(v1.PodReady, "False", noon), noon, later},
		"a shared condition":               {[]v1.PodCondition{at(v1.DisruptionTarget, "True", noon)}, at(v1.DisruptionTarget, "True", later), later, noon},
		"a resize condition has its own":   {[]v1.PodCondition{at(v1.PodResizePending, "True", noon)}, at(v1.PodResizePending, "True", later), later.Add(1), later},
		"so has somebody else's condition": {[]v1.PodCondition{at("lb", "True", noon)}, at("lb", "False", later), later.Add(1), later},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			next := v1.PodStatus{Conditions: []v1.PodCondition{test.next}}
			got := derive.CarryOver(&v1.PodStatus{Conditions: test.old}, next, test.now)
			mustEqual(t, got.Conditions[0].LastTransitionTime.UTC(), test.want)
			mustEqual(t, next.Conditions[0].LastTransitionTime, test.next.LastTransitionTime)
		})
	}
	t.Run("a new reason is no transition", func(t *testing.T) {
		old, next := at(v1.PodReady, "False", noon), at(v1.PodReady, "False", time.Time{})
		next.Reason = "Other"
		got := derive.CarryOver(&v1.PodStatus{Conditions: []v1.PodCondition{old}}, v1.PodStatus{Conditions: []v1.PodCondition{next}}, later)
		mustEqual(t, got.Conditions[0].LastTransitionTime.UTC(), noon)
	})
}

func TestSM25TheStartTimeNeverMoves(t *testing.T) {
	stamp := func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
	tests := map[string]struct {
		old, next *metav1.Time
		want      time.Time
	}{
		"the old one wins":         {stamp(noon), stamp(later), noon},
		"else the new one":         {nil, stamp(noon), noon},
		"a zero time is none":      {stamp(time.Time{}), stamp(noon), noon},
		"else now":                 {nil, nil, later},
		"also for a zero new time": {nil, stamp(time.Time{}), later},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := derive.CarryOver(&v1.PodStatus{StartTime: test.old}, v1.PodStatus{StartTime: test.next}, later)
			mustEqual(t, got.StartTime.UTC(), test.want)
		})
	}
}

// SM-26, SM-95 and SM-96 are about a field that the API has from v1.37 on. When it arrives, Continue has to keep it,
// and this test tells.
func TestSM26VolumeHealthIsNotInThisVersionOfTheAPI(t *testing.T) {
	for field := range reflect.TypeFor[v1.PodStatus]().Fields() {
		if strings.Contains(strings.ToLower(field.Name), "volume") {
			t.Fatalf("status.%s has arrived: keep it in Continue when the next status has none, compare it in Equal", field.Name)
		}
	}
}

func TestSM27TheObservedGenerationNeverFalls(t *testing.T) {
	got := derive.CarryOver(&v1.PodStatus{ObservedGeneration: 3}, v1.PodStatus{ObservedGeneration: 2}, noon)
	mustEqual(t, got.ObservedGeneration, int64(3))
	got = derive.CarryOver(&v1.PodStatus{ObservedGeneration: 3}, v1.PodStatus{ObservedGeneration: 4}, noon)
	mustEqual(t, got.ObservedGeneration, int64(4))
}

func TestContinueAllocatesNothingWhenNothingMoves(t *testing.T) {
	_, old := largeStatus()
	if n := testing.AllocsPerRun(100, func() { derive.CarryOver(&old, old, later) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestSM31AnEndIsCountedOnce(t *testing.T) {
	old := &v1.PodStatus{
		InitContainerStatuses: statuses{running("init")},
		ContainerStatuses:     statuses{exited("done", 0), running("dies"), waiting("waits")},
	}
	next := &v1.PodStatus{
		InitContainerStatuses:      statuses{reasoned(exited("init", 0), "Completed")},
		ContainerStatuses:          statuses{exited("done", 0), reasoned(exited("dies", 137), "OOMKilled"), waiting("waits"), exited("new", 2)},
		EphemeralContainerStatuses: statuses{exited("debug", 1)},
	}
	mustEqual(t, derive.NewlyTerminated(old, next), []derive.Termination{
		{Kind: derive.InitContainer, Name: "init", ExitCode: 0, Reason: "Completed"},
		{Kind: derive.RegularContainer, Name: "dies", ExitCode: 137, Reason: "OOMKilled"},
		{Kind: derive.RegularContainer, Name: "new", ExitCode: 2},
		{Kind: derive.EphemeralContainer, Name: "debug", ExitCode: 1},
	})
	if again := derive.NewlyTerminated(next, next); again != nil {
		t.Fatalf("counted again: %v", again)
	}
}
