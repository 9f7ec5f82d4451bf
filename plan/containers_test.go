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

func TestComputeActions_InitContainers(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a"), newContainer("b")), newContainer("i"), newContainer("j"))
	runActionTests(t, map[string]actionTest{
		"none started":                      {pod, newRuntimePod(readySandbox), "start init i#0"},
		"first running":                     {pod, newRuntimePod(readySandbox, newRunning("i")), ""},
		"first created":                     {pod, newRuntimePod(readySandbox, newInstance("i", observed.Created)), "start init i#0"},
		"first succeeded":                   {pod, newRuntimePod(readySandbox, newExited("i", 0)), "start init j#0"},
		"first failed":                      {pod, newRuntimePod(readySandbox, newExited("i", 1)), "start init i#1"},
		"first unknown":                     {pod, newRuntimePod(readySandbox, newInstance("i", observed.Unknown)), "stop i#0 Unknown, start init i#1"},
		"second running":                    {pod, newRuntimePod(readySandbox, newExited("i", 0), newRunning("j")), ""},
		"second running, first record gone": {pod, newRuntimePod(readySandbox, newRunning("j")), ""},
		"all succeeded":                     {pod, newRuntimePod(readySandbox, newExited("i", 0), newExited("j", 0)), "start regular a#0, start regular b#0"},
		"last succeeded, first record gone": {pod, newRuntimePod(readySandbox, newExited("j", 0)), "start regular a#0, start regular b#0"},
		"all records gone":                  {pod, newRuntimePod(readySandbox, newRunning("a"), newRunning("b")), ""},
		"one regular container exists":      {pod, newRuntimePod(readySandbox, newRunning("a")), "start regular b#0"},
		"exited regular container exists":   {pod, newRuntimePod(readySandbox, newExited("a", 1)), "start regular a#1, start regular b#0"},
	})
}

func TestComputeActions_InitContainerFailed(t *testing.T) {
	with := func(policy v1.RestartPolicy, init v1.Container) *v1.Pod {
		return withInit(newPod(policy, newContainer("a")), init)
	}
	never, onFailure := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	rule := withRule("i", v1.ContainerRestartRuleActionRestart)
	failed, by42 := newRuntimePod(readySandbox, newExited("i", 1)), newRuntimePod(readySandbox, newExited("i", 42))
	lost := newRuntimePod(readySandbox, newInstance("i", observed.Unknown))
	runActionTests(t, map[string]actionTest{
		"Always":                      {with(v1.RestartPolicyAlways, newContainer("i")), failed, "start init i#1"},
		"OnFailure":                   {with(v1.RestartPolicyOnFailure, newContainer("i")), failed, "start init i#1"},
		"Never":                       {with(v1.RestartPolicyNever, newContainer("i")), failed, "done"},
		"Never, container OnFailure":  {with(v1.RestartPolicyNever, withPolicy("i", onFailure)), failed, "start init i#1"},
		"Always, container Never":     {with(v1.RestartPolicyAlways, withPolicy("i", never)), failed, "done"},
		"matching rule":               {with(v1.RestartPolicyNever, rule), by42, "start init i#1"},
		"rule for another exit code":  {with(v1.RestartPolicyNever, rule), failed, "done"},
		"unknown, Never":              {with(v1.RestartPolicyNever, newContainer("i")), lost, "done"},
		"unknown, pod initialized":    {with(v1.RestartPolicyNever, newContainer("i")), newRuntimePod(readySandbox, newInstance("i", observed.Unknown), newRunning("a")), ""},
		"unknown, rules do not apply": {with(v1.RestartPolicyNever, rule), lost, "done"},
	})
}

func TestPH16_OOMKilledInitContainer(t *testing.T) {
	killed := newRuntimePod(readySandbox, newExited("i", 0, withReason("OOMKilled")))
	runActionTests(t, map[string]actionTest{
		"Always":    {withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), newContainer("i")), killed, "start init i#1"},
		"OnFailure": {withInit(newPod(v1.RestartPolicyOnFailure, newContainer("a")), newContainer("i")), killed, "start init i#1"},
		"Never":     {withInit(newPod(v1.RestartPolicyNever, newContainer("a")), newContainer("i")), killed, "done"},
	})
}

