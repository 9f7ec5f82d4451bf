package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func TestSM43ARegularContainerThatEndedIsStartedAgainAsItsPolicySays(t *testing.T) {
	rule := ruled("a", v1.ContainerRestartRuleActionRestart)
	notIn := ruled("a", v1.ContainerRestartRuleActionRestart)
	notIn.RestartPolicyRules[0].ExitCodes.Operator = v1.ContainerRestartRuleOnExitCodesOpNotIn
	empty := ruled("a", v1.ContainerRestartRuleActionRestart)
	empty.RestartPolicyRules[0].ExitCodes = nil
	ownOnly := ruled("a", v1.ContainerRestartRuleActionRestart)
	ownOnly.RestartPolicy = nil
	onFailure := withPolicy("a", v1.ContainerRestartPolicyOnFailure)
	never := withPolicy("a", v1.ContainerRestartPolicyNever)
	tests := map[string]struct {
		policy v1.RestartPolicy
		a      v1.Container
		code   int
		want   string
	}{
		"always, succeeded":               {v1.RestartPolicyAlways, container("a"), 0, "start regular a#1"},
		"no policy is always":             {"", container("a"), 0, "start regular a#1"},
		"on failure, failed":              {v1.RestartPolicyOnFailure, container("a"), 1, "start regular a#1"},
		"on failure, succeeded":           {v1.RestartPolicyOnFailure, container("a"), 0, ""},
		"never, failed":                   {v1.RestartPolicyNever, container("a"), 1, ""},
		"its own always":                  {v1.RestartPolicyNever, sidecar("a"), 0, "start regular a#1"},
		"its own on failure, failed":      {v1.RestartPolicyNever, onFailure, 1, "start regular a#1"},
		"its own on failure, succeeded":   {v1.RestartPolicyAlways, onFailure, 0, ""},
		"its own never":                   {v1.RestartPolicyAlways, never, 1, ""},
		"a rule for its code":             {v1.RestartPolicyAlways, rule, 42, "start regular a#1"},
		"a rule for another":              {v1.RestartPolicyAlways, rule, 41, ""},
		"a rule for all but its code":     {v1.RestartPolicyAlways, notIn, 42, ""},
		"a rule for all but another":      {v1.RestartPolicyAlways, notIn, 41, "start regular a#1"},
		"a rule without codes":            {v1.RestartPolicyAlways, empty, 42, ""},
		"a rule without an own policy":    {v1.RestartPolicyNever, ownOnly, 42, ""},
		"a rule before an own policy":     {v1.RestartPolicyNever, rule, 42, "start regular a#1"},
		"a rule that does not fit at all": {v1.RestartPolicyNever, rule, 0, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.policy, test.a, sidecar("b"))
			if got := told(next(pod, saw(ready, exited("a", test.code), running("b")), nil)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestRegularContainersAreKeptUpIndependently(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, container("a"), container("b"))
	never := newPod(v1.RestartPolicyNever, container("a"), container("b"))
	hash := plan.HashContainer(&pod.Spec.Containers[0])
	unknown, edited := instance("a", observed.Unknown), running("a", hashed(hash+1))
	newer := running("a", count(1), createdAgo(0))
	twins := newPod(v1.RestartPolicyAlways, container("a"), container("a"))
	check(t, map[string]decision{
		"none was started":               {pod, saw(ready), "start regular a#0, start regular b#0"},
		"both run":                       {pod, saw(ready, running("a"), running("b")), ""},
		"adopted by its hash (PW-53)":    {pod, saw(ready, running("a", hashed(hash)), running("b", hashed(0))), ""},
		"edited":                         {pod, saw(ready, edited, running("b")), "stop a#0 DefinitionChanged, start regular a#1"},
		"edited, never restarted":        {never, saw(ready, edited, running("b")), "stop a#0 DefinitionChanged, start regular a#1"},
		"edited after it had ended":      {never, saw(ready, exited("a", 0, hashed(hash+1)), running("b")), ""},
		"unknown":                        {pod, saw(ready, unknown, running("b")), "stop a#0 Unknown, start regular a#1"},
		"unknown, run once (PH-28)":      {never, saw(ready, unknown, running("b")), "stop a#0 Unknown"},
		"exited nobody knows how":        {never, saw(ready, instance("a", observed.Exited), running("b")), "stop a#0 Unknown"},
		"one of two done":                {never, saw(ready, exited("a", 0), running("b")), ""},
		"both done":                      {never, saw(ready, exited("a", 0), exited("b", 1)), "done"},
		"unknown, the other is done":     {never, saw(ready, unknown, exited("b", 1)), "done"},
		"two containers have one name":   {twins, saw(ready, unknown), "stop a#0 Unknown, start regular a#1"},
		"two instances run":              {pod, saw(ready, newer, running("a"), running("b")), "stop a#0 Stale"},
		"one runs that is not the pod's": {pod, saw(ready, running("a"), running("b"), running("c")), "stop c#0 Stale"},
	})
}

func TestPH42EphemeralContainersAreStartedOnceAndWaitForNobody(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, container("a")), container("i"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	check(t, map[string]decision{
		"never seen":           {pod, saw(ready, running("i")), "start ephemeral debug#0"},
		"before all else":      {pod, saw(ready), "start ephemeral debug#0, start init i#0"},
		"runs":                 {pod, saw(ready, running("debug"), running("a")), ""},
		"ended":                {pod, saw(ready, exited("debug", 1), running("a")), ""},
		"created":              {pod, saw(ready, instance("debug", observed.Created), running("a")), ""},
		"not in a new sandbox": {pod, nil, "sandbox 0, start init i#0"},
		"not when all is over": {newEphemeralJob(), saw(ready, exited("a", 0)), "done"},
	})
}

func newEphemeralJob() *v1.Pod {
	pod := newPod(v1.RestartPolicyNever, container("a"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	return pod
}

func TestPRB41AnUnhealthyContainerIsStoppedAndStartedUnlessItsPolicyIsNever(t *testing.T) {
	own, short := container("a"), int64(5)
	own.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &short}
	startup := withStartupProbe(container("a"))
	startup.StartupProbe.TerminationGracePeriodSeconds = &short
	tests := map[string]struct {
		pod   *v1.Pod
		said  string
		grace time.Duration
		cause plan.StopReason
		want  string
	}{
		"liveness": {
			newPod(v1.RestartPolicyOnFailure, container("a")), "",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe, will be restarted",
		},
		"with the prober's words": {
			newPod(v1.RestartPolicyAlways, container("a")), "Container a answers 500",
			30 * time.Second, plan.StopLivenessProbe, "Container a answers 500, will be restarted",
		},
		"with the whole message": {
			newPod(v1.RestartPolicyAlways, container("a")), "Container a failed liveness probe, will be restarted",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe, will be restarted",
		},
		"the probe's own grace": {
			newPod(v1.RestartPolicyAlways, own), "",
			5 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe, will be restarted",
		},
		"startup": {
			newPod(v1.RestartPolicyAlways, startup), "",
			5 * time.Second, plan.StopStartupProbe, "Container a failed startup probe, will be restarted",
		},
		"never": {
			newPod(v1.RestartPolicyNever, container("a")), "",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe",
		},
		"never by its own policy, and rules are not asked": {
			newPod(v1.RestartPolicyAlways, ruled("a", v1.ContainerRestartRuleActionRestart)), "",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.ComputeActions(plan.Input{
				Pod: test.pod, Observed: saw(ready, running("a")), Now: now,
				Unhealthy: map[observed.ContainerID]string{id("a#0"): test.said},
			})
			want := []plan.Stop{{
				ID: id("a#0"), Container: &test.pod.Spec.Containers[0], Grace: test.grace, Reason: test.cause, Message: test.want,
			}}
			if diff := cmp.Diff(want, got.Stop); diff != "" {
				t.Error(diff)
			}
			if restarts := strings.HasSuffix(test.want, "restarted"); restarts != (len(got.Start) == 1) {
				t.Errorf("started: %v", got.Start)
			}
		})
	}
}

func TestAContainerStoppedToBeReplacedIsStartedWhateverItsExitCode(t *testing.T) {
	pod := newPod(v1.RestartPolicyOnFailure, container("a"))
	stopped := plan.ComputeActions(plan.Input{
		Pod: pod, Observed: saw(ready, running("a")), Now: now, Unhealthy: map[observed.ContainerID]string{id("a#0"): ""},
	})
	seen := saw(ready, exited("a", 0))
	if got, want := told(next(pod, seen, stopped.Backoff)), "start regular a#1"; got != want {
		t.Errorf("its start failed, then %q, want %q", got, want)
	}
	seen = saw(ready, exited("a", 0, count(1), ran(time.Minute, time.Minute)), exited("a", 0))
	if got, want := told(next(pod, seen, stopped.Backoff)), "done"; got != want {
		t.Errorf("the new instance ended by itself, then %q, want %q", got, want)
	}
}

func TestPH19APodPastItsDeadlineFailsAndOneBeforeItIsLookedAtAgainThen(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, container("a"))
	pod.Spec.ActiveDeadlineSeconds = new(int64(60))
	tests := map[string]struct {
		started time.Time
		want    string
		wake    time.Time
	}{
		"not started":  {time.Time{}, "start regular a#0", time.Time{}},
		"before":       {now.Add(-59 * time.Second), "start regular a#0", now.Add(time.Second)},
		"at it":        {now.Add(-60 * time.Second), "fail DeadlineExceeded", time.Time{}},
		"long past it": {now.Add(-time.Hour), "fail DeadlineExceeded", time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.ComputeActions(plan.Input{Pod: pod, Observed: saw(ready), StartTime: test.started, Now: now})
			if told(got) != test.want || !got.RequeueAt.Equal(test.wake) {
				t.Errorf("got %q, wake %v; want %q, wake %v", told(got), got.RequeueAt, test.want, test.wake)
			}
		})
	}
}

