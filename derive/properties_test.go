package derive_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/heraldnode/herald/derive"
)

// life plays a pod's life: one status after the other, each from what the runtime and the probes happen to say, with a
// clock that jumps. Now and then the API server's copy catches up with what was published.
func life(t *rapid.T, pod *v1.Pod, look func(in derive.Input, next v1.PodStatus)) {
	var previous *v1.PodStatus
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		in := drawInput(t, pod)
		in.Previous = previous
		next := derive.Status(in)
		look(in, next)
		if chance(t, "the API catches up") {
			pod = pod.DeepCopy()
			pod.Status = next
		}
		previous = &next
	}
}

func TestInvariantsHoldAlongAPodsLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		life(t, drawPod(t), func(in derive.Input, next v1.PodStatus) {
			hasAStatusForEachContainer(t, in.Pod, &next)
			readinessAgrees(t, &next)
			if in.Previous == nil {
				return
			}
			last := in.Previous
			if derive.IsTerminal(last.Phase) && next.Phase != last.Phase {
				t.Fatalf("I1: %s became %s", last.Phase, next.Phase)
			}
			if last.Phase == v1.PodRunning && next.Phase == v1.PodPending && len(in.Pod.Spec.InitContainers) == 0 {
				t.Fatal("BUG-42: a running pod that needs no initialization is Pending")
			}
			if !next.StartTime.Equal(last.StartTime) {
				t.Fatalf("I4: the start time moved from %v to %v", last.StartTime, next.StartTime)
			}
			for i := range next.ContainerStatuses {
				if next.ContainerStatuses[i].RestartCount < last.ContainerStatuses[i].RestartCount {
					t.Fatalf("I3: the restart count of %s fell", next.ContainerStatuses[i].Name)
				}
			}
			timesFollowStatuses(t, last.Conditions, next.Conditions)
		})
	})
}

func hasAStatusForEachContainer(t *rapid.T, pod *v1.Pod, status *v1.PodStatus) {
	names := map[string]int{}
	for _, list := range []statuses{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			names[list[i].Name]++
			if s := list[i].State; s.Waiting == nil && s.Running == nil && s.Terminated == nil {
				t.Fatalf("%s is in no state", list[i].Name)
			}
		}
	}
	for _, name := range allNames(pod) {
		if names[name] != 1 {
			t.Fatalf("%d statuses of %s", names[name], name)
		}
	}
	if len(names) != len(allNames(pod)) {
		t.Fatalf("statuses of %v, containers are %v", names, allNames(pod))
	}
}

func readinessAgrees(t *rapid.T, status *v1.PodStatus) {
	holds := func(kind v1.PodConditionType) bool {
		return slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind && c.Status == v1.ConditionTrue })
	}
	if holds(v1.PodReady) && (!holds(v1.ContainersReady) || derive.IsTerminal(status.Phase)) {
		t.Fatalf("Ready in phase %s, with %+v", status.Phase, status.Conditions)
	}
}

func timesFollowStatuses(t *rapid.T, old, next []v1.PodCondition) {
	for _, condition := range next {
		i := slices.IndexFunc(old, func(c v1.PodCondition) bool { return c.Type == condition.Type })
		if i < 0 {
			continue
		}
		same := condition.LastTransitionTime.Equal(&old[i].LastTransitionTime)
		if condition.Status == old[i].Status && !same || condition.LastTransitionTime.Before(&old[i].LastTransitionTime) {
			t.Fatalf("I6: %+v became %+v", old[i], condition)
		}
	}
}

// At rest nothing is sent (I10): the same look at the same world says the same again. The second look may still forget
// the ID of a container whose record was collected, as in the kubelet; what was told of the pod stands at once.
func TestTheSameInputSaysTheSameAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		life(t, drawPod(t), func(in derive.Input, once v1.PodStatus) {
			look := func(previous *v1.PodStatus) v1.PodStatus {
				in.Previous = previous
				in.Now = in.Now.Add(time.Hour)
				return derive.Status(in)
			}
			twice := look(&once)
			if twice.Phase != once.Phase || !cmp.Equal(once.Conditions, twice.Conditions) {
				t.Fatalf("-first +second\n%s", cmp.Diff(once, twice))
			}
			if thrice := look(&twice); !derive.Equal(&twice, &thrice) {
				t.Fatalf("-second +third\n%s", cmp.Diff(twice, thrice))
			}
		})
	})
}

func TestInputsAreNotChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod, previous := drawPod(t), drawStatus(t)
		in := drawInput(t, pod)
		in.Previous = &previous
		podBefore, previousBefore := pod.DeepCopy(), previous.DeepCopy()
		got := derive.Status(in)
		derive.Terminate(pod, derive.WithProbeResults(pod, got, drawFacts(t, pod)))
		derive.Merge(previous, got, chance(t, "could run"), later)
		derive.WithSandboxReady(pod, previous)
		derive.Normalize(pod, previous)
		if diff := cmp.Diff(podBefore, pod) + cmp.Diff(previousBefore, &previous); diff != "" {
			t.Fatal(diff)
		}
	})
}

