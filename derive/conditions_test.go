package derive_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func isFalse(kind v1.PodConditionType, reason, message string) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: v1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: 7}
}

func isTrue(kind v1.PodConditionType) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: v1.ConditionTrue, ObservedGeneration: 7}
}

// Every condition in this file is expected with the observed generation of SM-38.
func TestContainersReady(t *testing.T) {
	const kind = v1.ContainersReady
	full := withInit(newPod(always, container("b"), container("a")), container("init"), sidecar("log"))
	tests := map[string]struct {
		pod      *v1.Pod
		statuses statuses
		phase    v1.PodPhase
		want     v1.PodCondition
	}{
		"GEN-1 never computed":                                    {pod: full, want: isFalse(kind, "UnknownContainerStatuses", "")},
		"GEN-1 an empty list is not nil":                          {pod: full, statuses: statuses{}, want: isFalse(kind, "ContainersNotReady", "containers with unknown status: [log b a]")},
		"GEN-2 a finished init container is no matter":            {pod: full, statuses: statuses{exited("init", 0), ready(running("log")), ready(running("a")), ready(running("b"))}, want: isTrue(kind)},
		"GEN-2 an unready sidecar is":                             {pod: full, statuses: statuses{running("log"), ready(running("a")), ready(running("b"))}, want: isFalse(kind, "ContainersNotReady", "containers with unready status: [log]")},
		"GEN-3 missing is unknown":                                {pod: full, statuses: statuses{ready(running("log")), ready(running("b"))}, want: isFalse(kind, "ContainersNotReady", "containers with unknown status: [a]")},
		"GEN-4 not ready, in the spec's order":                    {pod: full, statuses: statuses{running("a"), running("b"), ready(running("log"))}, want: isFalse(kind, "ContainersNotReady", "containers with unready status: [b a]")},
		"GEN-5 completed":                                         {pod: full, statuses: statuses{exited("log", 0), exited("a", 0), exited("b", 0)}, phase: v1.PodSucceeded, want: isFalse(kind, "PodCompleted", "")},
		"GEN-5 completed with one unknown":                        {pod: full, statuses: statuses{exited("log", 0), exited("a", 0)}, phase: v1.PodSucceeded, want: isFalse(kind, "ContainersNotReady", "containers with unknown status: [b], containers with unready status: [log a]")},
		"GEN-6 failed, even with unknown ones":                    {pod: full, statuses: statuses{}, phase: v1.PodFailed, want: isFalse(kind, "PodFailed", "")},
		"GEN-6 failed, even with ready ones":                      {pod: full, statuses: statuses{ready(running("log")), ready(running("a")), ready(running("b"))}, phase: v1.PodFailed, want: isFalse(kind, "PodFailed", "")},
		"GEN-7 unknown comes first":                               {pod: full, statuses: statuses{running("log"), ready(running("a"))}, want: isFalse(kind, "ContainersNotReady", "containers with unknown status: [b], containers with unready status: [log]")},
		"GEN-8 all ready":                                         {pod: newPod(always, container("a")), statuses: statuses{ready(running("a"))}, phase: v1.PodRunning, want: isTrue(kind)},
		"GEN-9 no containers, but a list":                         {pod: newPod(always), statuses: statuses{}, want: isTrue(kind)},
		"GEN-10 unlike v1.16 a failed pod is judged by its phase": {pod: newPod(always, container("a")), statuses: statuses{ready(running("a"))}, phase: v1.PodFailed, want: isFalse(kind, "PodFailed", "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mustEqual(t, derive.ContainersReadyCondition(test.pod, test.statuses, test.phase), test.want)
		})
	}
}

