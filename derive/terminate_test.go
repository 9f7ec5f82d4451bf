package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

// ends tells which of the statuses are terminated, "!" for those that the last status gave an end.
func ends(list statuses) (ends []string) {
	for _, status := range list {
		switch end := status.State.Terminated; {
		case end == nil:
			ends = append(ends, status.Name+" open")
		case end.Reason == "ContainerStatusUnknown" && end.ExitCode == 137 && end.Message == unseenMessage:
			ends = append(ends, status.Name+" killed")
		default:
			ends = append(ends, status.Name+" ended")
		}
	}
	return ends
}

func TestSM18RegularContainersWithoutAnEndHaveFailedIfThePodWasInitialized(t *testing.T) {
	plain := newPod(always, container("a"))
	afterInit := withInit(newPod(always, container("a")), container("init"))
	afterSidecar := withInit(newPod(always, container("a")), container("init"), sidecar("log"))
	tests := map[string]struct {
		pod     *v1.Pod
		init    statuses
		regular statuses
		want    []string
	}{
		"there is nothing to initialize":     {plain, nil, statuses{waiting("a")}, []string{"a killed"}},
		"it has ended":                       {plain, nil, statuses{exited("a", 0)}, []string{"a ended"}},
		"it runs":                            {afterInit, statuses{waiting("init")}, statuses{running("a")}, []string{"a killed"}},
		"it has run":                         {afterInit, statuses{waiting("init")}, statuses{crashed("a", 1)}, []string{"a killed"}},
		"another has run":                    {afterInit, nil, statuses{exited("b", 1), waiting("a")}, []string{"b ended", "a killed"}},
		"the last init container is done":    {afterInit, statuses{exited("init", 0)}, statuses{waiting("a")}, []string{"a killed"}},
		"it was done once":                   {afterInit, statuses{crashed("init", 0)}, statuses{waiting("a")}, []string{"a killed"}},
		"it failed":                          {afterInit, statuses{exited("init", 1)}, statuses{waiting("a")}, []string{"a open"}},
		"nothing is known of it":             {afterInit, nil, statuses{waiting("a")}, []string{"a open"}},
		"the last is a sidecar that started": {afterSidecar, statuses{exited("init", 0), started(running("log"))}, statuses{waiting("a")}, []string{"a killed"}},
		"the last is one that did not":       {afterSidecar, statuses{exited("init", 0), running("log")}, statuses{waiting("a")}, []string{"a open"}},
		"statuses that fit another spec":     {afterInit, statuses{exited("other", 0)}, statuses{waiting("a")}, []string{"a open"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The API's copy says that nothing was initialized: the evidence is the status that was passed.
			test.pod.Status = v1.PodStatus{}
			before := v1.PodStatus{InitContainerStatuses: test.init, ContainerStatuses: test.regular}
			kept := before.DeepCopy()
			mustEqual(t, ends(derive.Terminate(test.pod, before).ContainerStatuses), test.want)
			mustEqual(t, &before, kept)
		})
	}
}

func TestSM19InitContainersUpToTheLastThatWasTriedHaveFailed(t *testing.T) {
	pod := withInit(newPod(always, container("a")), container("i1"), container("i2"), container("i3"))
	tests := map[string]struct {
		init statuses
		want []string
	}{
		"none was tried":                {statuses{waiting("i1"), waiting("i2")}, []string{"i1 killed", "i2 open"}},
		"the second was":                {statuses{exited("i1", 0), running("i2"), waiting("i3")}, []string{"i1 ended", "i2 killed", "i3 open"}},
		"a gap is filled":               {statuses{waiting("i1"), crashed("i2", 1), waiting("i3")}, []string{"i1 killed", "i2 killed", "i3 open"}},
		"one of which nothing is known": {statuses{waiting("i1"), stateless("i2"), waiting("i3")}, []string{"i1 killed", "i2 killed", "i3 open"}},
		"there are none":                {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mustEqual(t, ends(derive.Terminate(pod, v1.PodStatus{InitContainerStatuses: test.init}).InitContainerStatuses), test.want)
		})
	}
}

func TestSM20ThePhaseBecomesTerminalUnlessThePodIsStatic(t *testing.T) {
	tests := map[string]struct {
		pod       *v1.Pod
		was, want v1.PodPhase
	}{
		"succeeded":           {newPod(always), v1.PodSucceeded, v1.PodSucceeded},
		"failed":              {newPod(always), v1.PodFailed, v1.PodFailed},
		"pending":             {newPod(always), v1.PodPending, v1.PodFailed},
		"running":             {newPod(always), v1.PodRunning, v1.PodFailed},
		"never told":          {newPod(always), "", v1.PodFailed},
		"running, and static": {static(newPod(always)), v1.PodRunning, v1.PodRunning},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mustEqual(t, derive.Terminate(test.pod, v1.PodStatus{Phase: test.was}).Phase, test.want)
		})
	}
}

func TestSM17APodOfWhichNothingWasKnownHasALastStatus(t *testing.T) {
	got := derive.Terminate(newPod(always, container("a")), v1.PodStatus{})
	mustEqual(t, got, v1.PodStatus{Phase: v1.PodFailed})
}

// The kubelet leaves Ready as it was until it writes, so that its cache and the API server disagree from then on (I10).
func TestSM70TheLastStatusIsNotReady(t *testing.T) {
	was := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{
		at(v1.PodScheduled, v1.ConditionTrue, noon), at(v1.PodReady, v1.ConditionTrue, noon), at(v1.ContainersReady, v1.ConditionTrue, noon),
	}}
	got := derive.CarryOver(&was, derive.Terminate(newPod(always), was), later)
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		want := at(kind, v1.ConditionFalse, later)
		want.Reason, want.ObservedGeneration = "PodFailed", 7
		mustEqual(t, condition(t, got, kind), want)
	}
	mustEqual(t, condition(t, got, v1.PodScheduled), at(v1.PodScheduled, v1.ConditionTrue, noon))
	merged := derive.Merge(was, got, false, later)
	if !derive.Equal(&merged, &got) {
		t.Fatal("what is sent is not what is kept")
	}
}
