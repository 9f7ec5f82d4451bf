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

func conditionAt(conditionType v1.PodConditionType, status v1.ConditionStatus, when time.Time) v1.PodCondition {
	return v1.PodCondition{Type: conditionType, Status: status, LastTransitionTime: metav1.NewTime(when)}
}

func TestSM24_TransitionTime(t *testing.T) {
	tests := map[string]struct {
		old  []v1.PodCondition
		next v1.PodCondition
		now  time.Time
		want time.Time
	}{
		"same status":                 {[]v1.PodCondition{conditionAt(v1.PodReady, "True", noon)}, conditionAt(v1.PodReady, "True", time.Time{}), later, noon},
		"same status, other time":     {[]v1.PodCondition{conditionAt(v1.PodReady, "True", noon)}, conditionAt(v1.PodReady, "True", later), later, noon},
		"new status":                  {[]v1.PodCondition{conditionAt(v1.PodReady, "True", noon)}, conditionAt(v1.PodReady, "False", noon), later, later},
		"first condition":             {nil, conditionAt(v1.PodReady, "False", time.Time{}), later, later},
		"whole seconds":               {nil, conditionAt(v1.PodReady, "False", time.Time{}), later.Add(time.Second / 2), later},
		"I6 clock set back":           {[]v1.PodCondition{conditionAt(v1.PodReady, "True", later)}, conditionAt(v1.PodReady, "False", noon), noon, later},
		"DisruptionTarget":            {[]v1.PodCondition{conditionAt(v1.DisruptionTarget, "True", noon)}, conditionAt(v1.DisruptionTarget, "True", later), later, noon},
		"resize condition":            {[]v1.PodCondition{conditionAt(v1.PodResizePending, "True", noon)}, conditionAt(v1.PodResizePending, "True", later), later.Add(1), later},
		"condition of another writer": {[]v1.PodCondition{conditionAt("lb", "True", noon)}, conditionAt("lb", "False", later), later.Add(1), later},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			next := v1.PodStatus{Conditions: []v1.PodCondition{test.next}}
			got := derive.CarryOver(&v1.PodStatus{Conditions: test.old}, next, test.now)
			requireEqual(t, got.Conditions[0].LastTransitionTime.UTC(), test.want)
			requireEqual(t, next.Conditions[0].LastTransitionTime, test.next.LastTransitionTime)
		})
	}
	t.Run("new reason only", func(t *testing.T) {
		old, next := conditionAt(v1.PodReady, "False", noon), conditionAt(v1.PodReady, "False", time.Time{})
		next.Reason = "Other"
		got := derive.CarryOver(&v1.PodStatus{Conditions: []v1.PodCondition{old}}, v1.PodStatus{Conditions: []v1.PodCondition{next}}, later)
		requireEqual(t, got.Conditions[0].LastTransitionTime.UTC(), noon)
	})
}

func TestSM25_StartTime(t *testing.T) {
	stamp := func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
	tests := map[string]struct {
		old, next *metav1.Time
		want      time.Time
	}{
		"previous wins":    {stamp(noon), stamp(later), noon},
		"first start time": {nil, stamp(noon), noon},
		"zero previous":    {stamp(time.Time{}), stamp(noon), noon},
		"now":              {nil, nil, later},
		"zero start time":  {nil, stamp(time.Time{}), later},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := derive.CarryOver(&v1.PodStatus{StartTime: test.old}, v1.PodStatus{StartTime: test.next}, later)
			requireEqual(t, got.StartTime.UTC(), test.want)
		})
	}
}

// SM-26, SM-95 and SM-96 need a field that the API has from v1.37 on. This test fails when the field arrives: CarryOver must
// preserve it then.
func TestSM26_VolumeHealth(t *testing.T) {
	for field := range reflect.TypeFor[v1.PodStatus]().Fields() {
		if strings.Contains(strings.ToLower(field.Name), "volume") {
			t.Fatalf("status.%s exists: preserve it in CarryOver and compare it in Equal", field.Name)
		}
	}
}

