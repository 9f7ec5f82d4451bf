package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func TestInitContainersRunOneAfterTheOther(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, container("a"), container("b")), container("i"), container("j"))
	check(t, map[string]decision{
		"none has run":                       {pod, saw(ready), "start init i#0"},
		"the first runs":                     {pod, saw(ready, running("i")), ""},
		"the first was never started":        {pod, saw(ready, instance("i", observed.Created)), "start init i#0"},
		"the first succeeded":                {pod, saw(ready, exited("i", 0)), "start init j#0"},
		"the first failed":                   {pod, saw(ready, exited("i", 1)), "start init i#1"},
		"the first is unknown":               {pod, saw(ready, instance("i", observed.Unknown)), "stop i#0 Unknown, start init i#1"},
		"the second runs":                    {pod, saw(ready, exited("i", 0), running("j")), ""},
		"the second runs, record is gone":    {pod, saw(ready, running("j")), ""},
		"all succeeded":                      {pod, saw(ready, exited("i", 0), exited("j", 0)), "start regular a#0, start regular b#0"},
		"the last succeeded, record is gone": {pod, saw(ready, exited("j", 0)), "start regular a#0, start regular b#0"},
		"all records are gone":               {pod, saw(ready, running("a"), running("b")), ""},
		"one regular container is there":     {pod, saw(ready, running("a")), "start regular b#0"},
		"a regular one that ended is enough": {pod, saw(ready, exited("a", 1)), "start regular a#1, start regular b#0"},
	})
}

func TestAFailedInitContainerIsRetriedAsItsPolicySays(t *testing.T) {
	with := func(policy v1.RestartPolicy, init v1.Container) *v1.Pod {
		return withInit(newPod(policy, container("a")), init)
	}
	never, onFailure := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	rule := ruled("i", v1.ContainerRestartRuleActionRestart)
	failed, by42 := saw(ready, exited("i", 1)), saw(ready, exited("i", 42))
	lost := saw(ready, instance("i", observed.Unknown))
	check(t, map[string]decision{
		"always":                            {with(v1.RestartPolicyAlways, container("i")), failed, "start init i#1"},
		"on failure":                        {with(v1.RestartPolicyOnFailure, container("i")), failed, "start init i#1"},
		"never":                             {with(v1.RestartPolicyNever, container("i")), failed, "done"},
		"never, but its own is on failure":  {with(v1.RestartPolicyNever, withPolicy("i", onFailure)), failed, "start init i#1"},
		"always, but its own is never":      {with(v1.RestartPolicyAlways, withPolicy("i", never)), failed, "done"},
		"its rule restarts it":              {with(v1.RestartPolicyNever, rule), by42, "start init i#1"},
		"its rule is for another exit code": {with(v1.RestartPolicyNever, rule), failed, "done"},
		"unknown, never":                    {with(v1.RestartPolicyNever, container("i")), lost, "done"},
		"unknown, but its work was done":    {with(v1.RestartPolicyNever, container("i")), saw(ready, instance("i", observed.Unknown), running("a")), ""},
		"unknown, rules are not asked":      {with(v1.RestartPolicyNever, rule), lost, "done"},
	})
}

func TestPH16AnInitContainerKilledForWantOfMemoryHasFailedEvenWithExitCode0(t *testing.T) {
	killed := saw(ready, exited("i", 0, because("OOMKilled")))
	check(t, map[string]decision{
		"always":     {withInit(newPod(v1.RestartPolicyAlways, container("a")), container("i")), killed, "start init i#1"},
		"on failure": {withInit(newPod(v1.RestartPolicyOnFailure, container("a")), container("i")), killed, "start init i#1"},
		"never":      {withInit(newPod(v1.RestartPolicyNever, container("a")), container("i")), killed, "done"},
	})
}

func TestAnInitContainerThatRunsIsNotStoppedForAnEdit(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, container("a")), container("i"))
	check(t, map[string]decision{"edited": {pod, saw(ready, running("i", hashed(1))), ""}})
}

func TestSidecarsStartInOrderAndAreKeptUp(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyNever, container("a")), sidecar("s"), container("i"), sidecar("z"))
	check(t, map[string]decision{
		"first of all":                        {pod, saw(ready), "start sidecar s#0"},
		"running, the next may begin":         {pod, saw(ready, running("s")), "start init i#0"},
		"ended before the next began":         {pod, saw(ready, exited("s", 0)), "start sidecar s#1"},
		"restarted beside an init container":  {pod, saw(ready, exited("s", 1), running("i")), "start sidecar s#1"},
		"created, never started":              {pod, saw(ready, instance("s", observed.Created), running("i")), "start sidecar s#0"},
		"unknown":                             {pod, saw(ready, instance("s", observed.Unknown), running("i")), "stop s#0 Unknown, start sidecar s#1"},
		"the last one runs":                   {pod, saw(ready, running("s"), exited("i", 0), running("z")), "start regular a#0"},
		"restarted before regular containers": {pod, saw(ready, running("s"), exited("z", 1)), "start sidecar z#1"},
		"restarted beside regular containers": {pod, saw(ready, exited("s", 1), running("z"), running("a")), "start sidecar s#1"},
		"its record is gone":                  {pod, saw(ready, running("z"), running("a")), "start sidecar s#0"},
		"edited":                              {pod, saw(ready, running("s", hashed(1)), running("z"), running("a")), "stop s#0 DefinitionChanged, start sidecar s#1"},
		"not restarted when all is over":      {pod, saw(ready, exited("s", 1), running("z"), exited("a", 0)), "done"},
		"stopped by the end of an init":       {pod, saw(ready, running("s"), exited("i", 1)), "done"},
	})
}

func TestTheNextInitContainerWaitsForASidecarsStartupProbe(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, container("a")), withStartupProbe(sidecar("s")), container("i"))
	seen := saw(ready, running("s"))
	tests := map[string]struct {
		started   bool
		unhealthy bool
		want      string
	}{
		"not started yet": {want: ""},
		"started":         {started: true, want: "start init i#0"},
		"gave up":         {unhealthy: true, want: "stop s#0 StartupProbe, start sidecar s#1"},
		"died later":      {started: true, unhealthy: true, want: "stop s#0 LivenessProbe, start sidecar s#1, start init i#0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{Pod: pod, Observed: seen, Now: now, Started: map[observed.ContainerID]bool{id("s#0"): test.started}}
			if test.unhealthy {
				in.Unhealthy = map[observed.ContainerID]string{id("s#0"): ""}
			}
			if got := told(plan.ComputeActions(in)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAnInitContainerInBackOffKeepsAllAfterItWaiting(t *testing.T) {
	pod := withInit(newPod(v1.RestartPolicyAlways, container("a")), sidecar("s"), container("i"))
	seen := saw(ready, running("s"), exited("i", 1, count(1), ran(time.Second, time.Second)))
	check(t, map[string]decision{"10 s": {pod, seen, "i waits 9s"}})
}
