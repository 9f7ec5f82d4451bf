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

var crashingPod = newPod(v1.RestartPolicyAlways, newContainer("a"))

// newCrash returns the nth instance of a, which exited just now.
func newCrash(n int, length time.Duration) observed.Container {
	return newExited("a", 1, restartCount(n), ran(length, 0))
}

func delayOf(t *testing.T, a plan.Actions) time.Duration {
	t.Helper()
	if len(a.Start) == 1 && len(a.Waiting) == 0 {
		return 0
	}
	if len(a.Start) != 0 || !a.RequeueAt.Equal(a.Waiting["a"].Until) {
		t.Fatalf("got neither start nor waiting: %+v", a)
	}
	return a.Waiting["a"].Until.Sub(now)
}

var delays = []time.Duration{
	0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute,
}

func TestBackoff_Delays(t *testing.T) {
	var backoff plan.Backoff
	for n, want := range delays {
		a := compute(crashingPod, newRuntimePod(readySandbox, newCrash(n, time.Second)), backoff)
		if got := delayOf(t, a); got != want {
			t.Errorf("after run %d: got %v, want %v", n, got, want)
		}
		backoff = a.Backoff
	}
}

func TestBackoff_AgentRestarted(t *testing.T) {
	for n, want := range delays {
		if got := delayOf(t, compute(crashingPod, newRuntimePod(readySandbox, newCrash(n, time.Second)), nil)); got != want {
			t.Errorf("after run %d: got %v, want %v", n, got, want)
		}
	}
	if got := delayOf(t, compute(crashingPod, newRuntimePod(readySandbox, newCrash(1_000_000_000, time.Second)), nil)); got != 5*time.Minute {
		t.Errorf("after many runs: got %v, want 5m", got)
	}
}

func TestBackoff_Message(t *testing.T) {
	a := compute(crashingPod, newRuntimePod(readySandbox, newCrash(1, time.Second)), nil)
	want := derive.Waiting{
		Reason:  "CrashLoopBackOff",
		Message: "back-off 10s restarting failed container=a pod=web_shop(u1)",
		Until:   now.Add(10 * time.Second),
	}
	if a.Waiting["a"] != want {
		t.Errorf("got %+v, want %+v", a.Waiting["a"], want)
	}
}

