package derive_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

func TestCheckTransition(t *testing.T) {
	const restart, restartAll = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	const ownNever = v1.ContainerRestartPolicyNever
	initOf := func(policy v1.RestartPolicy, init ...v1.Container) *v1.Pod {
		return withInit(newPod(policy, newContainer("a")), init...)
	}
	regular := func(list ...v1.ContainerStatus) v1.PodStatus { return v1.PodStatus{ContainerStatuses: list} }
	initial := func(list ...v1.ContainerStatus) v1.PodStatus { return v1.PodStatus{InitContainerStatuses: list} }
	illegal, mismatch := derive.ErrIllegalTransition, derive.ErrInitMismatch
	tests := map[string]struct {
		pod       *v1.Pod
		old, next v1.PodStatus
		want      error
	}{
		"SM-39 Always":                              {newPod(always, newContainer("a")), regular(exitedStatus("a", 0)), regular(runningStatus("a")), nil},
		"SM-39 Always, init mismatch":               {newPod(always, newContainer("a")), initial(runningStatus("x")), initial(), nil},
		"SM-40 OnFailure, failed":                   {newPod(onFailure, newContainer("a")), regular(exitedStatus("a", 1)), regular(runningStatus("a")), nil},
		"SM-40 OnFailure, succeeded":                {newPod(onFailure, newContainer("a")), regular(exitedStatus("a", 0)), regular(runningStatus("a")), illegal},
		"SM-40 OnFailure, container Never":          {newPod(onFailure, withRule("a", ownNever, restart)), regular(exitedStatus("a", 1)), regular(runningStatus("a")), nil},
		"SM-40 OnFailure, init container succeeded": {initOf(onFailure, newContainer("init")), initial(exitedStatus("init", 0)), initial(waitingStatus("init")), illegal},
		"SM-40 OnFailure, init container failed":    {initOf(onFailure, newContainer("init")), initial(exitedStatus("init", 1)), initial(runningStatus("init")), nil},
		"SM-41 Never, to running":                   {newPod(never, newContainer("a")), regular(exitedStatus("a", 1)), regular(runningStatus("a")), illegal},
		"SM-41 Never, to waiting":                   {newPod(never, newContainer("a")), regular(exitedStatus("a", 1)), regular(waitingStatus("a")), illegal},
		"SM-41 Never, to no state":                  {newPod(never, newContainer("a")), regular(exitedStatus("a", 1)), regular(withoutState("a")), illegal},
		"SM-41 Never, init container":               {initOf(never, newContainer("init")), initial(exitedStatus("init", 1)), initial(runningStatus("init")), illegal},
		"SM-41 Never, stays terminated":             {newPod(never, newContainer("a")), regular(exitedStatus("a", 1)), regular(exitedStatus("a", 1)), nil},
		"SM-41 Never, was running":                  {newPod(never, newContainer("a")), regular(runningStatus("a")), regular(waitingStatus("a")), nil},
		"SM-42 sidecar":                             {initOf(never, newSidecar("log")), initial(exitedStatus("log", 0)), initial(runningStatus("log")), nil},
		"SM-43 container rule":                      {newPod(never, withRule("a", ownNever, restart)), regular(exitedStatus("a", 42)), regular(runningStatus("a")), nil},
		"SM-43 rule for another exit code":          {newPod(never, withRule("a", ownNever, restart)), regular(exitedStatus("a", 1)), regular(runningStatus("a")), illegal},
		"SM-43 init container rule":                 {initOf(never, withRule("init", ownNever, restart)), initial(exitedStatus("init", 42)), initial(runningStatus("init")), nil},
		"SM-44 rule restarts all":                   {newPod(never, newContainer("a"), withRule("b", ownNever, restartAll)), regular(exitedStatus("a", 0)), regular(runningStatus("a")), nil},
		"SM-44 init container rule restarts all":    {initOf(never, withRule("init", ownNever, restartAll)), regular(exitedStatus("a", 0)), regular(runningStatus("a")), nil},
		"SM-45 init containers swapped":             {initOf(never, newContainer("i1"), newContainer("i2")), initial(runningStatus("i2"), runningStatus("i1")), initial(), mismatch},
		"SM-45 init container added":                {initOf(never, newContainer("i1")), initial(runningStatus("i1"), runningStatus("i2")), initial(), mismatch},
		"SM-45 only previous counts":                {initOf(never, newContainer("i1"), newContainer("i2")), initial(runningStatus("i1")), initial(runningStatus("i2")), nil},
		"SM-46 missing container":                   {newPod(never, newContainer("a")), regular(exitedStatus("a", 1)), regular(), nil},
		"SM-46 ephemeral container":                 {newPod(never, newContainer("a")), v1.PodStatus{EphemeralContainerStatuses: statuses{exitedStatus("e", 1)}}, v1.PodStatus{EphemeralContainerStatuses: statuses{runningStatus("e")}}, nil},
		"SM-47 as in v1.16":                         {newPod(never, newContainer("a"), newContainer("b")), regular(exitedStatus("a", 0), runningStatus("b")), regular(exitedStatus("a", 0), exitedStatus("b", 0)), nil},
		"container not in the spec":                 {newPod(never), regular(exitedStatus("x", 1)), regular(runningStatus("x")), illegal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.CheckTransition(test.pod, &test.old, &test.next); !errors.Is(got, test.want) || (got == nil) != (test.want == nil) {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestSM23_ErrorMessage(t *testing.T) {
	pod := newPod(never, newContainer("a"))
	err := derive.CheckTransition(pod, &v1.PodStatus{ContainerStatuses: statuses{exitedStatus("a", 0)}}, &v1.PodStatus{ContainerStatuses: statuses{runningStatus("a")}})
	requireEqual(t, err.Error(),
		`container "a" of pod shop/web: a terminated container that must not restart would leave its terminated state`)
}

// terminations describes each status: open, terminated before, or killed by Terminate.
func terminations(list statuses) (described []string) {
	for _, status := range list {
		switch terminated := status.State.Terminated; {
		case terminated == nil:
			described = append(described, status.Name+" open")
		case terminated.Reason == "ContainerStatusUnknown" && terminated.ExitCode == 137 && terminated.Message == lostMessage:
			described = append(described, status.Name+" killed")
		default:
			described = append(described, status.Name+" terminated")
		}
	}
	return described
}

func TestSM18_TerminateRegular(t *testing.T) {
	plain := newPod(always, newContainer("a"))
	afterInit := withInit(newPod(always, newContainer("a")), newContainer("init"))
	afterSidecar := withInit(newPod(always, newContainer("a")), newContainer("init"), newSidecar("log"))
	tests := map[string]struct {
		pod     *v1.Pod
		init    statuses
		regular statuses
		want    []string
	}{
		"no init containers":              {plain, nil, statuses{waitingStatus("a")}, []string{"a killed"}},
		"already terminated":              {plain, nil, statuses{exitedStatus("a", 0)}, []string{"a terminated"}},
		"running":                         {afterInit, statuses{waitingStatus("init")}, statuses{runningStatus("a")}, []string{"a killed"}},
		"crashed before":                  {afterInit, statuses{waitingStatus("init")}, statuses{crashedStatus("a", 1)}, []string{"a killed"}},
		"another container ran":           {afterInit, nil, statuses{exitedStatus("b", 1), waitingStatus("a")}, []string{"b terminated", "a killed"}},
		"init container succeeded":        {afterInit, statuses{exitedStatus("init", 0)}, statuses{waitingStatus("a")}, []string{"a killed"}},
		"init container succeeded before": {afterInit, statuses{crashedStatus("init", 0)}, statuses{waitingStatus("a")}, []string{"a killed"}},
		"init container failed":           {afterInit, statuses{exitedStatus("init", 1)}, statuses{waitingStatus("a")}, []string{"a open"}},
		"init container unknown":          {afterInit, nil, statuses{waitingStatus("a")}, []string{"a open"}},
		"started sidecar is last":         {afterSidecar, statuses{exitedStatus("init", 0), withStarted(runningStatus("log"))}, statuses{waitingStatus("a")}, []string{"a killed"}},
		"pending sidecar is last":         {afterSidecar, statuses{exitedStatus("init", 0), runningStatus("log")}, statuses{waitingStatus("a")}, []string{"a open"}},
		"statuses of another spec":        {afterInit, statuses{exitedStatus("other", 0)}, statuses{waitingStatus("a")}, []string{"a open"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The API server's copy has no evidence: only the given status counts.
			test.pod.Status = v1.PodStatus{}
			before := v1.PodStatus{InitContainerStatuses: test.init, ContainerStatuses: test.regular}
			kept := before.DeepCopy()
			requireEqual(t, terminations(derive.Terminate(test.pod, before).ContainerStatuses), test.want)
			requireEqual(t, &before, kept)
		})
	}
}

func TestSM19_TerminateInit(t *testing.T) {
	pod := withInit(newPod(always, newContainer("a")), newContainer("i1"), newContainer("i2"), newContainer("i3"))
	tests := map[string]struct {
		init statuses
		want []string
	}{
		"none started":   {statuses{waitingStatus("i1"), waitingStatus("i2")}, []string{"i1 killed", "i2 open"}},
		"second started": {statuses{exitedStatus("i1", 0), runningStatus("i2"), waitingStatus("i3")}, []string{"i1 terminated", "i2 killed", "i3 open"}},
		"gap is filled":  {statuses{waitingStatus("i1"), crashedStatus("i2", 1), waitingStatus("i3")}, []string{"i1 killed", "i2 killed", "i3 open"}},
		"no state":       {statuses{waitingStatus("i1"), withoutState("i2"), waitingStatus("i3")}, []string{"i1 killed", "i2 killed", "i3 open"}},
		"no statuses":    {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireEqual(t, terminations(derive.Terminate(pod, v1.PodStatus{InitContainerStatuses: test.init}).InitContainerStatuses), test.want)
		})
	}
}

func TestSM20_TerminatePhase(t *testing.T) {
	tests := map[string]struct {
		pod       *v1.Pod
		was, want v1.PodPhase
	}{
		"succeeded":          {newPod(always), v1.PodSucceeded, v1.PodSucceeded},
		"failed":             {newPod(always), v1.PodFailed, v1.PodFailed},
		"pending":            {newPod(always), v1.PodPending, v1.PodFailed},
		"running":            {newPod(always), v1.PodRunning, v1.PodFailed},
		"no phase":           {newPod(always), "", v1.PodFailed},
		"running static pod": {asStatic(newPod(always)), v1.PodRunning, v1.PodRunning},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireEqual(t, derive.Terminate(test.pod, v1.PodStatus{Phase: test.was}).Phase, test.want)
		})
	}
}

func TestSM17_TerminateUnknownPod(t *testing.T) {
	got := derive.Terminate(newPod(always, newContainer("a")), v1.PodStatus{})
	requireEqual(t, got, v1.PodStatus{Phase: v1.PodFailed})
}

// The kubelet leaves Ready unchanged until it writes, so that its cache and the API server disagree from then on (I10).
func TestSM70_TerminateNotReady(t *testing.T) {
	was := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{
		conditionAt(v1.PodScheduled, v1.ConditionTrue, noon), conditionAt(v1.PodReady, v1.ConditionTrue, noon), conditionAt(v1.ContainersReady, v1.ConditionTrue, noon),
	}}
	got := derive.CarryOver(&was, derive.Terminate(newPod(always), was), later)
	for _, conditionType := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		want := conditionAt(conditionType, v1.ConditionFalse, later)
		want.Reason, want.ObservedGeneration = "PodFailed", 7
		requireEqual(t, findCondition(t, got, conditionType), want)
	}
	requireEqual(t, findCondition(t, got, v1.PodScheduled), conditionAt(v1.PodScheduled, v1.ConditionTrue, noon))
	merged := derive.Merge(was, got, false, later)
	if !derive.Equal(&merged, &got) {
		t.Fatal("got a sent status that differs from the cached one")
	}
}

