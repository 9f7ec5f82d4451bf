package plan_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

// anySeen is whatever a runtime may claim of a pod, also what cannot be.
func anySeen(t *rapid.T, pod *v1.Pod) *observed.Pod {
	at := func(label string) time.Time {
		if rapid.IntRange(0, 9).Draw(t, label+" is missing") == 0 {
			return time.Time{}
		}
		return now.Add(time.Duration(rapid.IntRange(-2000, 100).Draw(t, label)) * time.Second)
	}
	seen := &observed.Pod{}
	for i := range rapid.IntRange(0, 3).Draw(t, "sandboxes") {
		s := ready
		s.ID, s.Attempt, s.CreatedAt = fmt.Sprintf("s%d", i), uint32(i), at("sandbox created")
		s.Ready = rapid.Bool().Draw(t, "ready")
		seen.Sandboxes = append(seen.Sandboxes, s)
	}
	names := []string{"stranger"}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		names = append(names, c.Name)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "containers") {
		c := observed.Container{
			ID:   id(fmt.Sprint(i)),
			Name: rapid.SampledFrom(names).Draw(t, "name"), SandboxID: fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "in sandbox")),
			State:        observed.State(rapid.IntRange(0, 3).Draw(t, "state")),
			RestartCount: rapid.IntRange(-1, 9).Draw(t, "restarts"), CreatedAt: at("created"), StartedAt: at("started"),
			SpecHash: rapid.SampledFrom([]uint64{0, 0, 1}).Draw(t, "hash"),
		}
		if rapid.IntRange(0, 9).Draw(t, "exit") != 0 {
			c.Exit = &observed.Exit{Code: rapid.SampledFrom([]int{0, 1, 42, -1}).Draw(t, "code"), FinishedAt: at("finished")}
		}
		seen.Containers = append(seen.Containers, c)
	}
	seen.Sort()
	return seen
}

// mustMakeSense holds actions against what is promised of them for any input.
func mustMakeSense(t *rapid.T, in plan.Input, a plan.Actions) {
	if (a.Done || a.Evict != nil) && (a.KillPod || a.Sandbox != nil || len(a.Stop)+len(a.Start)+len(a.Waiting) > 0) {
		t.Fatalf("done, and yet %q", told(a))
	}
	stops := map[observed.ContainerID]bool{}
	for _, s := range a.Stop {
		if stops[s.ID] {
			t.Fatalf("%s is stopped twice", s.ID)
		}
		stops[s.ID] = true
	}
	starts := map[string]bool{}
	for _, s := range a.Start {
		if _, waits := a.Waiting[s.Container.Name]; starts[s.Container.Name] || waits {
			t.Fatalf("%s is started twice, or waits: %q", s.Container.Name, told(a))
		}
		starts[s.Container.Name] = true
		for _, c := range in.Observed.Instances(s.Container.Name) {
			if c.State == observed.Running && !a.KillPod && !stops[c.ID] {
				t.Fatalf("%s is started beside an instance that runs: %q", s.Container.Name, told(a))
			}
		}
	}
	for name, w := range a.Waiting {
		if !w.Until.After(in.Now) || w.Until.Sub(in.Now) > 5*time.Minute || a.RequeueAt.After(w.Until) {
			t.Fatalf("%s waits until %v, now is %v, wake at %v", name, w.Until, in.Now, a.RequeueAt)
		}
	}
}

func anyInputMakesSense(t *rapid.T) {
	pod := anyPod(t)
	in := plan.Input{Pod: pod, Observed: anySeen(t, pod), Now: now, Unhealthy: map[observed.ContainerID]string{id("0"): ""}}
	first := plan.ComputeActions(in)
	mustMakeSense(t, in, first)
	in.Backoff = first.Backoff
	if again := plan.ComputeActions(in); told(again) != told(first) {
		t.Fatalf("first %q, then with its own memory %q", told(first), told(again))
	}
	in.Now = now.Add(time.Duration(rapid.IntRange(-4000, 4000).Draw(t, "the clock jumps")) * time.Second)
	mustMakeSense(t, in, plan.ComputeActions(in))
	placed := map[observed.ContainerID]bool{}
	for _, e := range plan.TerminationOrder(pod, in.Observed, time.Minute) {
		for _, before := range e.After {
			if !placed[before] {
				t.Fatalf("%s waits for %s, which does not come before it", e.Stop.ID, before)
			}
		}
		placed[e.Stop.ID] = true
	}
	for _, c := range in.Observed.Containers {
		if c.State == observed.Running && !placed[c.ID] {
			t.Fatalf("%s is left running", c.ID)
		}
	}
}

func TestAnyInputMakesSense(t *testing.T) { rapid.Check(t, anyInputMakesSense) }

func FuzzNext(f *testing.F) { f.Fuzz(rapid.MakeFuzz(anyInputMakesSense)) }