// sameByReflection is SM-32 as it is written, on top of apimachinery's comparison.
func sameByReflection(a, b *v1.PodStatus) bool {
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

func TestSM32EqualIsAnEquivalenceAndAgreesWithReflection(t *testing.T) {
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
			t.Fatal("not equal to itself")
		}
		if derive.Equal(&a, &b) != derive.Equal(&b, &a) {
			t.Fatal("not the same in both directions")
		}
		if derive.Equal(&a, &b) && derive.Equal(&b, &c) && !derive.Equal(&a, &c) {
			t.Fatal("not transitive")
		}
		if derive.Equal(&a, &b) != sameByReflection(&a, &b) {
			t.Fatalf("Equal is %v, by reflection it is not", derive.Equal(&a, &b))
		}
	})
}

func TestNormalizeIsIdempotentAndBoundsMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod, before := drawPod(t), drawStatus(t)
		for i := range before.ContainerStatuses {
			if end := before.ContainerStatuses[i].State.Terminated; end != nil {
				end.Message = strings.Repeat(end.Message, rapid.IntRange(1, 1000).Draw(t, "times"))
			}
		}
		once, changed := derive.Normalize(pod, before)
		if changed == cmp.Equal(before, once) {
			t.Fatalf("changed is %v", changed)
		}
		if _, again := derive.Normalize(pod, once); again {
			t.Fatal("a normal status was changed")
		}
		for i := range once.ContainerStatuses {
			end := once.ContainerStatuses[i].State.Terminated
			if end != nil && len(end.Message) > 12288/len(allNames(pod)) {
				t.Fatalf("%d bytes of message in a pod of %d containers", len(end.Message), len(allNames(pod)))
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
		t.Fatalf("I7: others' conditions changed:\n%s", diff)
	}
	if merged.NominatedNodeName != api.NominatedNodeName || (api.QOSClass != "" && merged.QOSClass != api.QOSClass) {
		t.Fatalf("I7: a foreign field changed")
	}
	if derive.IsTerminal(api.Phase) && merged.Phase != api.Phase {
		t.Fatalf("I1: %s became %s", api.Phase, merged.Phase)
	}
	if couldRun && derive.IsTerminal(merged.Phase) && !derive.IsTerminal(api.Phase) {
		t.Fatalf("told as %s while containers could run", merged.Phase)
	}
	seenTypes := map[v1.PodConditionType]bool{}
	for _, c := range merged.Conditions {
		if seenTypes[c.Type] {
			t.Fatalf("condition %s twice", c.Type)
		}
		seenTypes[c.Type] = true
		if derive.IsTerminal(merged.Phase) && c.Status == v1.ConditionTrue && (c.Type == v1.PodReady || c.Type == v1.ContainersReady) {
			t.Fatalf("SM-70: %s and %s", merged.Phase, c.Type)
		}
	}
	if again := derive.Merge(merged, ours, couldRun, later); !derive.Equal(&merged, &again) {
		t.Fatalf("I10: sent again, it changes:\n%s", cmp.Diff(merged, again))
	}
}

func TestMergeKeepsWhatIsNotOursAndComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkMerge(t, drawStatus(t), drawStatus(t), chance(t, "could run"))
	})
}

// FuzzMerge lets the fuzzer steer the same draws.
func FuzzMerge(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		checkMerge(t, drawStatus(t), drawStatus(t), chance(t, "could run"))
	}))
}

func TestProbeFactsLaidOverAreThoseComputedAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, drawPod(t))
		old := derive.Status(in)
		facts := drawFacts(t, in.Pod)
		over := derive.WithProbeResults(in.Pod, old, facts)
		in.Probes, in.Previous = facts, &old
		anew := derive.Status(in)
		for i := range over.ContainerStatuses {
			a, b := &over.ContainerStatuses[i], &anew.ContainerStatuses[i]
			if a.Ready != b.Ready || *a.Started != *b.Started {
				t.Fatalf("%s: laid over ready %v started %v, anew ready %v started %v", a.Name, a.Ready, *a.Started, b.Ready, *b.Started)
			}
		}
		if again := derive.WithProbeResults(in.Pod, over, facts); !derive.Equal(&over, &again) {
			t.Fatal("laid over twice, it changes")
		}
	})
}

func TestTheLastStatusIsFinal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, drawPod(t))
		last := derive.Terminate(in.Pod, derive.Status(in))
		if in.Pod.Annotations == nil && !derive.IsTerminal(last.Phase) {
			t.Fatalf("phase %s", last.Phase)
		}
		readinessAgrees(t, &last)
		again := derive.Terminate(in.Pod, last)
		if !derive.Equal(&last, &again) {
			t.Fatalf("ended twice, it changes:\n%s", cmp.Diff(last, again))
		}
		in.Previous = &last
		if next := derive.Status(in); in.Pod.Annotations == nil && next.Phase != last.Phase {
			t.Fatalf("I1: %s became %s", last.Phase, next.Phase)
		}
	})
}
