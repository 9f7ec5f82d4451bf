package derive_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

type statuses = []v1.ContainerStatus

func TestPhase(t *testing.T) {
	const restart, restartAll = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	initThen := func(policy v1.RestartPolicy) *v1.Pod {
		return withInit(newPod(policy, newContainer("a")), newContainer("init"))
	}
	besideSidecar := func(policy v1.RestartPolicy) *v1.Pod {
		return withInit(newPod(policy, newContainer("a")), newSidecar("log"))
	}
	two := func(policy v1.RestartPolicy) *v1.Pod { return newPod(policy, newContainer("a"), newContainer("b")) }
	ruledInit := func(action v1.ContainerRestartRuleAction) *v1.Pod {
		return withInit(newPod(never, newContainer("a")), withRule("init", v1.ContainerRestartPolicyNever, action))
	}
	tests := map[string]struct {
		pod                      *v1.Pod
		statuses                 statuses
		terminating, initialized bool
		want                     v1.PodPhase
	}{
		"PH-1 init container missing":                    {pod: initThen(never), statuses: statuses{exitedStatus("a", 0)}, want: v1.PodPending},
		"PH-1 init container running":                    {pod: initThen(never), statuses: statuses{runningStatus("init"), exitedStatus("a", 0)}, want: v1.PodPending},
		"PH-1 init container without state":              {pod: initThen(never), statuses: statuses{withoutState("init"), exitedStatus("a", 0)}, want: v1.PodPending},
		"PH-1 init container waiting":                    {pod: initThen(never), statuses: statuses{waitingStatus("init"), exitedStatus("a", 0)}, want: v1.PodPending},
		"PH-1 init container succeeded":                  {pod: initThen(never), statuses: statuses{exitedStatus("init", 0), runningStatus("a")}, want: v1.PodRunning},
		"PH-1 init container waits after success":        {pod: initThen(never), statuses: statuses{crashedStatus("init", 0), runningStatus("a")}, want: v1.PodRunning},
		"PH-1 init container retries":                    {pod: initThen(onFailure), statuses: statuses{crashedStatus("init", 1), runningStatus("a")}, want: v1.PodRunning},
		"PH-2 sidecar missing":                           {pod: besideSidecar(always), statuses: statuses{runningStatus("a")}, want: v1.PodPending},
		"PH-2 sidecar not started":                       {pod: besideSidecar(always), statuses: statuses{runningStatus("log"), runningStatus("a")}, want: v1.PodPending},
		"PH-2 sidecar not started, initialized":          {pod: besideSidecar(always), statuses: statuses{runningStatus("log"), runningStatus("a")}, initialized: true, want: v1.PodRunning},
		"PH-2 sidecar started":                           {pod: besideSidecar(always), statuses: statuses{withStarted(runningStatus("log")), runningStatus("a")}, want: v1.PodRunning},
		"PH-2 sidecar terminated":                        {pod: besideSidecar(never), statuses: statuses{exitedStatus("log", 1), exitedStatus("a", 0)}, want: v1.PodSucceeded},
		"PH-2 sidecar crashed":                           {pod: besideSidecar(always), statuses: statuses{crashedStatus("log", 1), runningStatus("a")}, want: v1.PodRunning},
		"PH-2 sidecar waiting":                           {pod: besideSidecar(always), statuses: statuses{waitingStatus("log"), runningStatus("a")}, initialized: true, want: v1.PodPending},
		"PH-2 sidecar without state":                     {pod: besideSidecar(always), statuses: statuses{withoutState("log"), runningStatus("a")}, initialized: true, want: v1.PodPending},
		"PH-3 regular container missing":                 {pod: two(always), statuses: statuses{runningStatus("a")}, want: v1.PodPending},
		"PH-3 regular container without state":           {pod: two(always), statuses: statuses{runningStatus("a"), withoutState("b")}, want: v1.PodPending},
		"PH-3 regular container waits for first run":     {pod: two(always), statuses: statuses{runningStatus("a"), waitingStatus("b")}, want: v1.PodPending},
		"PH-3 regular container waits for next run":      {pod: two(always), statuses: statuses{runningStatus("a"), crashedStatus("b", 1)}, want: v1.PodRunning},
		"PH-3 waits after exit code 0":                   {pod: two(never), statuses: statuses{exitedStatus("a", 0), crashedStatus("b", 0)}, want: v1.PodFailed},
		"PH-4 stopped for restart of all":                {pod: newPod(never, newContainer("a")), statuses: statuses{withReason(exitedStatus("a", 137), "RestartingAllContainers")}, want: v1.PodRunning},
		"PH-4 init container stopped for restart of all": {pod: initThen(never), statuses: statuses{withReason(crashedStatus("init", 137), "RestartingAllContainers"), runningStatus("a")}, want: v1.PodRunning},
		"PH-5 ephemeral container":                       {pod: newPod(never, newContainer("a")), statuses: statuses{exitedStatus("a", 0), runningStatus("debug")}, want: v1.PodSucceeded},
		"PH-6 init container failed":                     {pod: initThen(never), statuses: statuses{exitedStatus("init", 1), waitingStatus("a")}, want: v1.PodFailed},
		"PH-6 rule restarts init container":              {pod: ruledInit(restart), statuses: statuses{exitedStatus("init", 42), waitingStatus("a")}, want: v1.PodPending},
		"PH-6 rule for another exit code":                {pod: ruledInit(restart), statuses: statuses{exitedStatus("init", 1), waitingStatus("a")}, want: v1.PodFailed},
		"PH-6 rule restarts all":                         {pod: ruledInit(restartAll), statuses: statuses{exitedStatus("init", 42), waitingStatus("a")}, want: v1.PodPending},
		"PH-6 failed before pending":                     {pod: withInit(newPod(never, newContainer("a")), newContainer("init"), newContainer("next")), statuses: statuses{exitedStatus("init", 1), waitingStatus("next"), waitingStatus("a")}, want: v1.PodFailed},
		"PH-7 waiting before running":                    {pod: two(always), statuses: statuses{waitingStatus("a"), runningStatus("b")}, want: v1.PodPending},
		"PH-8 sidecar runs after the job":                {pod: besideSidecar(never), statuses: statuses{withStarted(runningStatus("log")), exitedStatus("a", 0)}, want: v1.PodRunning},
		"PH-9 terminating, exit code 0":                  {pod: newPod(always, newContainer("a")), statuses: statuses{exitedStatus("a", 0)}, terminating: true, want: v1.PodSucceeded},
		"PH-9 terminating, one failed":                   {pod: two(always), statuses: statuses{exitedStatus("a", 0), exitedStatus("b", 1)}, terminating: true, want: v1.PodFailed},
		"PH-9 terminating, one running":                  {pod: two(never), statuses: statuses{exitedStatus("a", 0), runningStatus("b")}, terminating: true, want: v1.PodRunning},
		"PH-9 terminating, one unknown":                  {pod: two(never), statuses: statuses{exitedStatus("a", 0)}, terminating: true, want: v1.PodPending},
		"PH-10 terminating static pod":                   {pod: asStatic(newPod(always, newContainer("a"))), statuses: statuses{exitedStatus("a", 0)}, terminating: true, want: v1.PodRunning},
		"PH-10 all succeeded":                            {pod: two(onFailure), statuses: statuses{exitedStatus("a", 0), exitedStatus("b", 0)}, want: v1.PodSucceeded},
		"PH-10 container policy Always":                  {pod: newPod(never, withRule("a", v1.ContainerRestartPolicyAlways, restart)), statuses: statuses{exitedStatus("a", 0)}, want: v1.PodRunning},
		"PH-10 container policy Never":                   {pod: newPod(always, withRule("a", v1.ContainerRestartPolicyNever, restart)), statuses: statuses{exitedStatus("a", 1)}, want: v1.PodFailed},
		"PH-11 no containers":                            {pod: newPod(always), want: v1.PodPending},
		"PH-12 all in CrashLoopBackOff":                  {pod: two(always), statuses: statuses{crashedStatus("a", 1), crashedStatus("b", 1)}, want: v1.PodRunning},
		"PH-13 Never, one running":                       {pod: two(never), statuses: statuses{exitedStatus("a", 0), runningStatus("b")}, want: v1.PodRunning},
		"PH-13 Never, one failed":                        {pod: two(never), statuses: statuses{exitedStatus("a", 0), exitedStatus("b", 1)}, want: v1.PodFailed},
		"PH-14 OnFailure, one failed":                    {pod: two(onFailure), statuses: statuses{exitedStatus("a", 0), exitedStatus("b", 1)}, want: v1.PodRunning},
		"unset policy":                                   {pod: newPod("", newContainer("a")), statuses: statuses{exitedStatus("a", 1)}, want: v1.PodRunning},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.Phase(test.pod, test.statuses, test.terminating, test.initialized); got != test.want {
				t.Errorf("got phase %s, want %s", got, test.want)
			}
			slices.Reverse(test.statuses)
			if got := derive.Phase(test.pod, test.statuses, test.terminating, test.initialized); got != test.want {
				t.Errorf("reversed statuses: got phase %s, want %s", got, test.want)
			}
		})
	}
}