func TestComputeActions_EditedInitContainer(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), newContainer("i"))
	runActionTests(t, map[string]actionTest{"edited": {pod, newRuntimePod(readySandbox, newRunning("i", withHash(1))), ""}})
}

func TestComputeActions_Sidecars(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyNever, newContainer("a")), newSidecar("s"), newContainer("i"), newSidecar("z"))
	runActionTests(t, map[string]actionTest{
		"none started":                      {pod, newRuntimePod(readySandbox), "start sidecar s#0"},
		"running":                           {pod, newRuntimePod(readySandbox, newRunning("s")), "start init i#0"},
		"exited before the next started":    {pod, newRuntimePod(readySandbox, newExited("s", 0)), "start sidecar s#1"},
		"exited next to an init container":  {pod, newRuntimePod(readySandbox, newExited("s", 1), newRunning("i")), "start sidecar s#1"},
		"created":                           {pod, newRuntimePod(readySandbox, newInstance("s", observed.Created), newRunning("i")), "start sidecar s#0"},
		"unknown":                           {pod, newRuntimePod(readySandbox, newInstance("s", observed.Unknown), newRunning("i")), "stop s#0 Unknown, start sidecar s#1"},
		"last one running":                  {pod, newRuntimePod(readySandbox, newRunning("s"), newExited("i", 0), newRunning("z")), "start regular a#0"},
		"exited before regular containers":  {pod, newRuntimePod(readySandbox, newRunning("s"), newExited("z", 1)), "start sidecar z#1"},
		"exited next to regular containers": {pod, newRuntimePod(readySandbox, newExited("s", 1), newRunning("z"), newRunning("a")), "start sidecar s#1"},
		"record gone":                       {pod, newRuntimePod(readySandbox, newRunning("z"), newRunning("a")), "start sidecar s#0"},
		"edited":                            {pod, newRuntimePod(readySandbox, newRunning("s", withHash(1)), newRunning("z"), newRunning("a")), "stop s#0 DefinitionChanged, start sidecar s#1"},
		"all done":                          {pod, newRuntimePod(readySandbox, newExited("s", 1), newRunning("z"), newExited("a", 0)), "done"},
		"init container failed":             {pod, newRuntimePod(readySandbox, newRunning("s"), newExited("i", 1)), "done"},
	})
}

