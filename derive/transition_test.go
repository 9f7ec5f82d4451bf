package derive_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

func TestAContainerLeavesItsEndOnlyIfItMayRestart(t *testing.T) {
	const restart, restartAll = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	const ownNever = v1.ContainerRestartPolicyNever
	initOf := func(policy v1.RestartPolicy, init ...v1.Container) *v1.Pod {
		return withInit(newPod(policy, container("a")), init...)
	}
	regular := func(list ...v1.ContainerStatus) v1.PodStatus { return v1.PodStatus{ContainerStatuses: list} }
	initial := func(list ...v1.ContainerStatus) v1.PodStatus { return v1.PodStatus{InitContainerStatuses: list} }
	illegal, mismatch := derive.ErrIllegalTransition, derive.ErrInitMismatch
	tests := map[string]struct {
		pod       *v1.Pod
		old, next v1.PodStatus
		want      error
	}{
		"SM-39 Always": {newPod(always, container("a")), regular(exited("a", 0)), regular(running("a")), nil},
		"SM-39 Always does not even look at mismatches":    {newPod(always, container("a")), initial(running("x")), initial(), nil},
		"SM-40 OnFailure, failed":                          {newPod(onFailure, container("a")), regular(exited("a", 1)), regular(running("a")), nil},
		"SM-40 OnFailure, well":                            {newPod(onFailure, container("a")), regular(exited("a", 0)), regular(running("a")), illegal},
		"SM-40 OnFailure, failed, of a container's Never":  {newPod(onFailure, ruled("a", ownNever, restart)), regular(exited("a", 1)), regular(running("a")), nil},
		"SM-40 OnFailure, an init container that is well":  {initOf(onFailure, container("init")), initial(exited("init", 0)), initial(waiting("init")), illegal},
		"SM-40 OnFailure, an init container that failed":   {initOf(onFailure, container("init")), initial(exited("init", 1)), initial(running("init")), nil},
		"SM-41 Never, to running":                          {newPod(never, container("a")), regular(exited("a", 1)), regular(running("a")), illegal},
		"SM-41 Never, to waiting":                          {newPod(never, container("a")), regular(exited("a", 1)), regular(waiting("a")), illegal},
		"SM-41 Never, to no state":                         {newPod(never, container("a")), regular(exited("a", 1)), regular(stateless("a")), illegal},
		"SM-41 Never, an init container":                   {initOf(never, container("init")), initial(exited("init", 1)), initial(running("init")), illegal},
		"SM-41 Never, stays terminated":                    {newPod(never, container("a")), regular(exited("a", 1)), regular(exited("a", 1)), nil},
		"SM-41 Never, was not terminated":                  {newPod(never, container("a")), regular(running("a")), regular(waiting("a")), nil},
		"SM-42 a sidecar always may":                       {initOf(never, sidecar("log")), initial(exited("log", 0)), initial(running("log")), nil},
		"SM-43 a container's rule":                         {newPod(never, ruled("a", ownNever, restart)), regular(exited("a", 42)), regular(running("a")), nil},
		"SM-43 not for another code":                       {newPod(never, ruled("a", ownNever, restart)), regular(exited("a", 1)), regular(running("a")), illegal},
		"SM-43 an init container's rule":                   {initOf(never, ruled("init", ownNever, restart)), initial(exited("init", 42)), initial(running("init")), nil},
		"SM-44 a rule that restarts all frees all":         {newPod(never, container("a"), ruled("b", ownNever, restartAll)), regular(exited("a", 0)), regular(running("a")), nil},
		"SM-44 also an init container's":                   {initOf(never, ruled("init", ownNever, restartAll)), regular(exited("a", 0)), regular(running("a")), nil},
		"SM-45 an init status at another's place":          {initOf(never, container("i1"), container("i2")), initial(running("i2"), running("i1")), initial(), mismatch},
		"SM-45 one too many":                               {initOf(never, container("i1")), initial(running("i1"), running("i2")), initial(), mismatch},
		"SM-45 it is the old list that counts":             {initOf(never, container("i1"), container("i2")), initial(running("i1")), initial(running("i2")), nil},
		"SM-46 one that is missing":                        {newPod(never, container("a")), regular(exited("a", 1)), regular(), nil},
		"SM-46 an ephemeral container":                     {newPod(never, container("a")), v1.PodStatus{EphemeralContainerStatuses: statuses{exited("e", 1)}}, v1.PodStatus{EphemeralContainerStatuses: statuses{running("e")}}, nil},
		"SM-47 v1.16 judged regular containers like this":  {newPod(never, container("a"), container("b")), regular(exited("a", 0), running("b")), regular(exited("a", 0), exited("b", 0)), nil},
		"a container that is not in the spec by the pod's": {newPod(never), regular(exited("x", 1)), regular(running("x")), illegal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.CheckTransition(test.pod, &test.old, &test.next); !errors.Is(got, test.want) || (got == nil) != (test.want == nil) {
				t.Fatalf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestSM23TheErrorNamesThePodAndTheContainer(t *testing.T) {
	pod := newPod(never, container("a"))
	err := derive.CheckTransition(pod, &v1.PodStatus{ContainerStatuses: statuses{exited("a", 0)}}, &v1.PodStatus{ContainerStatuses: statuses{running("a")}})
	mustEqual(t, err.Error(),
		`container "a" of pod shop/web: a terminated container that must not restart would leave its terminated state`)
}
