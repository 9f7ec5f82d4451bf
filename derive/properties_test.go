package derive_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// simulateSyncs computes one status after the other from random runtime state and probe results, with a clock that jumps.
// Now and then the API server's copy catches up with the published status.
func simulateSyncs(t *rapid.T, pod *v1.Pod, check func(in derive.Input, status v1.PodStatus)) {
	var previous *v1.PodStatus
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		in := drawInput(t, pod)
		in.Previous = previous
		next := derive.Status(in)
		check(in, next)
		if chance(t, "the API catches up") {
			pod = pod.DeepCopy()
			pod.Status = next
		}
		previous = &next
	}
}

func TestStatus_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		simulateSyncs(t, drawPod(t), func(in derive.Input, next v1.PodStatus) {
			requireContainerStatuses(t, in.Pod, &next)
			requireConsistentReadiness(t, &next)
			if in.Previous == nil {
				return
			}
			last := in.Previous
			if derive.IsTerminal(last.Phase) && next.Phase != last.Phase {
				t.Fatalf("I1: got phase %s after %s", next.Phase, last.Phase)
			}
			if last.Phase == v1.PodRunning && next.Phase == v1.PodPending && len(in.Pod.Spec.InitContainers) == 0 {
				t.Fatal("BUG-42: got Pending after Running without init containers")
			}
			if !next.StartTime.Equal(last.StartTime) {
				t.Fatalf("I4: got start time %v, want %v", next.StartTime, last.StartTime)
			}
			for i := range next.ContainerStatuses {
				if next.ContainerStatuses[i].RestartCount < last.ContainerStatuses[i].RestartCount {
					t.Fatalf("I3: got a lower restart count of %s", next.ContainerStatuses[i].Name)
				}
			}
			requireTransitionTimes(t, last.Conditions, next.Conditions)
		})
	})
}

func requireContainerStatuses(t *rapid.T, pod *v1.Pod, status *v1.PodStatus) {
	names := map[string]int{}
	for _, list := range []statuses{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			names[list[i].Name]++
			if s := list[i].State; s.Waiting == nil && s.Running == nil && s.Terminated == nil {
				t.Fatalf("got no state of %s", list[i].Name)
			}
		}
	}
	for _, name := range containerNames(pod) {
		if names[name] != 1 {
			t.Fatalf("got %d statuses of %s, want 1", names[name], name)
		}
	}
	if len(names) != len(containerNames(pod)) {
		t.Fatalf("statuses of %v, containers are %v", names, containerNames(pod))
	}
}

func requireConsistentReadiness(t *rapid.T, status *v1.PodStatus) {
	holds := func(conditionType v1.PodConditionType) bool {
		return slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == conditionType && c.Status == v1.ConditionTrue })
	}
	if holds(v1.PodReady) && (!holds(v1.ContainersReady) || derive.IsTerminal(status.Phase)) {
		t.Fatalf("got Ready in phase %s with %+v", status.Phase, status.Conditions)
	}
}

func requireTransitionTimes(t *rapid.T, old, next []v1.PodCondition) {
	for _, condition := range next {
		i := slices.IndexFunc(old, func(c v1.PodCondition) bool { return c.Type == condition.Type })
		if i < 0 {
			continue
		}
		same := condition.LastTransitionTime.Equal(&old[i].LastTransitionTime)
		if condition.Status == old[i].Status && !same || condition.LastTransitionTime.Before(&old[i].LastTransitionTime) {
			t.Fatalf("I6: got %+v after %+v", condition, old[i])
		}
	}
}

// At rest nothing is sent (I10): the same input yields the same status. As in the kubelet, the second computation may drop the
// ID of a container whose record was garbage collected. Phase and conditions are stable at once.
func TestI10_StatusIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		simulateSyncs(t, drawPod(t), func(in derive.Input, once v1.PodStatus) {
			compute := func(previous *v1.PodStatus) v1.PodStatus {
				in.Previous = previous
				in.Now = in.Now.Add(time.Hour)
				return derive.Status(in)
			}
			twice := compute(&once)
			if twice.Phase != once.Phase || !cmp.Equal(once.Conditions, twice.Conditions) {
				t.Fatalf("-first +second\n%s", cmp.Diff(once, twice))
			}
			if thrice := compute(&twice); !derive.Equal(&twice, &thrice) {
				t.Fatalf("-second +third\n%s", cmp.Diff(twice, thrice))
			}
		})
	})
}