func TestComputeActions_SidecarStartupProbe(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), withStartupProbe(newSidecar("s")), newContainer("i"))
	runtimePod := newRuntimePod(readySandbox, newRunning("s"))
	tests := map[string]struct {
		started   bool
		unhealthy bool
		want      string
	}{
		"not started":           {want: ""},
		"started":               {started: true, want: "start init i#0"},
		"startup probe failed":  {unhealthy: true, want: "stop s#0 StartupProbe, start sidecar s#1"},
		"liveness probe failed": {started: true, unhealthy: true, want: "stop s#0 LivenessProbe, start sidecar s#1, start init i#0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Pod: pod, Observed: runtimePod, Now: now, Started: map[observed.ContainerID]bool{containerID("s#0"): test.started}}
			if test.unhealthy {
				in.Unhealthy = map[observed.ContainerID]string{containerID("s#0"): ""}
			}
			if got := describe(plan.ComputeActions(in)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestComputeActions_InitContainerBackoff(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), newSidecar("s"), newContainer("i"))
	runtimePod := newRuntimePod(readySandbox, newRunning("s"), newExited("i", 1, restartCount(1), ran(time.Second, time.Second)))
	runActionTests(t, map[string]actionTest{"10 s": {pod, runtimePod, "i waits 9s"}})
}

func TestSM43_RegularContainerExited(t *testing.T) {
	rule := withRule("a", v1.ContainerRestartRuleActionRestart)
	notIn := withRule("a", v1.ContainerRestartRuleActionRestart)
	notIn.RestartPolicyRules[0].ExitCodes.Operator = v1.ContainerRestartRuleOnExitCodesOpNotIn
	empty := withRule("a", v1.ContainerRestartRuleActionRestart)
	empty.RestartPolicyRules[0].ExitCodes = nil
	ownOnly := withRule("a", v1.ContainerRestartRuleActionRestart)
	ownOnly.RestartPolicy = nil
	onFailure := withPolicy("a", v1.ContainerRestartPolicyOnFailure)
	never := withPolicy("a", v1.ContainerRestartPolicyNever)
	tests := map[string]struct {
		policy v1.RestartPolicy
		a      v1.Container
		code   int
		want   string
	}{
		"Always, succeeded":              {v1.RestartPolicyAlways, newContainer("a"), 0, "start regular a#1"},
		"no policy":                      {"", newContainer("a"), 0, "start regular a#1"},
		"OnFailure, failed":              {v1.RestartPolicyOnFailure, newContainer("a"), 1, "start regular a#1"},
		"OnFailure, succeeded":           {v1.RestartPolicyOnFailure, newContainer("a"), 0, ""},
		"Never, failed":                  {v1.RestartPolicyNever, newContainer("a"), 1, ""},
		"container Always":               {v1.RestartPolicyNever, newSidecar("a"), 0, "start regular a#1"},
		"container OnFailure, failed":    {v1.RestartPolicyNever, onFailure, 1, "start regular a#1"},
		"container OnFailure, succeeded": {v1.RestartPolicyAlways, onFailure, 0, ""},
		"container Never":                {v1.RestartPolicyAlways, never, 1, ""},
		"rule In, matches":               {v1.RestartPolicyAlways, rule, 42, "start regular a#1"},
		"rule In, other exit code":       {v1.RestartPolicyAlways, rule, 41, ""},
		"rule NotIn, other exit code":    {v1.RestartPolicyAlways, notIn, 42, ""},
		"rule NotIn, matches":            {v1.RestartPolicyAlways, notIn, 41, "start regular a#1"},
		"rule without exit codes":        {v1.RestartPolicyAlways, empty, 42, ""},
		"rule without container policy":  {v1.RestartPolicyNever, ownOnly, 42, ""},
		"rule before policies":           {v1.RestartPolicyNever, rule, 42, "start regular a#1"},
		"rule In, succeeded":             {v1.RestartPolicyNever, rule, 0, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.policy, test.a, newSidecar("b"))
			if got := describe(compute(pod, newRuntimePod(readySandbox, newExited("a", test.code), newRunning("b")), nil)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestComputeActions_RegularContainers(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, newContainer("a"), newContainer("b"))
	never := newPod(v1.RestartPolicyNever, newContainer("a"), newContainer("b"))
	hash := plan.HashContainer(&pod.Spec.Containers[0])
	unknown, edited := newInstance("a", observed.Unknown), newRunning("a", withHash(hash+1))
	newer := newRunning("a", restartCount(1), createdAgo(0))
	twins := newPod(v1.RestartPolicyAlways, newContainer("a"), newContainer("a"))
	runActionTests(t, map[string]actionTest{
		"none started":               {pod, newRuntimePod(readySandbox), "start regular a#0, start regular b#0"},
		"both running":               {pod, newRuntimePod(readySandbox, newRunning("a"), newRunning("b")), ""},
		"adopted by hash (PW-53)":    {pod, newRuntimePod(readySandbox, newRunning("a", withHash(hash)), newRunning("b", withHash(0))), ""},
		"edited":                     {pod, newRuntimePod(readySandbox, edited, newRunning("b")), "stop a#0 DefinitionChanged, start regular a#1"},
		"edited, Never":              {never, newRuntimePod(readySandbox, edited, newRunning("b")), "stop a#0 DefinitionChanged, start regular a#1"},
		"edited after exit":          {never, newRuntimePod(readySandbox, newExited("a", 0, withHash(hash+1)), newRunning("b")), ""},
		"unknown":                    {pod, newRuntimePod(readySandbox, unknown, newRunning("b")), "stop a#0 Unknown, start regular a#1"},
		"unknown, Never (PH-28)":     {never, newRuntimePod(readySandbox, unknown, newRunning("b")), "stop a#0 Unknown"},
		"exited without exit record": {never, newRuntimePod(readySandbox, newInstance("a", observed.Exited), newRunning("b")), "stop a#0 Unknown"},
		"one of two done":            {never, newRuntimePod(readySandbox, newExited("a", 0), newRunning("b")), ""},
		"both done":                  {never, newRuntimePod(readySandbox, newExited("a", 0), newExited("b", 1)), "done"},
		"unknown, other done":        {never, newRuntimePod(readySandbox, unknown, newExited("b", 1)), "done"},
		"same name twice":            {twins, newRuntimePod(readySandbox, unknown), "stop a#0 Unknown, start regular a#1"},
		"two instances running":      {pod, newRuntimePod(readySandbox, newer, newRunning("a"), newRunning("b")), "stop a#0 Stale"},
		"container not in the pod":   {pod, newRuntimePod(readySandbox, newRunning("a"), newRunning("b"), newRunning("c")), "stop c#0 Stale"},
	})
}

func TestPH42_EphemeralContainers(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), newContainer("i"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	runActionTests(t, map[string]actionTest{
		"never started":          {pod, newRuntimePod(readySandbox, newRunning("i")), "start ephemeral debug#0"},
		"before init containers": {pod, newRuntimePod(readySandbox), "start ephemeral debug#0, start init i#0"},
		"running":                {pod, newRuntimePod(readySandbox, newRunning("debug"), newRunning("a")), ""},
		"exited":                 {pod, newRuntimePod(readySandbox, newExited("debug", 1), newRunning("a")), ""},
		"created":                {pod, newRuntimePod(readySandbox, newInstance("debug", observed.Created), newRunning("a")), ""},
		"no sandbox":             {pod, nil, "sandbox 0, start init i#0"},
		"all done":               {newEphemeralJob(), newRuntimePod(readySandbox, newExited("a", 0)), "done"},
	})
}

func newEphemeralJob() *v1.Pod {
	pod := newPod(v1.RestartPolicyNever, newContainer("a"))
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	return pod
}

func TestPRB41_UnhealthyContainer(t *testing.T) {
	own, short := newContainer("a"), int64(5)
	own.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &short}
	startup := withStartupProbe(newContainer("a"))
	startup.StartupProbe.TerminationGracePeriodSeconds = &short
	tests := map[string]struct {
		pod     *v1.Pod
		message string
		grace   time.Duration
		reason  plan.StopReason
		want    string
	}{
		"liveness": {
			newPod(v1.RestartPolicyOnFailure, newContainer("a")), "",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe, will be restarted",
		},
		"prober's message": {
			newPod(v1.RestartPolicyAlways, newContainer("a")), "Container a answers 500",
			30 * time.Second, plan.StopLivenessProbe, "Container a answers 500, will be restarted",
		},
		"complete message": {
			newPod(v1.RestartPolicyAlways, newContainer("a")), "Container a failed liveness probe, will be restarted",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe, will be restarted",
		},
		"probe's grace period": {
			newPod(v1.RestartPolicyAlways, own), "",
			5 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe, will be restarted",
		},
		"startup": {
			newPod(v1.RestartPolicyAlways, startup), "",
			5 * time.Second, plan.StopStartupProbe, "Container a failed startup probe, will be restarted",
		},
		"Never": {
			newPod(v1.RestartPolicyNever, newContainer("a")), "",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe",
		},
		"container Never, rules do not apply": {
			newPod(v1.RestartPolicyAlways, withRule("a", v1.ContainerRestartRuleActionRestart)), "",
			30 * time.Second, plan.StopLivenessProbe, "Container a failed liveness probe",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.ComputeActions(plan.Input{
				Pod: test.pod, Observed: newRuntimePod(readySandbox, newRunning("a")), Now: now,
				Unhealthy: map[observed.ContainerID]string{containerID("a#0"): test.message},
			})
			want := []plan.Stop{{
				ID: containerID("a#0"), Container: &test.pod.Spec.Containers[0], Grace: test.grace, Reason: test.reason, Message: test.want,
			}}
			if diff := cmp.Diff(want, got.Stop); diff != "" {
				t.Error(diff)
			}
			if restarts := strings.HasSuffix(test.want, "restarted"); restarts != (len(got.Start) == 1) {
				t.Errorf("got starts %v, want %v", got.Start, restarts)
			}
		})
	}
}

func TestComputeActions_PendingRestart(t *testing.T) {
	pod := newPod(v1.RestartPolicyOnFailure, newContainer("a"))
	stopped := plan.ComputeActions(plan.Input{
		Pod: pod, Observed: newRuntimePod(readySandbox, newRunning("a")), Now: now, Unhealthy: map[observed.ContainerID]string{containerID("a#0"): ""},
	})
	runtimePod := newRuntimePod(readySandbox, newExited("a", 0))
	if got, want := describe(compute(pod, runtimePod, stopped.Backoff)), "start regular a#1"; got != want {
		t.Errorf("after a failed start: got %q, want %q", got, want)
	}
	runtimePod = newRuntimePod(readySandbox, newExited("a", 0, restartCount(1), ran(time.Minute, time.Minute)), newExited("a", 0))
	if got, want := describe(compute(pod, runtimePod, stopped.Backoff)), "done"; got != want {
		t.Errorf("after an exit of the new instance: got %q, want %q", got, want)
	}
}

func TestPH19_ActiveDeadline(t *testing.T) {
	pod := newPod(v1.RestartPolicyAlways, newContainer("a"))
	pod.Spec.ActiveDeadlineSeconds = new(int64(60))
	tests := map[string]struct {
		started time.Time
		want    string
		wake    time.Time
	}{
		"not started":     {time.Time{}, "start regular a#0", time.Time{}},
		"before":          {now.Add(-59 * time.Second), "start regular a#0", now.Add(time.Second)},
		"at the deadline": {now.Add(-60 * time.Second), "evict DeadlineExceeded", time.Time{}},
		"long after":      {now.Add(-time.Hour), "evict DeadlineExceeded", time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.ComputeActions(plan.Input{Pod: pod, Observed: newRuntimePod(readySandbox), StartTime: test.started, Now: now})
			if describe(got) != test.want || !got.RequeueAt.Equal(test.wake) {
				t.Errorf("got %q, requeue at %v; want %q, requeue at %v", describe(got), got.RequeueAt, test.want, test.wake)
			}
		})
	}
}