func newPhaseStatus(phase v1.PodPhase, reason string) v1.PodStatus {
	status := v1.PodStatus{Phase: phase, Reason: reason}
	if reason != "" {
		status.Message = "about " + reason
	}
	return status
}

func TestStatus_PublishedPhase(t *testing.T) {
	evicted := &derive.Eviction{Reason: "Evicted", Message: "about Evicted"}
	runs, succeeds := newInstance("a", 1, observed.Running), newExited("a", 1, 0)
	tests := map[string]struct {
		api, previous v1.PodStatus
		seen          observed.Container
		evict         *derive.Eviction
		want          v1.PodStatus
	}{
		"PH-17 published terminal phase":      {previous: newPhaseStatus(v1.PodFailed, "X"), seen: runs, want: newPhaseStatus(v1.PodFailed, "X")},
		"PH-17 terminal phase in the API":     {api: newPhaseStatus(v1.PodFailed, "X"), previous: newPhaseStatus(v1.PodRunning, ""), seen: runs, want: newPhaseStatus(v1.PodFailed, "X")},
		"PH-17 no other terminal phase":       {previous: newPhaseStatus(v1.PodFailed, "Evicted"), seen: succeeds, want: newPhaseStatus(v1.PodFailed, "Evicted")},
		"PH-18 reason and message kept":       {previous: newPhaseStatus(v1.PodRunning, "X"), seen: runs, want: newPhaseStatus(v1.PodRunning, "X")},
		"PH-18 reason and message of the API": {api: newPhaseStatus(v1.PodRunning, "X"), previous: newPhaseStatus(v1.PodRunning, ""), seen: runs, want: newPhaseStatus(v1.PodRunning, "X")},
		"PH-18 new phase drops both":          {api: newPhaseStatus(v1.PodPending, "X"), previous: newPhaseStatus(v1.PodPending, "X"), seen: runs, want: newPhaseStatus(v1.PodRunning, "")},
		"PH-19 eviction":                      {previous: newPhaseStatus(v1.PodRunning, ""), seen: runs, evict: evicted, want: newPhaseStatus(v1.PodFailed, "Evicted")},
		"PH-19 eviction after termination":    {previous: newPhaseStatus(v1.PodSucceeded, "X"), seen: succeeds, evict: evicted, want: newPhaseStatus(v1.PodSucceeded, "X")},
		"PH-20 API before published":          {api: newPhaseStatus(v1.PodSucceeded, "Y"), previous: newPhaseStatus(v1.PodFailed, "X"), seen: runs, want: newPhaseStatus(v1.PodSucceeded, "Y")},
		"PH-20 API before eviction":           {api: newPhaseStatus(v1.PodSucceeded, "Y"), previous: newPhaseStatus(v1.PodRunning, ""), seen: runs, evict: evicted, want: newPhaseStatus(v1.PodSucceeded, "Y")},
		"PH-20 API before containers":         {api: newPhaseStatus(v1.PodFailed, "Y"), previous: newPhaseStatus(v1.PodRunning, ""), seen: succeeds, want: newPhaseStatus(v1.PodFailed, "Y")},
		"completed":                           {previous: newPhaseStatus(v1.PodRunning, ""), seen: succeeds, want: newPhaseStatus(v1.PodSucceeded, "")},
		"first status":                        {seen: runs, want: newPhaseStatus(v1.PodRunning, "")},
		"unknown phase":                       {previous: newPhaseStatus(v1.PodUnknown, ""), seen: runs, want: newPhaseStatus(v1.PodRunning, "")},
		"BUG-42 API before kept phase":        {api: newPhaseStatus(v1.PodFailed, "Y"), previous: newPhaseStatus(v1.PodRunning, ""), seen: newInstance("a", 1, observed.Unknown), want: newPhaseStatus(v1.PodFailed, "Y")},
		"PH-20 same phase, published reason":  {api: newPhaseStatus(v1.PodFailed, "Y"), previous: newPhaseStatus(v1.PodFailed, "X"), seen: runs, want: newPhaseStatus(v1.PodFailed, "X")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(never, newContainer("a"))
			pod.Status = test.api
			got := computeStatus(derive.Input{Pod: pod, Previous: &test.previous, Observed: newRuntimePod(test.seen), Eviction: test.evict})
			requireEqual(t, v1.PodStatus{Phase: got.Phase, Reason: got.Reason, Message: got.Message}, test.want)
		})
	}
}