func TestStatus_InputUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod, previous := drawPod(t), drawStatus(t)
		in := drawInput(t, pod)
		in.Previous = &previous
		podBefore, previousBefore := pod.DeepCopy(), previous.DeepCopy()
		got := derive.Status(in)
		derive.Terminate(pod, derive.WithProbeResults(pod, got, drawProbeResults(t, pod)))
		derive.Merge(previous, got, chance(t, "could run"), later)
		derive.WithSandboxReady(pod, previous)
		derive.Normalize(pod, previous)
		if diff := cmp.Diff(podBefore, pod) + cmp.Diff(previousBefore, &previous); diff != "" {
			t.Fatal(diff)
		}
	})
}

// equalByReflection is SM-32 on top of apimachinery's comparison.
func equalByReflection(a, b *v1.PodStatus) bool {
	ours := func(status *v1.PodStatus) (*v1.PodStatus, map[v1.PodConditionType][3]string) {
		conditions := map[v1.PodConditionType][3]string{}
		for _, c := range status.Conditions {
			if derive.IsOwnedCondition(c.Type) || c.Type == v1.DisruptionTarget {
				conditions[c.Type] = [3]string{string(c.Status), c.Reason, c.Message}
			}
		}
		rest := status.DeepCopy()
		rest.Conditions, rest.NominatedNodeName, rest.QOSClass = nil, "", ""
		return rest, conditions
	}
	restA, conditionsA := ours(a)
	restB, conditionsB := ours(b)
	return cmp.Equal(conditionsA, conditionsB) && equality.Semantic.DeepEqual(restA, restB)
}

func TestSM32_EqualMatchesReflection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawStatus(t), drawStatus(t), drawStatus(t)
		if chance(t, "b like a") {
			b = *a.DeepCopy()
			b.Conditions = append(b.Conditions, v1.PodCondition{Type: "foreign/c"})
		}
		if chance(t, "c like b") {
			c = *b.DeepCopy()
			slices.Reverse(c.Conditions)
		}
		if !derive.Equal(&a, a.DeepCopy()) {
			t.Fatal("got different from itself")
		}
		if derive.Equal(&a, &b) != derive.Equal(&b, &a) {
			t.Fatal("got asymmetric result")
		}
		if derive.Equal(&a, &b) && derive.Equal(&b, &c) && !derive.Equal(&a, &c) {
			t.Fatal("got intransitive result")
		}
		if derive.Equal(&a, &b) != equalByReflection(&a, &b) {
			t.Fatalf("got %v, want %v as by reflection", derive.Equal(&a, &b), equalByReflection(&a, &b))
		}
	})
}

func TestNormalize_Idempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod, before := drawPod(t), drawStatus(t)
		for i := range before.ContainerStatuses {
			if end := before.ContainerStatuses[i].State.Terminated; end != nil {
				end.Message = strings.Repeat(end.Message, rapid.IntRange(1, 1000).Draw(t, "times"))
			}
		}
		once, changed := derive.Normalize(pod, before)
		if changed == cmp.Equal(before, once) {
			t.Fatalf("got changed %v, want %v", changed, !changed)
		}
		if _, again := derive.Normalize(pod, once); again {
			t.Fatal("got changed again, want unchanged")
		}
		for i := range once.ContainerStatuses {
			end := once.ContainerStatuses[i].State.Terminated
			if end != nil && len(end.Message) > 12288/len(containerNames(pod)) {
				t.Fatalf("got %d bytes of message in a pod of %d containers", len(end.Message), len(containerNames(pod)))
			}
		}
	})
}

