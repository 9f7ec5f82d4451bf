package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
)

func TestSM63OthersConditionsStayAndOnlyOursAreSent(t *testing.T) {
	api := v1.PodStatus{Conditions: []v1.PodCondition{at("lb", "True", noon), at(v1.PodReady, "True", noon), at("dns", "False", noon)}}
	ours := v1.PodStatus{Conditions: []v1.PodCondition{at("lb", "False", later), at("made-up", "True", later), at(v1.PodReady, "False", later), at(v1.PodScheduled, "True", noon)}}
	got := derive.Merge(api, ours, false, later)
	mustEqual(t, got.Conditions, []v1.PodCondition{
		at("lb", "True", noon), at("dns", "False", noon), at(v1.PodReady, "False", later), at(v1.PodScheduled, "True", noon),
	})
}

func TestSM64AnOwnedConditionThatIsGoneDisappears(t *testing.T) {
	api := v1.PodStatus{Conditions: []v1.PodCondition{at(v1.PodResizePending, "True", noon), at(v1.PodReady, "True", noon)}}
	ours := v1.PodStatus{Conditions: []v1.PodCondition{at(v1.PodReady, "True", noon)}}
	mustEqual(t, derive.Merge(api, ours, false, later).Conditions, ours.Conditions)
}

func TestSM63OfTwoConditionsOfATypeTheLastIsSent(t *testing.T) {
	ours := v1.PodStatus{Conditions: []v1.PodCondition{at(v1.PodReady, "True", noon), at(v1.PodReady, "False", later)}}
	mustEqual(t, derive.Merge(v1.PodStatus{}, ours, false, later).Conditions, ours.Conditions[1:])
}

func TestSM65ADisruptionIsToldWithTheEndThatItExplains(t *testing.T) {
	const disruption = v1.DisruptionTarget
	theirs, oursTrue := at(disruption, "True", noon), at(disruption, "True", noon.Add(1))
	theirs.Reason, oursTrue.Reason = "EvictionByEvictionAPI", "TerminationByKubelet"
	told := func(condition v1.PodCondition, when metav1.Time) []v1.PodCondition {
		condition.LastTransitionTime = when
		return []v1.PodCondition{condition}
	}
	tests := map[string]struct {
		from, to v1.PodPhase
		api      []v1.PodCondition
		couldRun bool
		want     []v1.PodCondition
	}{
		"the pod ends":                         {from: v1.PodRunning, to: v1.PodFailed, want: told(oursTrue, metav1.NewTime(later))},
		"it ends, and somebody said so before": {from: v1.PodRunning, to: v1.PodFailed, api: []v1.PodCondition{theirs}, want: told(oursTrue, metav1.NewTime(noon))},
		"it ends, and somebody said otherwise": {from: v1.PodRunning, to: v1.PodFailed, api: []v1.PodCondition{at(disruption, "False", noon)}, want: told(oursTrue, metav1.NewTime(later))},
		"its containers could still run":       {from: v1.PodRunning, to: v1.PodFailed, couldRun: true, want: nil},
		"nor then is the API's own touched":    {from: v1.PodRunning, to: v1.PodFailed, couldRun: true, api: []v1.PodCondition{theirs}, want: []v1.PodCondition{theirs}},
		"it had ended before":                  {from: v1.PodFailed, to: v1.PodFailed, want: nil},
		"it has not ended":                     {from: v1.PodRunning, to: v1.PodRunning, api: []v1.PodCondition{theirs}, want: []v1.PodCondition{theirs}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			api := v1.PodStatus{Phase: test.from, Conditions: test.api}
			ours := v1.PodStatus{Phase: test.to, Conditions: []v1.PodCondition{oursTrue}}
			got := derive.Merge(api, ours, test.couldRun, later).Conditions
			if len(got) == 0 && len(test.want) == 0 {
				return
			}
			mustEqual(t, got, test.want)
		})
	}
}

func TestSM66WhatOthersWriteIsKept(t *testing.T) {
	theirs := v1.PodStatus{
		ResourceClaimStatuses:                []v1.PodResourceClaimStatus{{Name: "gpu"}},
		ExtendedResourceClaimStatus:          &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"},
		NodeAllocatableResourceClaimStatuses: []v1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "y"}},
		NominatedNodeName:                    "n2",
		QOSClass:                             v1.PodQOSGuaranteed,
	}
	got := derive.Merge(theirs, v1.PodStatus{QOSClass: v1.PodQOSBurstable, Phase: v1.PodRunning}, false, later)
	got.Phase, got.Conditions = "", nil
	mustEqual(t, got, theirs)

	mustEqual(t, derive.Merge(v1.PodStatus{}, v1.PodStatus{QOSClass: v1.PodQOSBurstable}, false, later).QOSClass, v1.PodQOSBurstable)
}

