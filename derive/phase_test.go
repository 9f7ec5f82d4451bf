package derive_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
)

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

type statuses = []v1.ContainerStatus

func TestPhaseFollowsTheContainers(t *testing.T) {
	const restart, restartAll = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	initThen := func(policy v1.RestartPolicy) *v1.Pod {
		return withInit(newPod(policy, container("a")), container("init"))
	}
	besideSidecar := func(policy v1.RestartPolicy) *v1.Pod {
		return withInit(newPod(policy, container("a")), sidecar("log"))
	}
	two := func(policy v1.RestartPolicy) *v1.Pod { return newPod(policy, container("a"), container("b")) }
	ruledInit := func(action v1.ContainerRestartRuleAction) *v1.Pod {
		return withInit(newPod(never, container("a")), ruled("init", v1.ContainerRestartPolicyNever, action))
	}
	tests := map[string]struct {
		pod                      *v1.Pod
		statuses                 statuses
		terminating, initialized bool
		want                     v1.PodPhase
	}{
		"PH-1 no status of an init container is pending":        {pod: initThen(never), statuses: statuses{exited("a", 0)}, want: v1.PodPending},
		"PH-1 a running init container is pending":              {pod: initThen(never), statuses: statuses{running("init"), exited("a", 0)}, want: v1.PodPending},
		"PH-1 an init container without a state is pending":     {pod: initThen(never), statuses: statuses{stateless("init"), exited("a", 0)}, want: v1.PodPending},
		"PH-1 a waiting init container is pending":              {pod: initThen(never), statuses: statuses{waiting("init"), exited("a", 0)}, want: v1.PodPending},
		"PH-1 one that ended with 0 counts for nothing":         {pod: initThen(never), statuses: statuses{exited("init", 0), running("a")}, want: v1.PodRunning},
		"PH-1 waiting after it ended with 0 counts for nothing": {pod: initThen(never), statuses: statuses{crashed("init", 0), running("a")}, want: v1.PodRunning},
		"PH-1 a failed one that is retried is not fatal":        {pod: initThen(onFailure), statuses: statuses{crashed("init", 1), running("a")}, want: v1.PodRunning},
		"PH-2 no status of a sidecar is unknown":                {pod: besideSidecar(always), statuses: statuses{running("a")}, want: v1.PodPending},
		"PH-2 a sidecar that has not started is pending":        {pod: besideSidecar(always), statuses: statuses{running("log"), running("a")}, want: v1.PodPending},
		"PH-2 not if a regular container was created":           {pod: besideSidecar(always), statuses: statuses{running("log"), running("a")}, initialized: true, want: v1.PodRunning},
		"PH-2 a started sidecar runs":                           {pod: besideSidecar(always), statuses: statuses{started(running("log")), running("a")}, want: v1.PodRunning},
		"PH-2 a terminated sidecar is ignored":                  {pod: besideSidecar(never), statuses: statuses{exited("log", 1), exited("a", 0)}, want: v1.PodSucceeded},
		"PH-2 a crashed sidecar is ignored":                     {pod: besideSidecar(always), statuses: statuses{crashed("log", 1), running("a")}, want: v1.PodRunning},
		"PH-2 a waiting sidecar is pending":                     {pod: besideSidecar(always), statuses: statuses{waiting("log"), running("a")}, initialized: true, want: v1.PodPending},
		"PH-2 a sidecar without a state is unknown":             {pod: besideSidecar(always), statuses: statuses{stateless("log"), running("a")}, initialized: true, want: v1.PodPending},
		"PH-3 no status of a regular container is unknown":      {pod: two(always), statuses: statuses{running("a")}, want: v1.PodPending},
		"PH-3 one without a state is unknown":                   {pod: two(always), statuses: statuses{running("a"), stateless("b")}, want: v1.PodPending},
		"PH-3 one that waits for its first run is waiting":      {pod: two(always), statuses: statuses{running("a"), waiting("b")}, want: v1.PodPending},
		"PH-3 one that waits for its next run has stopped":      {pod: two(always), statuses: statuses{running("a"), crashed("b", 1)}, want: v1.PodRunning},
		"PH-3 waiting after code 0 is never a success":          {pod: two(never), statuses: statuses{exited("a", 0), crashed("b", 0)}, want: v1.PodFailed},
		"PH-4 an end for the restart of all is restartable":     {pod: newPod(never, container("a")), statuses: statuses{reasoned(exited("a", 137), "RestartingAllContainers")}, want: v1.PodRunning},
		"PH-4 also of an init container":                        {pod: initThen(never), statuses: statuses{reasoned(crashed("init", 137), "RestartingAllContainers"), running("a")}, want: v1.PodRunning},
		"PH-5 an ephemeral container means nothing":             {pod: newPod(never, container("a")), statuses: statuses{exited("a", 0), running("debug")}, want: v1.PodSucceeded},
		"PH-6 an init container that may not retry":             {pod: initThen(never), statuses: statuses{exited("init", 1), waiting("a")}, want: v1.PodFailed},
		"PH-6 its own rule may let it retry":                    {pod: ruledInit(restart), statuses: statuses{exited("init", 42), waiting("a")}, want: v1.PodPending},
		"PH-6 but not for another code":                         {pod: ruledInit(restart), statuses: statuses{exited("init", 1), waiting("a")}, want: v1.PodFailed},
		"PH-6 a rule for all containers lets it retry too":      {pod: ruledInit(restartAll), statuses: statuses{exited("init", 42), waiting("a")}, want: v1.PodPending},
		"PH-6 failure comes before pending":                     {pod: withInit(newPod(never, container("a")), container("init"), container("next")), statuses: statuses{exited("init", 1), waiting("next"), waiting("a")}, want: v1.PodFailed},
		"PH-7 waiting comes before running":                     {pod: two(always), statuses: statuses{waiting("a"), running("b")}, want: v1.PodPending},
		"PH-8 a sidecar alone keeps a finished job running":     {pod: besideSidecar(never), statuses: statuses{started(running("log")), exited("a", 0)}, want: v1.PodRunning},
		"PH-9 a deleted pod whose processes exit 0 succeeds":    {pod: newPod(always, container("a")), statuses: statuses{exited("a", 0)}, terminating: true, want: v1.PodSucceeded},
		"PH-9 with one failure it fails":                        {pod: two(always), statuses: statuses{exited("a", 0), exited("b", 1)}, terminating: true, want: v1.PodFailed},
		"PH-9 not while one runs":                               {pod: two(never), statuses: statuses{exited("a", 0), running("b")}, terminating: true, want: v1.PodRunning},
		"PH-9 not if one is unknown":                            {pod: two(never), statuses: statuses{exited("a", 0)}, terminating: true, want: v1.PodPending},
		"PH-10 a static pod goes on by its policy":              {pod: static(newPod(always, container("a"))), statuses: statuses{exited("a", 0)}, terminating: true, want: v1.PodRunning},
		"PH-10 all done": {pod: two(onFailure), statuses: statuses{exited("a", 0), exited("b", 0)}, want: v1.PodSucceeded},
		"PH-10 a container's policy overrides the pod's": {pod: newPod(never, ruled("a", v1.ContainerRestartPolicyAlways, restart)), statuses: statuses{exited("a", 0)}, want: v1.PodRunning},
		"PH-10 in both directions":                       {pod: newPod(always, ruled("a", v1.ContainerRestartPolicyNever, restart)), statuses: statuses{exited("a", 1)}, want: v1.PodFailed},
		"PH-11 nothing at all is pending":                {pod: newPod(always), want: v1.PodPending},
		"PH-12 all in CrashLoopBackOff still runs":       {pod: two(always), statuses: statuses{crashed("a", 1), crashed("b", 1)}, want: v1.PodRunning},
		"PH-13 Never, one done and one running":          {pod: two(never), statuses: statuses{exited("a", 0), running("b")}, want: v1.PodRunning},
		"PH-13 Never, both done and one failed":          {pod: two(never), statuses: statuses{exited("a", 0), exited("b", 1)}, want: v1.PodFailed},
		"PH-14 OnFailure retries the failed one":         {pod: two(onFailure), statuses: statuses{exited("a", 0), exited("b", 1)}, want: v1.PodRunning},
		"an unset policy is Always":                      {pod: newPod("", container("a")), statuses: statuses{exited("a", 1)}, want: v1.PodRunning},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.Phase(test.pod, test.statuses, test.terminating, test.initialized); got != test.want {
				t.Errorf("phase %s, want %s", got, test.want)
			}
			slices.Reverse(test.statuses)
			if got := derive.Phase(test.pod, test.statuses, test.terminating, test.initialized); got != test.want {
				t.Errorf("with the statuses reversed: phase %s, want %s", got, test.want)
			}
		})
	}
}