func checkMerge(t interface{ Fatalf(string, ...any) }, api, ours v1.PodStatus, couldRun bool) {
	merged := derive.Merge(api, ours, couldRun, later)
	foreign := func(status *v1.PodStatus) (list []v1.PodCondition) {
		for _, c := range status.Conditions {
			if !derive.IsOwnedCondition(c.Type) && c.Type != v1.DisruptionTarget {
				list = append(list, c)
			}
		}
		return list
	}
	if diff := cmp.Diff(foreign(&api), foreign(&merged)); diff != "" {
		t.Fatalf("I7: foreign conditions changed:\n%s", diff)
	}
	if merged.NominatedNodeName != api.NominatedNodeName || (api.QOSClass != "" && merged.QOSClass != api.QOSClass) {
		t.Fatalf("I7: got a changed foreign field")
	}
	if derive.IsTerminal(api.Phase) && merged.Phase != api.Phase {
		t.Fatalf("I1: got phase %s after %s", merged.Phase, api.Phase)
	}
	if couldRun && derive.IsTerminal(merged.Phase) && !derive.IsTerminal(api.Phase) {
		t.Fatalf("got phase %s while containers could run", merged.Phase)
	}
	seenTypes := map[v1.PodConditionType]bool{}
	for _, c := range merged.Conditions {
		if seenTypes[c.Type] {
			t.Fatalf("got condition %s twice", c.Type)
		}
		seenTypes[c.Type] = true
		if derive.IsTerminal(merged.Phase) && c.Status == v1.ConditionTrue && (c.Type == v1.PodReady || c.Type == v1.ContainersReady) {
			t.Fatalf("SM-70: got phase %s with %s", merged.Phase, c.Type)
		}
	}
	if again := derive.Merge(merged, ours, couldRun, later); !derive.Equal(&merged, &again) {
		t.Fatalf("I10: merging again changes the status:\n%s", cmp.Diff(merged, again))
	}
}

func TestMerge_Invariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkMerge(t, drawStatus(t), drawStatus(t), chance(t, "could run"))
	})
}

// FuzzMerge checks the same properties with fuzzed draws.
func FuzzMerge(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		checkMerge(t, drawStatus(t), drawStatus(t), chance(t, "could run"))
	}))
}

func TestWithProbeResults_MatchesStatus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, drawPod(t))
		old := derive.Status(in)
		results := drawProbeResults(t, in.Pod)
		over := derive.WithProbeResults(in.Pod, old, results)
		in.Probes, in.Previous = results, &old
		anew := derive.Status(in)
		for i := range over.ContainerStatuses {
			a, b := &over.ContainerStatuses[i], &anew.ContainerStatuses[i]
			if a.Ready != b.Ready || *a.Started != *b.Started {
				t.Fatalf("%s: got ready %v started %v, want ready %v started %v", a.Name, a.Ready, *a.Started, b.Ready, *b.Started)
			}
		}
		if again := derive.WithProbeResults(in.Pod, over, results); !derive.Equal(&over, &again) {
			t.Fatal("got a change from applying the results twice")
		}
	})
}

func TestTerminate_Final(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, drawPod(t))
		last := derive.Terminate(in.Pod, derive.Status(in))
		if in.Pod.Annotations == nil && !derive.IsTerminal(last.Phase) {
			t.Fatalf("got phase %s, want a terminal one", last.Phase)
		}
		requireConsistentReadiness(t, &last)
		again := derive.Terminate(in.Pod, last)
		if !derive.Equal(&last, &again) {
			t.Fatalf("terminating twice changes the status:\n%s", cmp.Diff(last, again))
		}
		in.Previous = &last
		if next := derive.Status(in); in.Pod.Annotations == nil && next.Phase != last.Phase {
			t.Fatalf("I1: got phase %s after %s", next.Phase, last.Phase)
		}
	})
}

func oneOf[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func chance(t *rapid.T, label string) bool { return rapid.Bool().Draw(t, label) }

// drawPod draws a pod of up to five containers, with policies and probes. It has no rule that restarts all containers: such
// a pod is a state machine of its own (GEN-34).
func drawPod(t *rapid.T) *v1.Pod {
	pod := newPod(oneOf(t, "policy", always, onFailure, never))
	for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
		c := newContainer(fmt.Sprintf("init%d", i))
		if chance(t, "sidecar") {
			c = newSidecar(c.Name)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, drawProbes(t, c))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := newContainer(fmt.Sprintf("c%d", 9-i))
		if chance(t, "own policy") {
			c = withRule(c.Name, oneOf(t, "own", v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever),
				v1.ContainerRestartRuleActionRestart)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, drawProbes(t, c))
	}
	if chance(t, "ephemeral") {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	}
	pod.Spec.HostNetwork = chance(t, "host network")
	if chance(t, "static") {
		asStatic(pod)
	}
	if chance(t, "gate") {
		pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "foreign/a"}}
	}
	return pod
}

func drawProbes(t *rapid.T, c v1.Container) v1.Container {
	if chance(t, "probed") {
		return withProbes(c)
	}
	return c
}