func TestBackoff_HealthyRun(t *testing.T) {
	before := compute(crashingPod, newRuntimePod(readySandbox, newCrash(6, time.Second)), nil).Backoff
	tests := map[string]struct {
		backoff plan.Backoff
		length  time.Duration
		want    time.Duration
	}{
		"known, long":        {before, 10*time.Minute + 1, 0},
		"known, too short":   {before, 10 * time.Minute, 5 * time.Minute},
		"unknown, long":      {nil, 10*time.Minute + 1, 0},
		"unknown, too short": {nil, 10 * time.Minute, 5 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := delayOf(t, compute(crashingPod, newRuntimePod(readySandbox, newCrash(7, test.length)), test.backoff)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	long := newExited("a", 1, restartCount(6), ran(time.Hour, time.Minute))
	if got := delayOf(t, compute(crashingPod, newRuntimePod(readySandbox, newCrash(7, time.Second), long), nil)); got != 10*time.Second {
		t.Errorf("long run before the last: got %v, want 10s", got)
	}
}

func TestBackoff_EditedContainer(t *testing.T) {
	hash := plan.HashContainer(&crashingPod.Spec.Containers[0])
	old := newExited("a", 1, restartCount(6), withHash(hash+1), ran(time.Second, time.Minute))
	edited := newCrash(7, time.Second)
	edited.SpecHash = hash
	backoff := compute(crashingPod, newRuntimePod(readySandbox, old), nil).Backoff
	tests := map[string]struct {
		backoff    plan.Backoff
		runtimePod *observed.Pod
		want       time.Duration
	}{
		"old version exited":                       {nil, newRuntimePod(readySandbox, old), 0},
		"new version exited once":                  {nil, newRuntimePod(readySandbox, edited, old), 0},
		"new version exited once, old record gone": {backoff, newRuntimePod(readySandbox, edited), 0},
		"nothing known":                            {nil, newRuntimePod(readySandbox, edited), 5 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := delayOf(t, compute(crashingPod, test.runtimePod, test.backoff)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestBackoff_FailedStart(t *testing.T) {
	runtimePod := newRuntimePod(readySandbox, newCrash(2, time.Second))
	first := compute(crashingPod, runtimePod, nil)
	again := plan.ComputeActions(plan.Input{Pod: crashingPod, Observed: runtimePod, Backoff: first.Backoff, Now: now.Add(20 * time.Second)})
	third := plan.ComputeActions(plan.Input{Pod: crashingPod, Observed: runtimePod, Backoff: again.Backoff, Now: now.Add(25 * time.Second)})
	if len(first.Start) != 0 || len(again.Start) != 1 || len(third.Start) != 1 {
		t.Errorf("got %q, %q, %q, want waiting, start, start", describe(first), describe(again), describe(third))
	}
}

func TestBackoff_ImpossibleTimes(t *testing.T) {
	future := newCrash(1, 0)
	future.Exit.FinishedAt = now.Add(time.Hour)
	unknown := newCrash(1, time.Second)
	unknown.Exit.FinishedAt, unknown.StartedAt = time.Time{}, time.Time{}
	for name, c := range map[string]observed.Container{"exit in the future": future, "no exit time": unknown} {
		first := compute(crashingPod, newRuntimePod(readySandbox, c), nil)
		if first.Waiting["a"].Until.Sub(now) > 10*time.Second || len(first.Start) != 0 {
			t.Errorf("%s: got %+v", name, first)
		}
		later := plan.ComputeActions(plan.Input{Pod: crashingPod, Observed: newRuntimePod(readySandbox, c), Backoff: first.Backoff, Now: now.Add(10 * time.Second)})
		if len(later.Start) != 1 {
			t.Errorf("%s: got %q after 10s, want a start", name, describe(later))
		}
	}
}

func TestF14_BackoffClockSetBack(t *testing.T) {
	runtimePod := newRuntimePod(readySandbox, newCrash(2, time.Second))
	back := now.Add(-time.Hour)
	first := compute(crashingPod, runtimePod, nil)
	again := plan.ComputeActions(plan.Input{Pod: crashingPod, Observed: runtimePod, Backoff: first.Backoff, Now: back})
	if wait := again.Waiting["a"].Until.Sub(back); wait <= 0 || wait > 20*time.Second {
		t.Errorf("got a wait of %v, want at most 20s", wait)
	}
	later := plan.ComputeActions(plan.Input{Pod: crashingPod, Observed: runtimePod, Backoff: again.Backoff, Now: back.Add(20 * time.Second)})
	if len(later.Start) != 1 {
		t.Errorf("got %q after 20s, want a start", describe(later))
	}
}

func TestBackoff_LivenessFailure(t *testing.T) {
	tests := map[string]struct {
		ran, before time.Duration
		count       int
		want        string
	}{
		"first run":              {time.Second, 0, 0, "stop a#0 LivenessProbe, start regular a#1"},
		"longer than the delay":  {90 * time.Second, time.Second, 4, "stop a#4 LivenessProbe, start regular a#5"},
		"shorter than the delay": {30 * time.Second, time.Second, 4, "stop a#4 LivenessProbe, a waits 49s"},
		"more than 10 minutes":   {11 * time.Minute, time.Second, 9, "stop a#9 LivenessProbe, start regular a#10"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			runtimePod := []observed.Container{newRunning("a", restartCount(test.count), func(c *observed.Container) {
				c.StartedAt = now.Add(-test.ran)
				c.CreatedAt = c.StartedAt
			})}
			if test.count > 0 {
				runtimePod = append(runtimePod, newExited("a", 1, restartCount(test.count-1), ran(time.Second, test.ran+test.before)))
			}
			got := plan.ComputeActions(plan.Input{
				Pod: crashingPod, Observed: newRuntimePod(readySandbox, runtimePod...), Now: now,
				Unhealthy: map[observed.ContainerID]string{runtimePod[0].ID: ""},
			})
			if describe(got) != test.want {
				t.Errorf("got %q, want %q", describe(got), test.want)
			}
		})
	}
}

func TestBackoff_NewSandbox(t *testing.T) {
	looping := newRunning("a", restartCount(4), createdAgo(30*time.Second), func(c *observed.Container) { c.StartedAt = c.CreatedAt })
	before := newExited("a", 1, restartCount(3), ran(time.Second, 31*time.Second))
	runActionTests(t, map[string]actionTest{"delay continues": {crashingPod, newRuntimePod(deadSandbox(0), looping, before), "kill, sandbox 1, a waits 49s"}})
}

func TestBackoff_Bounded(t *testing.T) {
	foreign := plan.BackoffKey{Name: "gone", Hash: 1}
	backoff := plan.Backoff{foreign: {Runs: 3}}
	got := compute(crashingPod, newRuntimePod(readySandbox, newCrash(1, time.Second), newExited("other", 1)), backoff)
	if len(got.Backoff) != 1 || len(backoff) != 1 || backoff[foreign].Runs != 3 {
		t.Errorf("got %v, and the input changed to %v", got.Backoff, backoff)
	}
	names := make([]string, 0, 1)
	for key := range got.Backoff {
		names = append(names, key.Name)
	}
	if !slices.Equal(names, []string{"a"}) {
		t.Errorf("got back-off of %v, want a", names)
	}
}
