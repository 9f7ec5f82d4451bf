package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// probedContainer declares a startup and a readiness probe.
func probedContainer(c v1.Container) v1.Container {
	c.StartupProbe, c.ReadinessProbe = &v1.Probe{}, &v1.Probe{}
	return c
}

func TestStartedAndReadyFollowTheProbesOfThisVeryContainer(t *testing.T) {
	const undecided, passed, failed = derive.ProbeUnknown, derive.ProbeSuccess, derive.ProbeFailure
	unprobed, probed := container("a"), probedContainer(container("a"))
	type flags struct{ Started, Ready bool }
	tests := map[string]struct {
		spec     v1.Container
		state    observed.State
		facts    derive.ContainerProbeResults
		of       int // the instance that the facts are about
		previous statuses
		want     flags
	}{
		"PRB-32 not running is not started":                  {spec: unprobed, state: observed.Created, facts: derive.ContainerProbeResults{Startup: passed}, of: 1},
		"PRB-32 no startup probe, running is started":        {spec: unprobed, state: observed.Running, want: flags{true, true}},
		"PRB-32 a startup probe that has not spoken":         {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Readiness: passed}, of: 1},
		"PRB-32 that passed":                                 {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: passed, Readiness: passed}, of: 1, want: flags{true, true}},
		"PRB-32 that failed":                                 {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: failed, Readiness: passed}, of: 1},
		"PRB-32 that failed after it was told as started":    {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: failed}, of: 1, previous: statuses{ready(running("a"))}},
		"PRB-33 a readiness probe that has not spoken":       {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: passed}, of: 1, want: flags{true, false}},
		"PRB-33 that failed":                                 {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: passed, Readiness: failed}, of: 1, want: flags{true, false}},
		"PRB-34 what was told is kept until a probe speaks":  {spec: probed, state: observed.Running, previous: statuses{ready(running("a"))}, want: flags{true, true}},
		"PRB-34 also that it was not ready":                  {spec: probed, state: observed.Running, previous: statuses{started(running("a"))}, want: flags{true, false}},
		"PH-38 started is kept":                              {spec: probed, state: observed.Running, previous: statuses{started(running("a"))}, want: flags{true, false}},
		"PH-38 but not of another container of the name":     {spec: probed, state: observed.Running, previous: statuses{{Name: "a", ContainerID: "test://a-0", State: runState(), Started: new(true), Ready: true}}},
		"SM-14 a result for a container that was replaced":   {spec: probed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: passed, Readiness: passed}, of: 9},
		"PRB-33 a terminated container is not ready":         {spec: unprobed, state: observed.Exited, facts: derive.ContainerProbeResults{Readiness: passed}, of: 1, previous: statuses{ready(running("a"))}},
		"PRB-33 nor one whose record was collected":          {spec: unprobed, state: -1, previous: statuses{ready(exited("a", 0))}},
		"PRB-33 a readiness fact without a probe counts too": {spec: unprobed, state: observed.Running, facts: derive.ContainerProbeResults{Startup: undecided, Readiness: failed}, of: 1, want: flags{true, false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := seen("a", 1, test.state)
			if test.state == observed.Exited {
				c = seenExit("a", 1, 0)
			}
			world := world(c)
			if test.state == -1 {
				world.Containers = nil
			}
			in := derive.Input{
				Pod: newPod(never, test.spec), Observed: world, Probes: derive.ProbeResults{idOf("a", test.of): test.facts},
				Previous: &v1.PodStatus{ContainerStatuses: test.previous},
			}
			got := status(in)
			a := got.ContainerStatuses[0]
			mustEqual(t, flags{*a.Started, a.Ready}, test.want)
			if isReady := condition(t, got, v1.PodReady).Status == v1.ConditionTrue; isReady != test.want.Ready {
				t.Errorf("the pod is Ready: %v", isReady)
			}
		})
	}
}

func TestPRB35AnInitContainerIsReadyWhenItHasDoneItsWork(t *testing.T) {
	pod := withInit(newPod(always, container("a")), container("init"), sidecar("log"))
	tests := map[string]struct {
		seen []observed.Container
		want []bool // ready: init, log
	}{
		"it runs":                   {[]observed.Container{seen("init", 1, observed.Running)}, []bool{false, false}},
		"it failed":                 {[]observed.Container{seenExit("init", 1, 1)}, []bool{false, false}},
		"it has, the sidecar waits": {[]observed.Container{seenExit("init", 1, 0)}, []bool{true, false}},
		"and the sidecar runs":      {[]observed.Container{seenExit("init", 1, 0), seen("log", 1, observed.Running)}, []bool{true, true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := status(derive.Input{Pod: pod, Observed: world(test.seen...)}).InitContainerStatuses
			mustEqual(t, []bool{got[0].Ready, got[1].Ready}, test.want)
		})
	}
}