func TestPH36ARestartCountGoesOnWhenTheRuntimeHasForgotten(t *testing.T) {
	ran := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error"}}
	lost := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown"}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	tests := map[string]struct {
		status v1.ContainerStatus
		want   int
	}{
		"it ran":                       {v1.ContainerStatus{RestartCount: 3, State: runs}, 4},
		"it had ended":                 {v1.ContainerStatus{RestartCount: 3, State: ran}, 4},
		"it waited for its next run":   {v1.ContainerStatus{RestartCount: 3, State: waits, LastTerminationState: ran}, 4},
		"its loss was counted (PH-29)": {v1.ContainerStatus{RestartCount: 3, State: waits, LastTerminationState: lost}, 3},
		"it never ran":                 {v1.ContainerStatus{State: waits}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(v1.RestartPolicyAlways, container("a")), sidecar("s"))
			test.status.Name = "a"
			pod.Status.ContainerStatuses = []v1.ContainerStatus{test.status}
			test.status.Name = "s"
			pod.Status.InitContainerStatuses = []v1.ContainerStatus{test.status}
			init := next(pod, saw(ready), nil)
			regular := next(pod, saw(ready, running("s")), nil)
			if got := []int{init.Start[0].RestartCount, regular.Start[0].RestartCount}; got[0] != test.want || got[1] != test.want {
				t.Errorf("got %v, want %d", got, test.want)
			}
		})
	}
}
