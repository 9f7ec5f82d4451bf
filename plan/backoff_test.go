package plan_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

var crashing = newPod(v1.RestartPolicyAlways, container("a"))

// crash is the nth instance of a, which ended now.
func crash(n int, length time.Duration) observed.Container {
	return exited("a", 1, count(n), ran(length, 0))
}

func delayAfter(t *testing.T, a plan.Actions) time.Duration {
	t.Helper()
	if len(a.Start) == 1 && len(a.Waiting) == 0 {
		return 0
	}
	if len(a.Start) != 0 || !a.RequeueAt.Equal(a.Waiting["a"].Until) {
		t.Fatalf("neither started nor waiting: %+v", a)
	}
	return a.Waiting["a"].Until.Sub(now)
}

var delays = []time.Duration{
	0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute,
}

func TestCrashLoopDelaysDoubleFrom10SecondsTo5Minutes(t *testing.T) {
	var memory plan.Backoff
	for n, want := range delays {
		a := next(crashing, saw(ready, crash(n, time.Second)), memory)
		if got := delayAfter(t, a); got != want {
			t.Errorf("after run %d: %v, want %v", n, got, want)
		}
		memory = a.Backoff
	}
}

func TestAnAgentThatForgotComputesTheSameDelays(t *testing.T) {
	for n, want := range delays {
		if got := delayAfter(t, next(crashing, saw(ready, crash(n, time.Second)), nil)); got != want {
			t.Errorf("after run %d: %v, want %v", n, got, want)
		}
	}
	if got := delayAfter(t, next(crashing, saw(ready, crash(1_000_000_000, time.Second)), nil)); got != 5*time.Minute {
		t.Errorf("after very many runs: %v", got)
	}
}

func TestTheMessageOfABackOffIsTheKubelets(t *testing.T) {
	a := next(crashing, saw(ready, crash(1, time.Second)), nil)
	want := derive.Waiting{
		Reason:  "CrashLoopBackOff",
		Message: "back-off 10s restarting failed container=a pod=web_shop(u1)",
		Until:   now.Add(10 * time.Second),
	}
	if a.Waiting["a"] != want {
		t.Errorf("got %+v, want %+v", a.Waiting["a"], want)
	}
}