func TestPH19_DeadlineExceeded(t *testing.T) {
	tests := map[string]struct {
		limit *int64
		start time.Time
		now   time.Time
		want  bool
	}{
		"no limit":        {start: noon, now: later},
		"not started":     {limit: new(int64(1)), now: later},
		"just before":     {limit: new(int64(60)), start: noon, now: later.Add(-1)},
		"at the deadline": {limit: new(int64(60)), start: noon, now: later, want: true},
		"long after":      {limit: new(int64(60)), start: noon, now: later.Add(time.Hour), want: true},
		"clock set back":  {limit: new(int64(60)), start: noon, now: noon.Add(-time.Hour)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(always, newContainer("a"))
			pod.Spec.ActiveDeadlineSeconds = test.limit
			got := derive.DeadlineExceeded(pod, test.start, test.now)
			if (got != nil) != test.want {
				t.Fatalf("got %v, want exceeded %v", got, test.want)
			}
			if got != nil && *got != (derive.Eviction{
				Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline",
			}) {
				t.Fatalf("got %+v", *got)
			}
		})
	}
}

func TestPH21_History(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	pod.Status = v1.PodStatus{StartTime: &metav1.Time{Time: noon.Add(-time.Hour)}, ContainerStatuses: statuses{exitedStatus("a", 3)}}
	got := computeStatus(derive.Input{Pod: pod})
	requireEqual(t, got.ContainerStatuses[0].State.Terminated.ExitCode, int32(3))
	requireEqual(t, got.StartTime.Time, noon.Add(-time.Hour))

	published := v1.PodStatus{StartTime: &metav1.Time{Time: noon.Add(-time.Minute)}, ContainerStatuses: statuses{exitedStatus("a", 4)}}
	got = computeStatus(derive.Input{Pod: pod, Previous: &published})
	requireEqual(t, got.ContainerStatuses[0].State.Terminated.ExitCode, int32(4))
	requireEqual(t, got.StartTime.Time, noon.Add(-time.Minute))
}

