package derive_test

import (
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

func falseCondition(conditionType v1.PodConditionType, reason, message string) v1.PodCondition {
	return v1.PodCondition{Type: conditionType, Status: v1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: 7}
}

func trueCondition(conditionType v1.PodConditionType) v1.PodCondition {
	return v1.PodCondition{Type: conditionType, Status: v1.ConditionTrue, ObservedGeneration: 7}
}

// Every condition in this file is expected to carry the observed generation (SM-38).
func TestContainersReadyCondition(t *testing.T) {
	const conditionType = v1.ContainersReady
	full := withInit(newPod(always, newContainer("b"), newContainer("a")), newContainer("init"), newSidecar("log"))
	tests := map[string]struct {
		pod      *v1.Pod
		statuses statuses
		phase    v1.PodPhase
		want     v1.PodCondition
	}{
		"GEN-1 never computed":              {pod: full, want: falseCondition(conditionType, "UnknownContainerStatuses", "")},
		"GEN-1 empty list":                  {pod: full, statuses: statuses{}, want: falseCondition(conditionType, "ContainersNotReady", "containers with unknown status: [log b a]")},
		"GEN-2 completed init container":    {pod: full, statuses: statuses{exitedStatus("init", 0), withReady(runningStatus("log")), withReady(runningStatus("a")), withReady(runningStatus("b"))}, want: trueCondition(conditionType)},
		"GEN-2 unready sidecar":             {pod: full, statuses: statuses{runningStatus("log"), withReady(runningStatus("a")), withReady(runningStatus("b"))}, want: falseCondition(conditionType, "ContainersNotReady", "containers with unready status: [log]")},
		"GEN-3 missing status":              {pod: full, statuses: statuses{withReady(runningStatus("log")), withReady(runningStatus("b"))}, want: falseCondition(conditionType, "ContainersNotReady", "containers with unknown status: [a]")},
		"GEN-4 unready, in spec order":      {pod: full, statuses: statuses{runningStatus("a"), runningStatus("b"), withReady(runningStatus("log"))}, want: falseCondition(conditionType, "ContainersNotReady", "containers with unready status: [b a]")},
		"GEN-5 completed":                   {pod: full, statuses: statuses{exitedStatus("log", 0), exitedStatus("a", 0), exitedStatus("b", 0)}, phase: v1.PodSucceeded, want: falseCondition(conditionType, "PodCompleted", "")},
		"GEN-5 completed, one unknown":      {pod: full, statuses: statuses{exitedStatus("log", 0), exitedStatus("a", 0)}, phase: v1.PodSucceeded, want: falseCondition(conditionType, "ContainersNotReady", "containers with unknown status: [b], containers with unready status: [log a]")},
		"GEN-6 failed, no statuses":         {pod: full, statuses: statuses{}, phase: v1.PodFailed, want: falseCondition(conditionType, "PodFailed", "")},
		"GEN-6 failed, all ready":           {pod: full, statuses: statuses{withReady(runningStatus("log")), withReady(runningStatus("a")), withReady(runningStatus("b"))}, phase: v1.PodFailed, want: falseCondition(conditionType, "PodFailed", "")},
		"GEN-7 unknown first":               {pod: full, statuses: statuses{runningStatus("log"), withReady(runningStatus("a"))}, want: falseCondition(conditionType, "ContainersNotReady", "containers with unknown status: [b], containers with unready status: [log]")},
		"GEN-8 all ready":                   {pod: newPod(always, newContainer("a")), statuses: statuses{withReady(runningStatus("a"))}, phase: v1.PodRunning, want: trueCondition(conditionType)},
		"GEN-9 no containers":               {pod: newPod(always), statuses: statuses{}, want: trueCondition(conditionType)},
		"GEN-10 failed phase, unlike v1.16": {pod: newPod(always, newContainer("a")), statuses: statuses{withReady(runningStatus("a"))}, phase: v1.PodFailed, want: falseCondition(conditionType, "PodFailed", "")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireEqual(t, derive.ContainersReadyCondition(test.pod, test.statuses, test.phase), test.want)
		})
	}
}

