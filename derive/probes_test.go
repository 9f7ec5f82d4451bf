package derive_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
)

// withProbes declares a startup and a readiness probe.
func withProbes(c v1.Container) v1.Container {
	c.StartupProbe, c.ReadinessProbe = &v1.Probe{}, &v1.Probe{}
	return c
}

func TestStatus_ProbeResults(t *testing.T) {
	const unknown, success, failure = derive.ProbeUnknown, derive.ProbeSuccess, derive.ProbeFailure
	unprobed, probed := newContainer("a"), withProbes(newContainer("a"))
	type flags struct{ Started, Ready bool }
	tests := map[string]struct {
		spec     v1.Container
		state    observed.State
		results  derive.ContainerProbeResults
		of       int // instance that the results belong to
		previous statuses
		want     flags
	}{
		"PRB-32 not running":                   {spec: unprobed, state: observed.Created, results: derive.ContainerProbeResults{Startup: success}, of: 1},
		"PRB-32 no startup probe":              {spec: unprobed, state: observed.Running, want: flags{true, true}},
		"PRB-32 startup unknown":               {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Readiness: success}, of: 1},
		"PRB-32 startup succeeded":             {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Startup: success, Readiness: success}, of: 1, want: flags{true, true}},
		"PRB-32 startup failed":                {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Startup: failure, Readiness: success}, of: 1},
		"PRB-32 startup failed after success":  {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Startup: failure}, of: 1, previous: statuses{withReady(runningStatus("a"))}},
		"PRB-33 readiness unknown":             {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Startup: success}, of: 1, want: flags{true, false}},
		"PRB-33 readiness failed":              {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Startup: success, Readiness: failure}, of: 1, want: flags{true, false}},
		"PRB-34 ready until a result":          {spec: probed, state: observed.Running, previous: statuses{withReady(runningStatus("a"))}, want: flags{true, true}},
		"PRB-34 unready until a result":        {spec: probed, state: observed.Running, previous: statuses{withStarted(runningStatus("a"))}, want: flags{true, false}},
		"PH-38 started is kept":                {spec: probed, state: observed.Running, previous: statuses{withStarted(runningStatus("a"))}, want: flags{true, false}},
		"PH-38 replaced container":             {spec: probed, state: observed.Running, previous: statuses{{Name: "a", ContainerID: "test://a-0", State: runningState(), Started: new(true), Ready: true}}},
		"SM-14 result of a replaced container": {spec: probed, state: observed.Running, results: derive.ContainerProbeResults{Startup: success, Readiness: success}, of: 9},
		"PRB-33 terminated container":          {spec: unprobed, state: observed.Exited, results: derive.ContainerProbeResults{Readiness: success}, of: 1, previous: statuses{withReady(runningStatus("a"))}},
		"PRB-33 record garbage collected":      {spec: unprobed, state: -1, previous: statuses{withReady(exitedStatus("a", 0))}},
		"PRB-33 result without a probe":        {spec: unprobed, state: observed.Running, results: derive.ContainerProbeResults{Startup: unknown, Readiness: failure}, of: 1, want: flags{true, false}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newInstance("a", 1, test.state)
			if test.state == observed.Exited {
				c = newExited("a", 1, 0)
			}
			runtimePod := newRuntimePod(c)
			if test.state == -1 {
				runtimePod.Containers = nil
			}
			in := derive.Input{
				Pod: newPod(never, test.spec), Observed: runtimePod, Probes: derive.ProbeResults{containerID("a", test.of): test.results},
				Previous: &v1.PodStatus{ContainerStatuses: test.previous},
			}
			got := computeStatus(in)
			a := got.ContainerStatuses[0]
			requireEqual(t, flags{*a.Started, a.Ready}, test.want)
			if isReady := findCondition(t, got, v1.PodReady).Status == v1.ConditionTrue; isReady != test.want.Ready {
				t.Errorf("got pod ready %v, want %v", isReady, test.want.Ready)
			}
		})
	}
}

func TestPRB35_InitContainerReady(t *testing.T) {
	pod := withInit(newPod(always, newContainer("a")), newContainer("init"), newSidecar("log"))
	tests := map[string]struct {
		seen []observed.Container
		want []bool // ready: init, log
	}{
		"running":                  {[]observed.Container{newInstance("init", 1, observed.Running)}, []bool{false, false}},
		"failed":                   {[]observed.Container{newExited("init", 1, 1)}, []bool{false, false}},
		"succeeded, sidecar waits": {[]observed.Container{newExited("init", 1, 0)}, []bool{true, false}},
		"succeeded, sidecar runs":  {[]observed.Container{newExited("init", 1, 0), newInstance("log", 1, observed.Running)}, []bool{true, true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := computeStatus(derive.Input{Pod: pod, Observed: newRuntimePod(test.seen...)}).InitContainerStatuses
			requireEqual(t, []bool{got[0].Ready, got[1].Ready}, test.want)
		})
	}
}