// A running pod with an unknown container stays Running (BUG-42). It becomes Pending only if its init containers must run
// again.
func TestBUG42_RunningPodStaysRunning(t *testing.T) {
	tests := map[string]struct {
		pod      *v1.Pod
		previous statuses
		seen     *observed.Pod
		want     v1.PodPhase
	}{
		"PH-11 unknown container": {
			pod: newPod(always, newContainer("a"), newContainer("b")), previous: statuses{waitingStatus("a"), runningStatus("b")},
			seen: newRuntimePod(newInstance("a", 1, observed.Unknown), newInstance("b", 1, observed.Running)), want: v1.PodRunning,
		},
		"container added to the manifest": {
			pod: newPod(always, newContainer("a"), newContainer("b")), previous: statuses{runningStatus("b")},
			seen: newRuntimePod(newInstance("b", 1, observed.Running)), want: v1.PodRunning,
		},
		"terminated container now unknown": {
			pod: newPod(always, newContainer("a")), previous: statuses{exitedStatus("a", 1)},
			seen: newRuntimePod(newInstance("a", 1, observed.Unknown)), want: v1.PodRunning,
		},
		"PH-15 init container runs again": {
			pod: withInit(newPod(always, newContainer("a")), newContainer("init")), previous: statuses{runningStatus("a")},
			seen: newRuntimePod(newInstance("init", 2, observed.Running)), want: v1.PodPending,
		},
		"PH-15 sidecar starts again": {
			pod: withInit(newPod(always, newContainer("a")), newSidecar("log")), previous: statuses{runningStatus("a")},
			seen: newRuntimePod(newInstance("log", 2, observed.Created)), want: v1.PodPending,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			previous := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: test.previous}
			if got := computeStatus(derive.Input{Pod: test.pod, Previous: previous, Observed: test.seen}); got.Phase != test.want {
				t.Fatalf("got phase %s, want %s", got.Phase, test.want)
			}
		})
	}
}