func TestSM27_ObservedGeneration(t *testing.T) {
	got := derive.CarryOver(&v1.PodStatus{ObservedGeneration: 3}, v1.PodStatus{ObservedGeneration: 2}, noon)
	requireEqual(t, got.ObservedGeneration, int64(3))
	got = derive.CarryOver(&v1.PodStatus{ObservedGeneration: 3}, v1.PodStatus{ObservedGeneration: 4}, noon)
	requireEqual(t, got.ObservedGeneration, int64(4))
}

func TestCarryOver_Allocations(t *testing.T) {
	_, old := newLargeStatus()
	if n := testing.AllocsPerRun(100, func() { derive.CarryOver(&old, old, later) }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}

func TestSM63_ForeignConditions(t *testing.T) {
	api := v1.PodStatus{Conditions: []v1.PodCondition{conditionAt("lb", "True", noon), conditionAt(v1.PodReady, "True", noon), conditionAt("dns", "False", noon)}}
	ours := v1.PodStatus{Conditions: []v1.PodCondition{conditionAt("lb", "False", later), conditionAt("made-up", "True", later), conditionAt(v1.PodReady, "False", later), conditionAt(v1.PodScheduled, "True", noon)}}
	got := derive.Merge(api, ours, false, later)
	requireEqual(t, got.Conditions, []v1.PodCondition{
		conditionAt("lb", "True", noon), conditionAt("dns", "False", noon), conditionAt(v1.PodReady, "False", later), conditionAt(v1.PodScheduled, "True", noon),
	})
}

func TestSM64_OwnedConditionRemoved(t *testing.T) {
	api := v1.PodStatus{Conditions: []v1.PodCondition{conditionAt(v1.PodResizePending, "True", noon), conditionAt(v1.PodReady, "True", noon)}}
	ours := v1.PodStatus{Conditions: []v1.PodCondition{conditionAt(v1.PodReady, "True", noon)}}
	requireEqual(t, derive.Merge(api, ours, false, later).Conditions, ours.Conditions)
}

func TestSM63_DuplicateCondition(t *testing.T) {
	ours := v1.PodStatus{Conditions: []v1.PodCondition{conditionAt(v1.PodReady, "True", noon), conditionAt(v1.PodReady, "False", later)}}
	requireEqual(t, derive.Merge(v1.PodStatus{}, ours, false, later).Conditions, ours.Conditions[1:])
}

func TestSM65_DisruptionTarget(t *testing.T) {
	const disruption = v1.DisruptionTarget
	theirs, oursTrue := conditionAt(disruption, "True", noon), conditionAt(disruption, "True", noon.Add(1))
	theirs.Reason, oursTrue.Reason = "EvictionByEvictionAPI", "TerminationByKubelet"
	sent := func(condition v1.PodCondition, when metav1.Time) []v1.PodCondition {
		condition.LastTransitionTime = when
		return []v1.PodCondition{condition}
	}
	tests := map[string]struct {
		from, to v1.PodPhase
		api      []v1.PodCondition
		couldRun bool
		want     []v1.PodCondition
	}{
		"pod terminates":                     {from: v1.PodRunning, to: v1.PodFailed, want: sent(oursTrue, metav1.NewTime(later))},
		"API has True":                       {from: v1.PodRunning, to: v1.PodFailed, api: []v1.PodCondition{theirs}, want: sent(oursTrue, metav1.NewTime(noon))},
		"API has False":                      {from: v1.PodRunning, to: v1.PodFailed, api: []v1.PodCondition{conditionAt(disruption, "False", noon)}, want: sent(oursTrue, metav1.NewTime(later))},
		"containers could run":               {from: v1.PodRunning, to: v1.PodFailed, couldRun: true, want: nil},
		"containers could run, API has True": {from: v1.PodRunning, to: v1.PodFailed, couldRun: true, api: []v1.PodCondition{theirs}, want: []v1.PodCondition{theirs}},
		"already terminated":                 {from: v1.PodFailed, to: v1.PodFailed, want: nil},
		"not terminated":                     {from: v1.PodRunning, to: v1.PodRunning, api: []v1.PodCondition{theirs}, want: []v1.PodCondition{theirs}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			api := v1.PodStatus{Phase: test.from, Conditions: test.api}
			ours := v1.PodStatus{Phase: test.to, Conditions: []v1.PodCondition{oursTrue}}
			got := derive.Merge(api, ours, test.couldRun, later).Conditions
			if len(got) == 0 && len(test.want) == 0 {
				return
			}
			requireEqual(t, got, test.want)
		})
	}
}