func TestSM16AStatusComputedBeforeAProbeResultDoesNotUndoIt(t *testing.T) {
	pod := withInit(newPod(always, probedContainer(container("a")), container("b")), probedContainer(sidecar("log")))
	runtime := world(seen("log", 1, observed.Running), seen("a", 1, observed.Running), seen("b", 1, observed.Running))
	passed := derive.ContainerProbeResults{Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}
	failed := derive.ContainerProbeResults{Startup: derive.ProbeSuccess, Readiness: derive.ProbeFailure}
	before := derive.ProbeResults{idOf("log", 1): passed, idOf("a", 1): passed}
	stale := status(derive.Input{Pod: pod, Observed: runtime, Probes: before})
	mustEqual(t, condition(t, stale, v1.PodReady).Status, v1.ConditionTrue)

	tests := map[string]struct {
		facts   derive.ProbeResults
		message string // of Ready and ContainersReady; "" is True
	}{
		"BUG-7 a regular container became unready": {derive.ProbeResults{idOf("log", 1): passed, idOf("a", 1): failed}, "containers with unready status: [a]"},
		"BUG-7 a sidecar too":                      {derive.ProbeResults{idOf("log", 1): failed, idOf("a", 1): failed}, "containers with unready status: [log a]"},
		"SM-15 a startup probe failed":             {derive.ProbeResults{idOf("a", 1): {Startup: derive.ProbeFailure, Readiness: derive.ProbeSuccess}}, "containers with unready status: [a]"},
		"SM-12 nothing changed":                    {before, ""},
		"SM-12 no results":                         {nil, ""},
		"SM-14 results for other containers":       {derive.ProbeResults{idOf("a", 2): failed, idOf("x", 1): failed}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := derive.WithProbeResults(pod, stale, test.facts)
			want := v1.ConditionTrue
			if test.message != "" {
				want = v1.ConditionFalse
			}
			for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
				condition := condition(t, got, kind)
				mustEqual(t, []string{string(condition.Status), condition.Message}, []string{string(want), test.message})
			}
			mustEqual(t, kinds(got), kinds(stale))
			fresh := status(derive.Input{Pod: pod, Observed: runtime, Probes: test.facts, Previous: &stale})
			if !derive.Equal(&got, &fresh) {
				t.Errorf("laid over: %+v\ncomputed anew: %+v", got, fresh)
			}
		})
	}
	mustEqual(t, condition(t, stale, v1.PodReady).Status, v1.ConditionTrue)
	mustEqual(t, stale.ContainerStatuses[0].Ready, true)
}

func TestSM13MissingConditionsAreAddedWithAProbeResult(t *testing.T) {
	pod := newPod(always, probedContainer(container("a")))
	bare := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: statuses{started(running("a"))}}
	got := derive.WithProbeResults(pod, bare, derive.ProbeResults{idOf("a", 1): {Readiness: derive.ProbeSuccess}})
	mustEqual(t, kinds(got), []v1.PodConditionType{v1.PodReady, v1.ContainersReady})
	mustEqual(t, condition(t, got, v1.PodReady).Status, v1.ConditionTrue)
}

func TestAStatusThatNobodyKnowsIsLeftAlone(t *testing.T) {
	pod := withInit(newPod(always, container("a")), container("init"))
	odd := v1.PodStatus{InitContainerStatuses: statuses{ready(running("x"))}, ContainerStatuses: statuses{ready(running("y"))}}
	mustEqual(t, derive.WithProbeResults(pod, odd, derive.ProbeResults{idOf("y", 1): {Readiness: derive.ProbeFailure}}), odd)
}

func TestWithProbeFactsAllocatesNothingWhenNothingChanges(t *testing.T) {
	pod, normal := largeStatus()
	facts := derive.ProbeResults{idOf("c0", 1): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}}
	got := derive.WithProbeResults(pod, normal, facts)
	if n := testing.AllocsPerRun(100, func() { derive.WithProbeResults(pod, got, facts) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