func TestARunOfMoreThan10MinutesEndsACrashLoop(t *testing.T) {
	before := next(crashing, saw(ready, crash(6, time.Second)), nil).Backoff
	tests := map[string]struct {
		memory plan.Backoff
		length time.Duration
		want   time.Duration
	}{
		"remembered, long":      {before, 10*time.Minute + 1, 0},
		"remembered, too short": {before, 10 * time.Minute, 5 * time.Minute},
		"forgotten, long":       {nil, 10*time.Minute + 1, 0},
		"forgotten, too short":  {nil, 10 * time.Minute, 5 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := delayAfter(t, next(crashing, saw(ready, crash(7, test.length)), test.memory)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	long := exited("a", 1, count(6), ran(time.Hour, time.Minute))
	if got := delayAfter(t, next(crashing, saw(ready, crash(7, time.Second), long), nil)); got != 10*time.Second {
		t.Errorf("the run before the last was long: %v, want 10s", got)
	}
}

func TestAnEditEndsACrashLoop(t *testing.T) {
	hash := plan.HashContainer(&crashing.Spec.Containers[0])
	old := exited("a", 1, count(6), hashed(hash+1), ran(time.Second, time.Minute))
	edited := crash(7, time.Second)
	edited.SpecHash = hash
	memory := next(crashing, saw(ready, old), nil).Backoff
	tests := map[string]struct {
		memory plan.Backoff
		seen   *observed.Pod
		want   time.Duration
	}{
		"the old version ended":                   {nil, saw(ready, old), 0},
		"the new one ended once":                  {nil, saw(ready, edited, old), 0},
		"the new one ended once, the old is gone": {memory, saw(ready, edited), 0},
		"by an agent that knows neither":          {nil, saw(ready, edited), 5 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := delayAfter(t, next(crashing, test.seen, test.memory)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestAFailedStartDoesNotLengthenTheBackOff(t *testing.T) {
	seen := saw(ready, crash(2, time.Second))
	first := next(crashing, seen, nil)
	again := plan.ComputeActions(plan.Input{Pod: crashing, Observed: seen, Backoff: first.Backoff, Now: now.Add(20 * time.Second)})
	third := plan.ComputeActions(plan.Input{Pod: crashing, Observed: seen, Backoff: again.Backoff, Now: now.Add(25 * time.Second)})
	if len(first.Start) != 0 || len(again.Start) != 1 || len(third.Start) != 1 {
		t.Errorf("waits, is due and stays due: %q, %q, %q", told(first), told(again), told(third))
	}
}

func TestTimesThatCannotBeDoNotStretchABackOff(t *testing.T) {
	future := crash(1, 0)
	future.Exit.FinishedAt = now.Add(time.Hour)
	unknown := crash(1, time.Second)
	unknown.Exit.FinishedAt, unknown.StartedAt = time.Time{}, time.Time{}
	for name, c := range map[string]observed.Container{"ends in the future": future, "does not say when": unknown} {
		first := next(crashing, saw(ready, c), nil)
		if first.Waiting["a"].Until.Sub(now) > 10*time.Second || len(first.Start) != 0 {
			t.Errorf("%s: %+v", name, first)
		}
		later := plan.ComputeActions(plan.Input{Pod: crashing, Observed: saw(ready, c), Backoff: first.Backoff, Now: now.Add(10 * time.Second)})
		if len(later.Start) != 1 {
			t.Errorf("%s, 10 s later: %q", name, told(later))
		}
	}
}

func TestF14AClockThatIsSetBackDoesNotStretchABackOff(t *testing.T) {
	seen := saw(ready, crash(2, time.Second))
	back := now.Add(-time.Hour)
	first := next(crashing, seen, nil)
	again := plan.ComputeActions(plan.Input{Pod: crashing, Observed: seen, Backoff: first.Backoff, Now: back})
	if wait := again.Waiting["a"].Until.Sub(back); wait <= 0 || wait > 20*time.Second {
		t.Errorf("it waits for %v, want at most 20 s", wait)
	}
	later := plan.ComputeActions(plan.Input{Pod: crashing, Observed: seen, Backoff: again.Backoff, Now: back.Add(20 * time.Second)})
	if len(later.Start) != 1 {
		t.Errorf("20 s later: %q", told(later))
	}
}

func TestAContainerThatFailsItsProbesLateIsReplacedAtOnceAndOneThatFailsEarlyWaits(t *testing.T) {
	tests := map[string]struct {
		ran, before time.Duration
		count       int
		want        string
	}{
		"its first run":          {time.Second, 0, 0, "stop a#0 LivenessProbe, start regular a#1"},
		"longer than the delay":  {90 * time.Second, time.Second, 4, "stop a#4 LivenessProbe, start regular a#5"},
		"shorter than the delay": {30 * time.Second, time.Second, 4, "stop a#4 LivenessProbe, a waits 49s"},
		"more than 10 minutes":   {11 * time.Minute, time.Second, 9, "stop a#9 LivenessProbe, start regular a#10"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen := []observed.Container{running("a", count(test.count), func(c *observed.Container) {
				c.StartedAt = now.Add(-test.ran)
				c.CreatedAt = c.StartedAt
			})}
			if test.count > 0 {
				seen = append(seen, exited("a", 1, count(test.count-1), ran(time.Second, test.ran+test.before)))
			}
			got := plan.ComputeActions(plan.Input{
				Pod: crashing, Observed: saw(ready, seen...), Now: now,
				Unhealthy: map[observed.ContainerID]string{seen[0].ID: ""},
			})
			if told(got) != test.want {
				t.Errorf("got %q, want %q", told(got), test.want)
			}
		})
	}
}

func TestACrashLoopIsNotForgottenInANewSandbox(t *testing.T) {
	looping := running("a", count(4), createdAgo(30*time.Second), func(c *observed.Container) { c.StartedAt = c.CreatedAt })
	before := exited("a", 1, count(3), ran(time.Second, 31*time.Second))
	check(t, map[string]decision{"its delay goes on": {crashing, saw(dead(0), looping, before), "kill, sandbox 1, a waits 49s"}})
}

func TestTheMemoryIsBoundedByThePodsContainersAndItsOwnersIsLeftAlone(t *testing.T) {
	foreign := plan.BackoffKey{Name: "gone", Hash: 1}
	memory := plan.Backoff{foreign: {Runs: 3}}
	got := next(crashing, saw(ready, crash(1, time.Second), exited("other", 1)), memory)
	if len(got.Backoff) != 1 || len(memory) != 1 || memory[foreign].Runs != 3 {
		t.Errorf("kept %v, and changed what it was given to %v", got.Backoff, memory)
	}
	names := make([]string, 0, 1)
	for key := range got.Backoff {
		names = append(names, key.Name)
	}
	if !slices.Equal(names, []string{"a"}) {
		t.Errorf("remembers %v", names)
	}
}