func TestSM66_ForeignFields(t *testing.T) {
	theirs := v1.PodStatus{
		ResourceClaimStatuses:                []v1.PodResourceClaimStatus{{Name: "gpu"}},
		ExtendedResourceClaimStatus:          &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"},
		NodeAllocatableResourceClaimStatuses: []v1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "y"}},
		NominatedNodeName:                    "n2",
		QOSClass:                             v1.PodQOSGuaranteed,
	}
	got := derive.Merge(theirs, v1.PodStatus{QOSClass: v1.PodQOSBurstable, Phase: v1.PodRunning}, false, later)
	got.Phase, got.Conditions = "", nil
	requireEqual(t, got, theirs)

	requireEqual(t, derive.Merge(v1.PodStatus{}, v1.PodStatus{QOSClass: v1.PodQOSBurstable}, false, later).QOSClass, v1.PodQOSBurstable)
}

func TestMerge_TerminalPhase(t *testing.T) {
	tests := map[string]struct {
		api, ours v1.PodStatus
		couldRun  bool
		want      v1.PodStatus
	}{
		"SM-67 containers could run":         {api: newPhaseStatus(v1.PodRunning, "R"), ours: newPhaseStatus(v1.PodFailed, "F"), couldRun: true, want: newPhaseStatus(v1.PodRunning, "R")},
		"SM-67 containers stopped":           {api: newPhaseStatus(v1.PodRunning, "R"), ours: newPhaseStatus(v1.PodFailed, "F"), want: newPhaseStatus(v1.PodFailed, "F")},
		"SM-68 already terminal":             {api: newPhaseStatus(v1.PodFailed, "R"), ours: newPhaseStatus(v1.PodFailed, "F"), couldRun: true, want: newPhaseStatus(v1.PodFailed, "F")},
		"SM-68 terminated by another writer": {api: newPhaseStatus(v1.PodFailed, "R"), ours: newPhaseStatus(v1.PodRunning, ""), want: newPhaseStatus(v1.PodFailed, "R")},
		"SM-68 other terminal phase":         {api: newPhaseStatus(v1.PodSucceeded, "R"), ours: newPhaseStatus(v1.PodFailed, "F"), want: newPhaseStatus(v1.PodSucceeded, "R")},
		"SM-69 static pod":                   {api: newPhaseStatus(v1.PodRunning, ""), ours: newPhaseStatus(v1.PodSucceeded, ""), couldRun: true, want: newPhaseStatus(v1.PodRunning, "")},
		"not terminal":                       {api: newPhaseStatus(v1.PodRunning, "R"), ours: newPhaseStatus(v1.PodPending, ""), couldRun: true, want: newPhaseStatus(v1.PodPending, "")},
		"SM-71 as in v1.16":                  {api: newPhaseStatus(v1.PodPending, ""), ours: newPhaseStatus(v1.PodRunning, ""), want: newPhaseStatus(v1.PodRunning, "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.ours.ContainerStatuses = statuses{exitedStatus("a", 1)}
			got := derive.Merge(test.api, test.ours, test.couldRun, later)
			requireEqual(t, v1.PodStatus{Phase: got.Phase, Reason: got.Reason, Message: got.Message}, test.want)
			requireEqual(t, got.ContainerStatuses, test.ours.ContainerStatuses)
		})
	}
}