func TestReady(t *testing.T) {
	const kind = v1.PodReady
	gated := newPod(always, container("a"))
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}, {ConditionType: "dns"}}
	gate := func(kind v1.PodConditionType, status v1.ConditionStatus) v1.PodCondition {
		return v1.PodCondition{Type: kind, Status: status}
	}
	ok := statuses{ready(running("a"))}
	tests := map[string]struct {
		pod        *v1.Pod
		conditions []v1.PodCondition
		statuses   statuses
		phase      v1.PodPhase
		want       v1.PodCondition
	}{
		"GEN-11 as the containers":        {pod: gated, statuses: statuses{running("a")}, want: isFalse(kind, "ContainersNotReady", "containers with unready status: [a]")},
		"GEN-11 as the containers' end":   {pod: gated, statuses: ok, phase: v1.PodFailed, want: isFalse(kind, "PodFailed", "")},
		"GEN-12 a gate without condition": {pod: gated, statuses: ok, conditions: []v1.PodCondition{gate("dns", "True")}, want: isFalse(kind, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "lb/ready" does not exist.`)},
		"GEN-13 gates that are closed": {
			pod: gated, statuses: ok, conditions: []v1.PodCondition{gate("dns", "Unknown"), gate("lb/ready", "False")},
			want: isFalse(kind, "ReadinessGatesNotReady",
				`the status of pod readiness gate "lb/ready" is not "True", but False, the status of pod readiness gate "dns" is not "True", but Unknown`),
		},
		"GEN-14 all gates are open": {pod: gated, statuses: ok, conditions: []v1.PodCondition{gate("dns", "True"), gate("lb/ready", "True")}, want: isTrue(kind)},
		"GEN-14 there are no gates": {pod: newPod(always, container("a")), statuses: ok, want: isTrue(kind)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mustEqual(t, derive.ReadyCondition(test.pod, test.conditions, test.statuses, test.phase), test.want)
		})
	}
}

func TestGEN15GatesAreReadFromWhatTheAPISays(t *testing.T) {
	pod := newPod(always, container("a"))
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}}
	open := v1.PodCondition{Type: "lb/ready", Status: v1.ConditionTrue}
	in := derive.Input{Pod: pod, Observed: world(seen("a", 1, observed.Running))}

	in.Previous = &v1.PodStatus{Conditions: []v1.PodCondition{open}}
	mustEqual(t, condition(t, status(in), v1.PodReady).Reason, "ReadinessGatesNotReady")

	pod.Status.Conditions = []v1.PodCondition{open}
	mustEqual(t, condition(t, status(in), v1.PodReady).Status, v1.ConditionTrue)
}

func TestInitialized(t *testing.T) {
	const kind = v1.PodInitialized
	pod := withInit(newPod(always, container("a")), container("init"), sidecar("log"))
	completed := isTrue(kind)
	completed.Reason = "PodCompleted"
	tests := map[string]struct {
		pod      *v1.Pod
		old      []v1.PodCondition
		statuses statuses
		phase    v1.PodPhase
		want     v1.PodCondition
	}{
		"GEN-16 never computed":                   {pod: pod, want: isFalse(kind, "UnknownContainerStatuses", "")},
		"GEN-17 nothing to initialize":            {pod: newPod(always, container("a")), want: isTrue(kind)},
		"GEN-17 nothing to initialize, completed": {pod: newPod(always, container("a")), phase: v1.PodSucceeded, want: completed},
		"GEN-18 an init container that has not":   {pod: pod, statuses: statuses{running("init"), started(running("log"))}, want: isFalse(kind, "ContainersNotInitialized", "containers with incomplete status: [init]")},
		"GEN-19 a sidecar that has not started":   {pod: pod, statuses: statuses{ready(exited("init", 0)), running("log")}, want: isFalse(kind, "ContainersNotInitialized", "containers with incomplete status: [log]")},
		"GEN-19 both have":                        {pod: pod, statuses: statuses{ready(exited("init", 0)), started(running("log"))}, want: isTrue(kind)},
		"GEN-20 completed":                        {pod: pod, statuses: statuses{exited("init", 1), exited("log", 0)}, phase: v1.PodSucceeded, want: completed},
		"GEN-20 completed with one unknown":       {pod: pod, statuses: statuses{ready(exited("init", 0))}, phase: v1.PodSucceeded, want: isFalse(kind, "ContainersNotInitialized", "containers with unknown status: [log]")},
		"GEN-21 a regular container runs":         {pod: pod, statuses: statuses{waiting("init"), waiting("log"), running("a")}, want: isTrue(kind)},
		"GEN-21 a regular container has run":      {pod: pod, statuses: statuses{exited("a", 1)}, want: isTrue(kind)},
		"GEN-21 one that waits proves nothing":    {pod: pod, statuses: statuses{ready(exited("init", 0)), running("log"), crashed("a", 1)}, want: isFalse(kind, "ContainersNotInitialized", "containers with incomplete status: [log]")},
		"GEN-22 unknown comes first":              {pod: pod, statuses: statuses{running("log")}, want: isFalse(kind, "ContainersNotInitialized", "containers with unknown status: [init], containers with incomplete status: [log]")},
		"GEN-23 it was, and restarts in place":    {pod: pod, old: []v1.PodCondition{isTrue(kind)}, statuses: statuses{waiting("init"), waiting("log")}, want: isTrue(kind)},
		"GEN-23 it was not":                       {pod: pod, old: []v1.PodCondition{isFalse(kind, "", "")}, statuses: statuses{running("init"), waiting("log")}, want: isFalse(kind, "ContainersNotInitialized", "containers with incomplete status: [init log]")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mustEqual(t, derive.InitializedCondition(test.pod, test.old, test.statuses, test.phase), test.want)
		})
	}
}

func TestSM97AGateThatWasTurnedMakesReadinessStale(t *testing.T) {
	pod := func(gate v1.ConditionStatus, ready v1.PodCondition) *v1.Pod {
		pod := withInit(newPod(always, container("a")), sidecar("log"))
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}
		pod.Status.InitContainerStatuses = statuses{{Name: "log", Ready: true}}
		pod.Status.ContainerStatuses = statuses{{Name: "a", Ready: true}}
		pod.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: gate}, ready}
		return pod
	}
	closed := isFalse(v1.PodReady, "ReadinessGatesNotReady", `the status of pod readiness gate "lb" is not "True", but False`)
	ungated := pod("True", closed)
	ungated.Spec.ReadinessGates = nil
	tests := map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"the gate was opened":                            {pod("True", closed), true},
		"the gate was closed":                            {pod("False", isTrue(v1.PodReady)), true},
		"the gate's value is another":                    {pod("Unknown", closed), true},
		"BUG-17 nothing changed, and there is a sidecar": {pod("True", isTrue(v1.PodReady)), false},
		"Ready was never told":                           {pod("True", isTrue(v1.PodScheduled)), false},
		"there are no gates":                             {ungated, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.NeedToReconcileReadiness(test.pod); got != test.want {
				t.Fatalf("stale %v, want %v", got, test.want)
			}
		})
	}
}

// endedEarly is a container whose end was before the third instance of any was made.
func endedEarly(c observed.Container) observed.Container {
	c.Exit.FinishedAt = c.CreatedAt.Add(time.Second)
	return c
}

func TestGEN34TheRestartOfAllContainersIsTold(t *testing.T) {
	const kind = v1.AllContainersRestarting
	pod := newPod(never, ruled("a", v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers), container("b"))
	no := v1.PodCondition{Type: kind, Status: v1.ConditionFalse}
	ended := func(reason string) v1.PodCondition { c := no; c.Reason = reason; return c }
	yes := v1.PodCondition{
		Type: kind, Status: v1.ConditionTrue, Reason: "RestartAllContainersStarted", Message: "container exited with restart policy rule",
	}
	tests := map[string]struct {
		previous v1.PodStatus
		seen     *observed.Pod
		phase    v1.PodPhase
		want     v1.PodCondition
	}{
		"completed":                    {phase: v1.PodSucceeded, seen: world(seenExit("a", 1, 42)), want: ended("PodCompleted")},
		"failed":                       {phase: v1.PodFailed, seen: world(seenExit("a", 1, 42)), want: ended("PodFailed")},
		"nothing of the kind happened": {seen: world(seen("a", 1, observed.Running)), want: no},
		"another code":                 {seen: world(seenExit("a", 1, 1)), want: no},
		"another container's exit":     {seen: world(seenExit("b", 1, 42)), want: no},
		"the code of the rule":         {seen: world(seenExit("a", 1, 42)), want: yes},
		"it was told before":           {previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}}, seen: world(seen("a", 1, observed.Running)), want: yes},
		"it is done: all were made anew": {
			previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}},
			seen:     world(endedEarly(seenExit("a", 1, 42)), seen("a", 3, observed.Running), seen("b", 3, observed.Running)), want: no,
		},
		"one was not made anew yet": {
			previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}},
			seen:     world(endedEarly(seenExit("a", 1, 42)), seen("a", 3, observed.Running), seenExit("b", 1, 137)), want: yes,
		},
		"all records are gone":             {previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}}, seen: world(), want: no},
		"published, and an end is seen":    {previous: v1.PodStatus{ContainerStatuses: statuses{exited("a", 42)}}, seen: world(seenExit("a", 2, 1)), want: yes},
		"published, and a new one is seen": {previous: v1.PodStatus{ContainerStatuses: statuses{exited("a", 42)}}, seen: world(seen("a", 2, observed.Running)), want: no},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := derive.AllContainersRestartingCondition(pod, test.seen, &test.previous, test.phase)
			if !ok {
				t.Fatal("a pod with such a rule has no such condition")
			}
			mustEqual(t, got, test.want)
		})
	}
	t.Run("a pod without such a rule has no such condition", func(t *testing.T) {
		if got, ok := derive.AllContainersRestartingCondition(newPod(never, container("a")), world(), &v1.PodStatus{}, ""); ok {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("an init container's rule counts too", func(t *testing.T) {
		pod := withInit(newPod(never, container("b")), pod.Spec.Containers[0])
		got, _ := derive.AllContainersRestartingCondition(pod, world(seenExit("a", 1, 42)), &v1.PodStatus{}, "")
		mustEqual(t, got, yes)
	})
}

func TestGEN35ConditionsHaveAFixedOrder(t *testing.T) {
	pod := newPod(never, ruled("a", v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers))
	pod.Status.Conditions = []v1.PodCondition{
		{Type: "zebra"}, {Type: v1.PodReady}, {Type: "ape"}, {Type: v1.PodResizePending}, {Type: v1.AllContainersRestarting},
	}
	var resize derive.Resize
	resize, _ = resize.WithInProgress(derive.ResizeCondition{Generation: 6}, noon)
	resize, _ = resize.WithPending(derive.ResizeCondition{Generation: 7}, noon)
	previous := &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}}
	in := derive.Input{Pod: pod, Previous: previous, Resize: resize}
	mustEqual(t, kinds(status(in)), []v1.PodConditionType{
		"zebra", "ape", v1.PodResizePending, v1.PodResizeInProgress, v1.DisruptionTarget, v1.PodReadyToStartContainers,
		v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled, v1.AllContainersRestarting,
	})

	t.Run("PH-40 a pod that ends has no resize conditions", func(t *testing.T) {
		in := in
		in.Terminating = true
		mustEqual(t, kinds(status(in))[:4], []v1.PodConditionType{"zebra", "ape", v1.DisruptionTarget, v1.PodReadyToStartContainers})
	})
	t.Run("PH-40 resize conditions keep the generation that they were made for", func(t *testing.T) {
		mustEqual(t, condition(t, status(in), v1.PodResizeInProgress).ObservedGeneration, int64(6))
	})
	t.Run("SM-38 unless the pod has no generation", func(t *testing.T) {
		in := in
		in.Pod = pod.DeepCopy()
		in.Pod.Generation = 0
		mustEqual(t, condition(t, status(in), v1.PodResizeInProgress).ObservedGeneration, int64(0))
	})
}

func kinds(status v1.PodStatus) (kinds []v1.PodConditionType) {
	for _, condition := range status.Conditions {
		kinds = append(kinds, condition.Type)
	}
	return kinds
}

func TestGEN32APodOnANodeIsScheduled(t *testing.T) {
	got := condition(t, status(derive.Input{Pod: newPod(always, container("a"))}), v1.PodScheduled)
	got.LastTransitionTime = metav1.Time{}
	mustEqual(t, got, isTrue(v1.PodScheduled))
}

func TestGEN33ADisruptionIsToldOnceAndKept(t *testing.T) {
	pod := newPod(always, container("a"))
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"}, {Type: "foreign"}}
	in := derive.Input{Pod: pod, Previous: &v1.PodStatus{}}
	mustEqual(t, condition(t, status(in), v1.DisruptionTarget).Reason, "EvictionByEvictionAPI")

	in.Previous = &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}}
	mustEqual(t, condition(t, status(in), v1.DisruptionTarget).Reason, "TerminationByKubelet")
	mustEqual(t, kinds(status(in))[:2], []v1.PodConditionType{v1.DisruptionTarget, "foreign"})
}

func TestSM38TheObservedGenerationIsThePods(t *testing.T) {
	got := status(derive.Input{Pod: newPod(always, container("a"))})
	mustEqual(t, got.ObservedGeneration, int64(7))
	for _, condition := range got.Conditions {
		mustEqual(t, condition.ObservedGeneration, int64(7))
	}
}