func TestSM16_StaleStatus(t *testing.T) {
	pod := withInit(newPod(always, withProbes(newContainer("a")), newContainer("b")), withProbes(newSidecar("log")))
	runtime := newRuntimePod(newInstance("log", 1, observed.Running), newInstance("a", 1, observed.Running), newInstance("b", 1, observed.Running))
	success := derive.ContainerProbeResults{Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}
	failure := derive.ContainerProbeResults{Startup: derive.ProbeSuccess, Readiness: derive.ProbeFailure}
	before := derive.ProbeResults{containerID("log", 1): success, containerID("a", 1): success}
	stale := computeStatus(derive.Input{Pod: pod, Observed: runtime, Probes: before})
	requireEqual(t, findCondition(t, stale, v1.PodReady).Status, v1.ConditionTrue)

	tests := map[string]struct {
		results derive.ProbeResults
		message string // of Ready and ContainersReady; "" is True
	}{
		"BUG-7 regular container unready": {derive.ProbeResults{containerID("log", 1): success, containerID("a", 1): failure}, "containers with unready status: [a]"},
		"BUG-7 sidecar unready":           {derive.ProbeResults{containerID("log", 1): failure, containerID("a", 1): failure}, "containers with unready status: [log a]"},
		"SM-15 startup probe failed":      {derive.ProbeResults{containerID("a", 1): {Startup: derive.ProbeFailure, Readiness: derive.ProbeSuccess}}, "containers with unready status: [a]"},
		"SM-12 unchanged":                 {before, ""},
		"SM-12 no results":                {nil, ""},
		"SM-14 other containers":          {derive.ProbeResults{containerID("a", 2): failure, containerID("x", 1): failure}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := derive.WithProbeResults(pod, stale, test.results)
			want := v1.ConditionTrue
			if test.message != "" {
				want = v1.ConditionFalse
			}
			for _, conditionType := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
				condition := findCondition(t, got, conditionType)
				requireEqual(t, []string{string(condition.Status), condition.Message}, []string{string(want), test.message})
			}
			requireEqual(t, conditionTypes(got), conditionTypes(stale))
			fresh := computeStatus(derive.Input{Pod: pod, Observed: runtime, Probes: test.results, Previous: &stale})
			if !derive.Equal(&got, &fresh) {
				t.Errorf("got %+v, want %+v", got, fresh)
			}
		})
	}
	requireEqual(t, findCondition(t, stale, v1.PodReady).Status, v1.ConditionTrue)
	requireEqual(t, stale.ContainerStatuses[0].Ready, true)
}

func TestSM13_MissingConditions(t *testing.T) {
	pod := newPod(always, withProbes(newContainer("a")))
	bare := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: statuses{withStarted(runningStatus("a"))}}
	got := derive.WithProbeResults(pod, bare, derive.ProbeResults{containerID("a", 1): {Readiness: derive.ProbeSuccess}})
	requireEqual(t, conditionTypes(got), []v1.PodConditionType{v1.PodReady, v1.ContainersReady})
	requireEqual(t, findCondition(t, got, v1.PodReady).Status, v1.ConditionTrue)
}

func TestWithProbeResults_UnknownContainer(t *testing.T) {
	pod := withInit(newPod(always, newContainer("a")), newContainer("init"))
	odd := v1.PodStatus{InitContainerStatuses: statuses{withReady(runningStatus("x"))}, ContainerStatuses: statuses{withReady(runningStatus("y"))}}
	requireEqual(t, derive.WithProbeResults(pod, odd, derive.ProbeResults{containerID("y", 1): {Readiness: derive.ProbeFailure}}), odd)
}

func TestWithProbeResults_Allocations(t *testing.T) {
	pod, normal := newLargeStatus()
	results := derive.ProbeResults{containerID("c0", 1): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}}
	got := derive.WithProbeResults(pod, normal, results)
	if n := testing.AllocsPerRun(100, func() { derive.WithProbeResults(pod, got, results) }); n != 0 {
		t.Fatalf("got %v allocations, want 0", n)
	}
}