func TestSM70_TerminatedNotReady(t *testing.T) {
	ended := func(conditionType v1.PodConditionType, reason string) v1.PodCondition {
		condition := conditionAt(conditionType, "False", later)
		condition.Reason, condition.ObservedGeneration = reason, 5
		return condition
	}
	already := conditionAt(v1.ContainersReady, "False", noon)
	already.Reason = "ContainersNotReady"
	stays := ended(v1.ContainersReady, "PodFailed")
	stays.LastTransitionTime = metav1.NewTime(noon)
	tests := map[string]struct {
		ours []v1.PodCondition
		end  v1.PodPhase
		want []v1.PodCondition
	}{
		"completed":                 {[]v1.PodCondition{conditionAt(v1.PodReady, "True", noon), conditionAt(v1.ContainersReady, "True", noon)}, v1.PodSucceeded, []v1.PodCondition{ended(v1.PodReady, "PodCompleted"), ended(v1.ContainersReady, "PodCompleted")}},
		"failed, one already False": {[]v1.PodCondition{conditionAt(v1.PodReady, "True", noon), already}, v1.PodFailed, []v1.PodCondition{ended(v1.PodReady, "PodFailed"), stays}},
		"one missing":               {[]v1.PodCondition{conditionAt(v1.PodReady, "True", noon)}, v1.PodFailed, []v1.PodCondition{ended(v1.PodReady, "PodFailed"), ended(v1.ContainersReady, "PodFailed")}},
		"none True":                 {[]v1.PodCondition{already}, v1.PodFailed, []v1.PodCondition{already}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ours := v1.PodStatus{Phase: test.end, Conditions: test.ours, ObservedGeneration: 5}
			requireEqual(t, derive.Merge(v1.PodStatus{Phase: v1.PodRunning}, ours, false, later).Conditions, test.want)
		})
	}
	t.Run("terminal phase withheld", func(t *testing.T) {
		ours := v1.PodStatus{Phase: v1.PodFailed, Conditions: []v1.PodCondition{conditionAt(v1.PodReady, "True", noon)}}
		requireEqual(t, derive.Merge(v1.PodStatus{Phase: v1.PodRunning}, ours, true, later).Conditions, ours.Conditions)
	})
	t.Run("I6 clock set back", func(t *testing.T) {
		ours := v1.PodStatus{Phase: v1.PodFailed, Conditions: []v1.PodCondition{conditionAt(v1.PodReady, "True", later)}}
		got := derive.Merge(v1.PodStatus{Phase: v1.PodRunning}, ours, false, noon)
		requireEqual(t, findCondition(t, got, v1.PodReady).LastTransitionTime.UTC(), later)
	})
}

func TestI5_MergeObservedGeneration(t *testing.T) {
	requireEqual(t, derive.Merge(v1.PodStatus{ObservedGeneration: 9}, v1.PodStatus{ObservedGeneration: 7}, false, later).ObservedGeneration, int64(9))
}

// A mirror pod may be seen after the first status of its static pod.
// The first status of a static pod may be computed before its mirror pod is seen. What an earlier agent has written stays.
func TestPH39_PublishedResourcesKept(t *testing.T) {
	one, two := newResourceList("cpu", "1"), newResourceList("cpu", "2")
	api := v1.PodStatus{Phase: v1.PodRunning, Resources: &v1.ResourceRequirements{Requests: one}, AllocatedResources: one}
	got := derive.Merge(api, v1.PodStatus{Phase: v1.PodRunning}, false, noon)
	if got.Resources != api.Resources || len(got.AllocatedResources) != 1 {
		t.Errorf("got %v, %v, want the published resources", got.Resources, got.AllocatedResources)
	}
	desired := v1.PodStatus{Phase: v1.PodRunning, Resources: &v1.ResourceRequirements{Requests: two}, AllocatedResources: two}
	if got := derive.Merge(api, desired, false, noon); got.Resources != desired.Resources || !got.AllocatedResources.Cpu().Equal(two["cpu"]) {
		t.Errorf("got %v, %v, want the computed resources", got.Resources, got.AllocatedResources)
	}
}

func TestPH39_ResourcesCarriedOver(t *testing.T) {
	published := &v1.PodStatus{Resources: &v1.ResourceRequirements{Limits: newResourceList("cpu", "1")}, AllocatedResources: newResourceList("cpu", "1")}
	got := derive.CarryOver(published, v1.PodStatus{}, noon)
	if got.Resources != published.Resources || len(got.AllocatedResources) != 1 {
		t.Errorf("got %v, %v", got.Resources, got.AllocatedResources)
	}
	next := v1.PodStatus{Resources: &v1.ResourceRequirements{}}
	if got := derive.CarryOver(published, next, noon); got.Resources != next.Resources || got.AllocatedResources != nil {
		t.Errorf("new resources: got %v, %v", got.Resources, got.AllocatedResources)
	}
}