// Whether a regular container was created depends on the newest sandbox, if it is ready (PH-15).
func TestPH15_OldSandbox(t *testing.T) {
	pod := withInit(newPod(always, newContainer("a")), newSidecar("log"))
	pod.Spec.InitContainers[0].StartupProbe = &v1.Probe{}
	instance := newExited("a", 1, 255)
	instance.SandboxID = "old"
	tests := map[string]struct {
		of    string
		ready bool
		want  v1.PodPhase
	}{
		"current sandbox":          {"new", true, v1.PodRunning},
		"previous sandbox":         {"old", true, v1.PodPending},
		"newest sandbox not ready": {"new", false, v1.PodPending},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			instance.SandboxID = test.of
			runtimePod := newRuntimePod(instance, newInstance("log", 1, observed.Running))
			runtimePod.Sandboxes[0].Ready = test.ready
			if got := computeStatus(derive.Input{Pod: pod, Observed: runtimePod}); got.Phase != test.want {
				t.Fatalf("got phase %s, want %s", got.Phase, test.want)
			}
		})
	}
}

func TestPH16_OOMKilledInitContainer(t *testing.T) {
	killed := newExited("init", 1, 0)
	killed.Exit.Reason = "OOMKilled"
	tests := map[string]struct {
		policy v1.RestartPolicy
		want   v1.PodPhase
	}{
		"does not restart": {never, v1.PodFailed},
		"restarts":         {onFailure, v1.PodPending},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withInit(newPod(test.policy, newContainer("a")), newContainer("init"))
			in := derive.Input{Pod: pod, Observed: newRuntimePod(killed), Waiting: map[string]derive.Waiting{"init": {Reason: "CrashLoopBackOff"}}}
			got := computeStatus(in)
			if got.Phase != test.want {
				t.Errorf("got phase %s, want %s", got.Phase, test.want)
			}
			if got.InitContainerStatuses[0].Ready || findCondition(t, got, v1.PodInitialized).Status != v1.ConditionFalse {
				t.Error("got initialized, want not")
			}
			if waits := got.InitContainerStatuses[0].State.Waiting != nil; waits != (test.policy == onFailure) {
				t.Errorf("got waiting %v, want %v", waits, !waits)
			}
		})
	}
	t.Run("kubelet's phase", func(t *testing.T) {
		pod := withInit(newPod(never, newContainer("a")), newContainer("init"))
		requireEqual(t, derive.Phase(pod, statuses{withReason(exitedStatus("init", 0), "OOMKilled"), waitingStatus("a")}, false, false), v1.PodPending)
	})
}