// drawRuntimePod draws the state of the pod in the runtime.
func drawRuntimePod(t *rapid.T, pod *v1.Pod) *observed.Pod {
	runtimePod := &observed.Pod{}
	sandboxes := rapid.IntRange(0, 2).Draw(t, "sandboxes")
	for i := range sandboxes {
		runtimePod.Sandboxes = append(runtimePod.Sandboxes, observed.Sandbox{
			ID: fmt.Sprintf("box%d", i), Ready: chance(t, "ready"), CreatedAt: noon.Add(time.Duration(i) * time.Minute),
		})
	}
	for _, name := range containerNames(pod) {
		last := rapid.IntRange(1, 3).Draw(t, "instance")
		for n := max(1, last-rapid.IntRange(0, 2).Draw(t, "instances")+1); n <= last; n++ {
			c := newInstance(name, n, oneOf(t, "state", observed.Unknown, observed.Created, observed.Running, observed.Exited))
			if c.State == observed.Exited {
				c = newExited(name, n, oneOf(t, "code", 0, 1, 42))
			}
			c.SandboxID = fmt.Sprintf("box%d", rapid.IntRange(0, 1).Draw(t, "sandbox"))
			runtimePod.Containers = append(runtimePod.Containers, c)
		}
	}
	runtimePod.Sort()
	return runtimePod
}

func containerNames(pod *v1.Pod) (names []string) {
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

func drawProbeResults(t *rapid.T, pod *v1.Pod) derive.ProbeResults {
	results := derive.ProbeResults{}
	values := []derive.ProbeResult{derive.ProbeUnknown, derive.ProbeSuccess, derive.ProbeFailure}
	for _, name := range containerNames(pod) {
		results[containerID(name, rapid.IntRange(1, 3).Draw(t, "instance"))] = derive.ContainerProbeResults{
			Startup: oneOf(t, "startup", values...), Readiness: oneOf(t, "readiness", values...),
		}
	}
	return results
}

// drawInput draws an input without a previous status.
func drawInput(t *rapid.T, pod *v1.Pod) derive.Input {
	in := derive.Input{
		Pod: pod, Observed: drawRuntimePod(t, pod), Probes: drawProbeResults(t, pod), Terminating: chance(t, "terminating"),
		Now: noon.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "clock")) * time.Second),
	}
	if chance(t, "cannot start") {
		in.Waiting = map[string]derive.Waiting{pod.Spec.Containers[0].Name: {Reason: "CrashLoopBackOff"}}
	}
	if rapid.IntRange(0, 9).Draw(t, "evict") == 0 {
		in.Eviction = &derive.Eviction{Reason: "Evicted"}
	}
	if chance(t, "addresses") {
		in.Node.HostIPs = parseIPs("192.168.0.1", "fd00::1")
	}
	return in
}

var phases = []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, ""}

// drawStatus draws a status as any writer may have left it.
func drawStatus(t *rapid.T) v1.PodStatus {
	status := v1.PodStatus{
		Phase:  oneOf(t, "phase", phases...),
		Reason: oneOf(t, "reason", "", "R", "bad\xff"), ObservedGeneration: rapid.Int64Range(0, 2).Draw(t, "generation"),
		NominatedNodeName: oneOf(t, "nominated", "", "n2"), QOSClass: oneOf(t, "qos", "", v1.PodQOSBurstable),
	}
	types := append([]v1.PodConditionType{"foreign/a", "foreign/b", v1.DisruptionTarget}, derive.OwnedConditions()...)
	for _, conditionType := range rapid.SliceOfDistinct(rapid.SampledFrom(types), rapid.ID).Draw(t, "conditions") {
		status.Conditions = append(status.Conditions, v1.PodCondition{
			Type: conditionType, Status: oneOf(t, "status", v1.ConditionTrue, v1.ConditionFalse), Reason: oneOf(t, "reason", "", "R"),
			LastTransitionTime: drawTime(t), ObservedGeneration: rapid.Int64Range(0, 2).Draw(t, "generation"),
		})
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"c9", "c8", "x"}), 0, 3, rapid.ID).Draw(t, "containers") {
		message := rapid.StringN(-1, -1, 40).Draw(t, "message") + oneOf(t, "tail", "", "\xe4\xb8", "\xff")
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: name, Ready: chance(t, "ready"),
			State: oneOf(t, "state", v1.ContainerState{}, waitingState("W", message), terminatedState(1, "E", message), v1.ContainerState{
				Running: &v1.ContainerStateRunning{StartedAt: drawTime(t)},
			}),
		})
	}
	if chance(t, "start") {
		start := drawTime(t)
		status.StartTime = &start
	}
	return status
}

func drawTime(t *rapid.T) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "time")) * 500 * time.Millisecond))
}