func TestPH36_RestartCountFromStatus(t *testing.T) {
	ran := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error"}}
	lost := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown"}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	tests := map[string]struct {
		status v1.ContainerStatus
		want   int
	}{
		"running":                   {v1.ContainerStatus{RestartCount: 3, State: runs}, 4},
		"terminated":                {v1.ContainerStatus{RestartCount: 3, State: ran}, 4},
		"waiting after termination": {v1.ContainerStatus{RestartCount: 3, State: waits, LastTerminationState: ran}, 4},
		"lost and counted (PH-29)":  {v1.ContainerStatus{RestartCount: 3, State: waits, LastTerminationState: lost}, 3},
		"never ran":                 {v1.ContainerStatus{State: waits}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(v1.RestartPolicyAlways, newContainer("a")), newSidecar("s"))
			test.status.Name = "a"
			pod.Status.ContainerStatuses = []v1.ContainerStatus{test.status}
			test.status.Name = "s"
			pod.Status.InitContainerStatuses = []v1.ContainerStatus{test.status}
			init := compute(pod, newRuntimePod(readySandbox), nil)
			regular := compute(pod, newRuntimePod(readySandbox, newRunning("s")), nil)
			if got := []int{init.Start[0].RestartCount, regular.Start[0].RestartCount}; got[0] != test.want || got[1] != test.want {
				t.Errorf("got %v, want %d", got, test.want)
			}
		})
	}
}