func TestReadyCondition(t *testing.T) {
	const conditionType = v1.PodReady
	gated := newPod(always, newContainer("a"))
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}, {ConditionType: "dns"}}
	gate := func(conditionType v1.PodConditionType, status v1.ConditionStatus) v1.PodCondition {
		return v1.PodCondition{Type: conditionType, Status: status}
	}
	ok := statuses{withReady(runningStatus("a"))}
	tests := map[string]struct {
		pod        *v1.Pod
		conditions []v1.PodCondition
		statuses   statuses
		phase      v1.PodPhase
		want       v1.PodCondition
	}{
		"GEN-11 containers not ready":   {pod: gated, statuses: statuses{runningStatus("a")}, want: falseCondition(conditionType, "ContainersNotReady", "containers with unready status: [a]")},
		"GEN-11 failed":                 {pod: gated, statuses: ok, phase: v1.PodFailed, want: falseCondition(conditionType, "PodFailed", "")},
		"GEN-12 gate without condition": {pod: gated, statuses: ok, conditions: []v1.PodCondition{gate("dns", "True")}, want: falseCondition(conditionType, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "lb/ready" does not exist.`)},
		"GEN-13 gates not True": {
			pod: gated, statuses: ok, conditions: []v1.PodCondition{gate("dns", "Unknown"), gate("lb/ready", "False")},
			want: falseCondition(conditionType, "ReadinessGatesNotReady",
				`the status of pod readiness gate "lb/ready" is not "True", but False, the status of pod readiness gate "dns" is not "True", but Unknown`),
		},
		"GEN-14 all gates True": {pod: gated, statuses: ok, conditions: []v1.PodCondition{gate("dns", "True"), gate("lb/ready", "True")}, want: trueCondition(conditionType)},
		"GEN-14 no gates":       {pod: newPod(always, newContainer("a")), statuses: ok, want: trueCondition(conditionType)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireEqual(t, derive.ReadyCondition(test.pod, test.conditions, test.statuses, test.phase), test.want)
		})
	}
}

func TestGEN15_GatesFromAPI(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}}
	open := v1.PodCondition{Type: "lb/ready", Status: v1.ConditionTrue}
	in := derive.Input{Pod: pod, Observed: newRuntimePod(newInstance("a", 1, observed.Running))}

	in.Previous = &v1.PodStatus{Conditions: []v1.PodCondition{open}}
	requireEqual(t, findCondition(t, computeStatus(in), v1.PodReady).Reason, "ReadinessGatesNotReady")

	pod.Status.Conditions = []v1.PodCondition{open}
	requireEqual(t, findCondition(t, computeStatus(in), v1.PodReady).Status, v1.ConditionTrue)
}

func TestInitializedCondition(t *testing.T) {
	const conditionType = v1.PodInitialized
	pod := withInit(newPod(always, newContainer("a")), newContainer("init"), newSidecar("log"))
	completed := trueCondition(conditionType)
	completed.Reason = "PodCompleted"
	tests := map[string]struct {
		pod      *v1.Pod
		old      []v1.PodCondition
		statuses statuses
		phase    v1.PodPhase
		want     v1.PodCondition
	}{
		"GEN-16 never computed":                {pod: pod, want: falseCondition(conditionType, "UnknownContainerStatuses", "")},
		"GEN-17 no init containers":            {pod: newPod(always, newContainer("a")), want: trueCondition(conditionType)},
		"GEN-17 no init containers, completed": {pod: newPod(always, newContainer("a")), phase: v1.PodSucceeded, want: completed},
		"GEN-18 init container running":        {pod: pod, statuses: statuses{runningStatus("init"), withStarted(runningStatus("log"))}, want: falseCondition(conditionType, "ContainersNotInitialized", "containers with incomplete status: [init]")},
		"GEN-19 sidecar not started":           {pod: pod, statuses: statuses{withReady(exitedStatus("init", 0)), runningStatus("log")}, want: falseCondition(conditionType, "ContainersNotInitialized", "containers with incomplete status: [log]")},
		"GEN-19 all done":                      {pod: pod, statuses: statuses{withReady(exitedStatus("init", 0)), withStarted(runningStatus("log"))}, want: trueCondition(conditionType)},
		"GEN-20 completed":                     {pod: pod, statuses: statuses{exitedStatus("init", 1), exitedStatus("log", 0)}, phase: v1.PodSucceeded, want: completed},
		"GEN-20 completed, one unknown":        {pod: pod, statuses: statuses{withReady(exitedStatus("init", 0))}, phase: v1.PodSucceeded, want: falseCondition(conditionType, "ContainersNotInitialized", "containers with unknown status: [log]")},
		"GEN-21 regular container runs":        {pod: pod, statuses: statuses{waitingStatus("init"), waitingStatus("log"), runningStatus("a")}, want: trueCondition(conditionType)},
		"GEN-21 regular container ran":         {pod: pod, statuses: statuses{exitedStatus("a", 1)}, want: trueCondition(conditionType)},
		"GEN-21 regular container waits":       {pod: pod, statuses: statuses{withReady(exitedStatus("init", 0)), runningStatus("log"), crashedStatus("a", 1)}, want: falseCondition(conditionType, "ContainersNotInitialized", "containers with incomplete status: [log]")},
		"GEN-22 unknown first":                 {pod: pod, statuses: statuses{runningStatus("log")}, want: falseCondition(conditionType, "ContainersNotInitialized", "containers with unknown status: [init], containers with incomplete status: [log]")},
		"GEN-23 restarts in place":             {pod: pod, old: []v1.PodCondition{trueCondition(conditionType)}, statuses: statuses{waitingStatus("init"), waitingStatus("log")}, want: trueCondition(conditionType)},
		"GEN-23 was not initialized":           {pod: pod, old: []v1.PodCondition{falseCondition(conditionType, "", "")}, statuses: statuses{runningStatus("init"), waitingStatus("log")}, want: falseCondition(conditionType, "ContainersNotInitialized", "containers with incomplete status: [init log]")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireEqual(t, derive.InitializedCondition(test.pod, test.old, test.statuses, test.phase), test.want)
		})
	}
}

func TestSM97_NeedToReconcileReadiness(t *testing.T) {
	pod := func(gate v1.ConditionStatus, ready v1.PodCondition) *v1.Pod {
		pod := withInit(newPod(always, newContainer("a")), newSidecar("log"))
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}
		pod.Status.InitContainerStatuses = statuses{{Name: "log", Ready: true}}
		pod.Status.ContainerStatuses = statuses{{Name: "a", Ready: true}}
		pod.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: gate}, ready}
		return pod
	}
	closed := falseCondition(v1.PodReady, "ReadinessGatesNotReady", `the status of pod readiness gate "lb" is not "True", but False`)
	ungated := pod("True", closed)
	ungated.Spec.ReadinessGates = nil
	tests := map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"gate became True":               {pod("True", closed), true},
		"gate became False":              {pod("False", trueCondition(v1.PodReady)), true},
		"gate has another value":         {pod("Unknown", closed), true},
		"BUG-17 unchanged, with sidecar": {pod("True", trueCondition(v1.PodReady)), false},
		"no Ready condition":             {pod("True", trueCondition(v1.PodScheduled)), false},
		"no gates":                       {ungated, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := derive.NeedToReconcileReadiness(test.pod); got != test.want {
				t.Fatalf("got %v, want %v", got, test.want)
			}
		})
	}
}

// endedEarly is a container whose end was before the third instance of any was made.
func exitedEarly(c observed.Container) observed.Container {
	c.Exit.FinishedAt = c.CreatedAt.Add(time.Second)
	return c
}

func TestGEN34_AllContainersRestarting(t *testing.T) {
	const conditionType = v1.AllContainersRestarting
	pod := newPod(never, withRule("a", v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers), newContainer("b"))
	no := v1.PodCondition{Type: conditionType, Status: v1.ConditionFalse}
	ended := func(reason string) v1.PodCondition { c := no; c.Reason = reason; return c }
	yes := v1.PodCondition{
		Type: conditionType, Status: v1.ConditionTrue, Reason: "RestartAllContainersStarted", Message: "container exited with restart policy rule",
	}
	tests := map[string]struct {
		previous v1.PodStatus
		seen     *observed.Pod
		phase    v1.PodPhase
		want     v1.PodCondition
	}{
		"completed":          {phase: v1.PodSucceeded, seen: newRuntimePod(newExited("a", 1, 42)), want: ended("PodCompleted")},
		"failed":             {phase: v1.PodFailed, seen: newRuntimePod(newExited("a", 1, 42)), want: ended("PodFailed")},
		"nothing exited":     {seen: newRuntimePod(newInstance("a", 1, observed.Running)), want: no},
		"other exit code":    {seen: newRuntimePod(newExited("a", 1, 1)), want: no},
		"other container":    {seen: newRuntimePod(newExited("b", 1, 42)), want: no},
		"matching exit code": {seen: newRuntimePod(newExited("a", 1, 42)), want: yes},
		"published before":   {previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}}, seen: newRuntimePod(newInstance("a", 1, observed.Running)), want: yes},
		"all recreated": {
			previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}},
			seen:     newRuntimePod(exitedEarly(newExited("a", 1, 42)), newInstance("a", 3, observed.Running), newInstance("b", 3, observed.Running)), want: no,
		},
		"one not recreated yet": {
			previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}},
			seen:     newRuntimePod(exitedEarly(newExited("a", 1, 42)), newInstance("a", 3, observed.Running), newExited("b", 1, 137)), want: yes,
		},
		"all records gone":                 {previous: v1.PodStatus{Conditions: []v1.PodCondition{yes}}, seen: newRuntimePod(), want: no},
		"published exit, exited instance":  {previous: v1.PodStatus{ContainerStatuses: statuses{exitedStatus("a", 42)}}, seen: newRuntimePod(newExited("a", 2, 1)), want: yes},
		"published exit, running instance": {previous: v1.PodStatus{ContainerStatuses: statuses{exitedStatus("a", 42)}}, seen: newRuntimePod(newInstance("a", 2, observed.Running)), want: no},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := derive.AllContainersRestartingCondition(pod, test.seen, &test.previous, test.phase)
			if !ok {
				t.Fatal("got no condition, want one")
			}
			requireEqual(t, got, test.want)
		})
	}
	t.Run("no rule", func(t *testing.T) {
		if got, ok := derive.AllContainersRestartingCondition(newPod(never, newContainer("a")), newRuntimePod(), &v1.PodStatus{}, ""); ok {
			t.Fatalf("got %+v, want none", got)
		}
	})
	t.Run("rule of an init container", func(t *testing.T) {
		pod := withInit(newPod(never, newContainer("b")), pod.Spec.Containers[0])
		got, _ := derive.AllContainersRestartingCondition(pod, newRuntimePod(newExited("a", 1, 42)), &v1.PodStatus{}, "")
		requireEqual(t, got, yes)
	})
}

func TestGEN35_ConditionOrder(t *testing.T) {
	pod := newPod(never, withRule("a", v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers))
	pod.Status.Conditions = []v1.PodCondition{
		{Type: "zebra"}, {Type: v1.PodReady}, {Type: "ape"}, {Type: v1.PodResizePending}, {Type: v1.AllContainersRestarting},
	}
	var resize derive.Resize
	resize, _ = resize.WithInProgress(derive.ResizeCondition{Generation: 6}, noon)
	resize, _ = resize.WithPending(derive.ResizeCondition{Generation: 7}, noon)
	previous := &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}}
	in := derive.Input{Pod: pod, Previous: previous, Resize: resize}
	requireEqual(t, conditionTypes(computeStatus(in)), []v1.PodConditionType{
		"zebra", "ape", v1.PodResizePending, v1.PodResizeInProgress, v1.DisruptionTarget, v1.PodReadyToStartContainers,
		v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled, v1.AllContainersRestarting,
	})

	t.Run("PH-40 terminating pod", func(t *testing.T) {
		in := in
		in.Terminating = true
		requireEqual(t, conditionTypes(computeStatus(in))[:4], []v1.PodConditionType{"zebra", "ape", v1.DisruptionTarget, v1.PodReadyToStartContainers})
	})
	t.Run("PH-40 generation of the resize", func(t *testing.T) {
		requireEqual(t, findCondition(t, computeStatus(in), v1.PodResizeInProgress).ObservedGeneration, int64(6))
	})
	t.Run("SM-38 pod without generation", func(t *testing.T) {
		in := in
		in.Pod = pod.DeepCopy()
		in.Pod.Generation = 0
		requireEqual(t, findCondition(t, computeStatus(in), v1.PodResizeInProgress).ObservedGeneration, int64(0))
	})
}

func conditionTypes(status v1.PodStatus) (kinds []v1.PodConditionType) {
	for _, condition := range status.Conditions {
		kinds = append(kinds, condition.Type)
	}
	return kinds
}

func TestGEN32_PodScheduled(t *testing.T) {
	got := findCondition(t, computeStatus(derive.Input{Pod: newPod(always, newContainer("a"))}), v1.PodScheduled)
	got.LastTransitionTime = metav1.Time{}
	requireEqual(t, got, trueCondition(v1.PodScheduled))
}

func TestGEN33_DisruptionTarget(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"}, {Type: "foreign"}}
	in := derive.Input{Pod: pod, Previous: &v1.PodStatus{}}
	requireEqual(t, findCondition(t, computeStatus(in), v1.DisruptionTarget).Reason, "EvictionByEvictionAPI")

	in.Previous = &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}}
	requireEqual(t, findCondition(t, computeStatus(in), v1.DisruptionTarget).Reason, "TerminationByKubelet")
	requireEqual(t, conditionTypes(computeStatus(in))[:2], []v1.PodConditionType{v1.DisruptionTarget, "foreign"})
}

func TestSM38_ObservedGeneration(t *testing.T) {
	got := computeStatus(derive.Input{Pod: newPod(always, newContainer("a"))})
	requireEqual(t, got.ObservedGeneration, int64(7))
	for _, condition := range got.Conditions {
		requireEqual(t, condition.ObservedGeneration, int64(7))
	}
}

func TestNewSandboxReason(t *testing.T) {
	own, host := newPod(always, newContainer("a")), newPod(always, newContainer("a"))
	host.Spec.HostNetwork = true
	noIP, withIP := &observed.Network{}, &observed.Network{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	box := func(id string, ready bool, network *observed.Network) observed.Sandbox {
		age := time.Hour
		if id == "new" {
			age = time.Minute
		}
		return observed.Sandbox{ID: id, Ready: ready, CreatedAt: noon.Add(-age), Network: network}
	}
	ofHost := box("new", true, noIP)
	ofHost.HostNetwork = true
	tests := map[string]struct {
		pod   *v1.Pod
		boxes []observed.Sandbox
		want  string
	}{
		"GEN-24 no sandbox":                  {pod: own, want: "no pod sandbox exists"},
		"GEN-25 two ready sandboxes":         {pod: own, boxes: []observed.Sandbox{box("new", true, nil), box("old", true, nil)}, want: "multiple pod sandboxes are ready and need to be reconciled"},
		"GEN-26 newest not ready":            {pod: own, boxes: []observed.Sandbox{box("old", true, nil), box("new", false, nil)}, want: "pod sandbox is not ready"},
		"GEN-27 sandbox on the host network": {pod: own, boxes: []observed.Sandbox{ofHost}, want: "network namespace mode changed and sandbox needs to be recreated"},
		"GEN-27 pod on the host network":     {pod: host, boxes: []observed.Sandbox{box("new", true, withIP)}, want: "network namespace mode changed and sandbox needs to be recreated"},
		"GEN-28 no IP address":               {pod: own, boxes: []observed.Sandbox{box("new", true, noIP)}, want: "pod sandbox has no IP address"},
		"GEN-28 no network reported":         {pod: own, boxes: []observed.Sandbox{box("new", true, nil)}},
		"GEN-28 host network":                {pod: host, boxes: []observed.Sandbox{ofHost}},
		"GEN-29 usable":                      {pod: own, boxes: []observed.Sandbox{box("new", true, withIP), box("old", false, nil)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen := &observed.Pod{Sandboxes: test.boxes}
			seen.Sort()
			requireEqual(t, derive.NewSandboxReason(test.pod, seen), test.want)
			want := trueCondition(v1.PodReadyToStartContainers)
			if test.want != "" {
				want.Status = v1.ConditionFalse
			}
			requireEqual(t, derive.ReadyToStartContainersCondition(test.pod, seen), want)
		})
	}
	t.Run("GEN-24 runtime not inspected", func(t *testing.T) {
		requireEqual(t, derive.NewSandboxReason(own, nil), "no pod sandbox exists")
	})
}

func TestGEN30_WithSandboxReady(t *testing.T) {
	pod := newPod(always, newContainer("a"))
	before := computeStatus(derive.Input{Pod: pod})
	got := derive.WithSandboxReady(pod, before)
	requireEqual(t, findCondition(t, got, v1.PodReadyToStartContainers).Status, v1.ConditionTrue)
	requireEqual(t, findCondition(t, before, v1.PodReadyToStartContainers).Status, v1.ConditionFalse)
	requireEqual(t, conditionTypes(got), conditionTypes(before))
}

func TestGEN31_SandboxGone(t *testing.T) {
	pod := newPod(never, newContainer("a"))
	before := computeStatus(derive.Input{Pod: pod, Observed: newRuntimePod(newExited("a", 1, 0))})
	requireEqual(t, findCondition(t, before, v1.PodReadyToStartContainers).Status, v1.ConditionTrue)
	after := computeStatus(derive.Input{Pod: pod, Previous: &before, Observed: &observed.Pod{}})
	requireEqual(t, findCondition(t, after, v1.PodReadyToStartContainers).Status, v1.ConditionFalse)
}