func TestSM31_NewlyTerminated(t *testing.T) {
	old := &v1.PodStatus{
		InitContainerStatuses: statuses{runningStatus("init")},
		ContainerStatuses:     statuses{exitedStatus("done", 0), runningStatus("dies"), waitingStatus("waits")},
	}
	next := &v1.PodStatus{
		InitContainerStatuses:      statuses{withReason(exitedStatus("init", 0), "Completed")},
		ContainerStatuses:          statuses{exitedStatus("done", 0), withReason(exitedStatus("dies", 137), "OOMKilled"), waitingStatus("waits"), exitedStatus("new", 2)},
		EphemeralContainerStatuses: statuses{exitedStatus("debug", 1)},
	}
	requireEqual(t, derive.NewlyTerminated(old, next), []derive.Termination{
		{Kind: derive.InitContainer, Name: "init", ExitCode: 0, Reason: "Completed"},
		{Kind: derive.RegularContainer, Name: "dies", ExitCode: 137, Reason: "OOMKilled"},
		{Kind: derive.RegularContainer, Name: "new", ExitCode: 2},
		{Kind: derive.EphemeralContainer, Name: "debug", ExitCode: 1},
	})
	if again := derive.NewlyTerminated(next, next); again != nil {
		t.Fatalf("got %v, want none", again)
	}
}