func TestATerminalPhaseIsToldLastAndNeverTakenBack(t *testing.T) {
	tests := map[string]struct {
		api, ours v1.PodStatus
		couldRun  bool
		want      v1.PodStatus
	}{
		"SM-67 containers could still run":              {api: told(v1.PodRunning, "R"), ours: told(v1.PodFailed, "F"), couldRun: true, want: told(v1.PodRunning, "R")},
		"SM-67 they could not":                          {api: told(v1.PodRunning, "R"), ours: told(v1.PodFailed, "F"), want: told(v1.PodFailed, "F")},
		"SM-68 it is told already":                      {api: told(v1.PodFailed, "R"), ours: told(v1.PodFailed, "F"), couldRun: true, want: told(v1.PodFailed, "F")},
		"SM-68 somebody ended it, we did not":           {api: told(v1.PodFailed, "R"), ours: told(v1.PodRunning, ""), want: told(v1.PodFailed, "R")},
		"SM-68 somebody ended it otherwise":             {api: told(v1.PodSucceeded, "R"), ours: told(v1.PodFailed, "F"), want: told(v1.PodSucceeded, "R")},
		"SM-69 a static pod is gated by its own answer": {api: told(v1.PodRunning, ""), ours: told(v1.PodSucceeded, ""), couldRun: true, want: told(v1.PodRunning, "")},
		"other phases are ours":                         {api: told(v1.PodRunning, "R"), ours: told(v1.PodPending, ""), couldRun: true, want: told(v1.PodPending, "")},
		"SM-71 as in v1.16":                             {api: told(v1.PodPending, ""), ours: told(v1.PodRunning, ""), want: told(v1.PodRunning, "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.ours.ContainerStatuses = statuses{exited("a", 1)}
			got := derive.Merge(test.api, test.ours, test.couldRun, later)
			mustEqual(t, v1.PodStatus{Phase: got.Phase, Reason: got.Reason, Message: got.Message}, test.want)
			mustEqual(t, got.ContainerStatuses, test.ours.ContainerStatuses)
		})
	}
}

func TestSM70NobodySeesAPodThatHasEndedAndIsReady(t *testing.T) {
	ended := func(kind v1.PodConditionType, reason string) v1.PodCondition {
		condition := at(kind, "False", later)
		condition.Reason, condition.ObservedGeneration = reason, 5
		return condition
	}
	already := at(v1.ContainersReady, "False", noon)
	already.Reason = "ContainersNotReady"
	stays := ended(v1.ContainersReady, "PodFailed")
	stays.LastTransitionTime = metav1.NewTime(noon)
	tests := map[string]struct {
		ours []v1.PodCondition
		end  v1.PodPhase
		want []v1.PodCondition
	}{
		"completed":            {[]v1.PodCondition{at(v1.PodReady, "True", noon), at(v1.ContainersReady, "True", noon)}, v1.PodSucceeded, []v1.PodCondition{ended(v1.PodReady, "PodCompleted"), ended(v1.ContainersReady, "PodCompleted")}},
		"failed, one was said": {[]v1.PodCondition{at(v1.PodReady, "True", noon), already}, v1.PodFailed, []v1.PodCondition{ended(v1.PodReady, "PodFailed"), stays}},
		"one is missing":       {[]v1.PodCondition{at(v1.PodReady, "True", noon)}, v1.PodFailed, []v1.PodCondition{ended(v1.PodReady, "PodFailed"), ended(v1.ContainersReady, "PodFailed")}},
		"none says True":       {[]v1.PodCondition{already}, v1.PodFailed, []v1.PodCondition{already}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ours := v1.PodStatus{Phase: test.end, Conditions: test.ours, ObservedGeneration: 5}
			mustEqual(t, derive.Merge(v1.PodStatus{Phase: v1.PodRunning}, ours, false, later).Conditions, test.want)
		})
	}
	t.Run("not while its end is held back", func(t *testing.T) {
		ours := v1.PodStatus{Phase: v1.PodFailed, Conditions: []v1.PodCondition{at(v1.PodReady, "True", noon)}}
		mustEqual(t, derive.Merge(v1.PodStatus{Phase: v1.PodRunning}, ours, true, later).Conditions, ours.Conditions)
	})
	t.Run("I6 nor does its time move backwards", func(t *testing.T) {
		ours := v1.PodStatus{Phase: v1.PodFailed, Conditions: []v1.PodCondition{at(v1.PodReady, "True", later)}}
		got := derive.Merge(v1.PodStatus{Phase: v1.PodRunning}, ours, false, noon)
		mustEqual(t, condition(t, got, v1.PodReady).LastTransitionTime.UTC(), later)
	})
}

func TestI5TheObservedGenerationThatIsSentNeverFalls(t *testing.T) {
	mustEqual(t, derive.Merge(v1.PodStatus{ObservedGeneration: 9}, v1.PodStatus{ObservedGeneration: 7}, false, later).ObservedGeneration, int64(9))
}
