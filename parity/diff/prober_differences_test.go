package diff_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

// onWard tells a story of a container "app" whose probes are as asking makes them but for a change. Whoever is asked says
// what the scripts say.
func withProber(t *testing.T, scripts map[probejudge.Kind]string, change func(*v1.Container), scenario func(*proberHarness)) {
	t.Helper()
	app := v1.Container{Name: "app"}
	for kind := range scripts {
		switch kind {
		case probejudge.Startup:
			app.StartupProbe = execProbe(kind)
		case probejudge.Readiness:
			app.ReadinessProbe = execProbe(kind)
		case probejudge.Liveness:
			app.LivenessProbe = execProbe(kind)
		}
	}
	if change != nil {
		change(&app)
	}
	pod := podWith(v1.RestartPolicyAlways)
	pod.Spec.Containers = []v1.Container{app}
	synctest.Test(t, func(t *testing.T) {
		runProberHarness(t, pod, 1, func(h *proberHarness) {
			h.scripts = scripts
			scenario(h)
		})
	})
}

// levels is where each is with a probe of the newest instance of the container.
func (h *proberHarness) states(container string, kind probejudge.Kind) sides[probeState] {
	h.mu.Lock()
	id := h.current[container].id
	h.mu.Unlock()
	return pair(h.kubelet.currentState(id, kind), h.herald.currentState(id, kind))
}

// asked is how often each asked since then.
func (h *proberHarness) startedCounts(kind probejudge.Kind, since time.Time) sides[int] {
	return pair(h.kubelet.countStarted(kind, since), h.herald.countStarted(kind, since))
}

// after lets time pass, and half a second, so that nothing else happens at the time at which it ends.
func (h *proberHarness) wait(d time.Duration) {
	time.Sleep(d + time.Second/2)
	synctest.Wait()
}

var (
	passed    = probeState{Passed: true}
	failed    = probeState{Failed: true}
	undecided = probeState{}
)

func TestPRB3_EditedProbe(t *testing.T) {
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, nil, func(h *proberHarness) {
		h.start("app")
		h.wait(time.Second)
		h.pod = h.pod.DeepCopy()
		h.pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 100
		h.sync()
		h.wait(time.Second)
		since := time.Now()
		h.wait(10 * time.Second)
		expect(t, "asked", h.startedCounts(probejudge.Readiness, since), pair(11, 0))
	})
}

func TestPRB4_NewContainerAfterStart(t *testing.T) {
	long := func(c *v1.Container) { c.ReadinessProbe.PeriodSeconds = 100 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, long, func(h *proberHarness) {
		h.restart()
		since := time.Now()
		h.start("app")
		expect(t, "asked", h.startedCounts(probejudge.Readiness, since), pair(0, 1))
	})
}

func TestPRB15_FirstLivenessProbe(t *testing.T) {
	long := func(c *v1.Container) { c.LivenessProbe.PeriodSeconds = 100 }
	withProber(t, map[probejudge.Kind]string{probejudge.Liveness: "+"}, long, func(h *proberHarness) {
		since := time.Now()
		h.start("app")
		expect(t, "asked at once", h.startedCounts(probejudge.Liveness, since), pair(1, 0))
		h.wait(100 * time.Second)
		expect(t, "asked in a period", h.startedCounts(probejudge.Liveness, since), pair(2, 1))
	})
}

func TestBUG25_ReadinessDuringTermination(t *testing.T) {
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+++++-"}, nil, func(h *proberHarness) {
		ctx, cancel := context.WithCancel(h.kubelet.ctx) // the sync's, which the end of the pod interrupts
		h.kubelet.ctx = ctx
		h.start("app")
		h.wait(2 * time.Second)
		cancel()
		h.terminate()
		h.wait(10 * time.Second)
		expect(t, "ready", h.states("app", probejudge.Readiness), pair(passed, undecided))
	})
}

func TestPRB10_ReadinessWhileRunning(t *testing.T) {
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, nil, func(h *proberHarness) {
		h.start("app")
		h.wait(time.Second)
		h.kubelet.mu.Lock()
		h.kubelet.phase = v1.PodFailed // as of a pod that is evicted
		h.kubelet.mu.Unlock()
		h.terminate()
		h.sync()
		h.wait(time.Second)
		since := time.Now()
		h.wait(5 * time.Second)
		expect(t, "asked", h.startedCounts(probejudge.Readiness, since), pair(0, 6))
	})
}

func TestPRB12_NoResultBeforeProbe(t *testing.T) {
	late := func(c *v1.Container) { c.ReadinessProbe.InitialDelaySeconds = 60 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, late, func(h *proberHarness) {
		h.start("app")
		h.wait(10 * time.Second)
		expect(t, "asked", h.startedCounts(probejudge.Readiness, time.Time{}), pair(0, 0))
		expect(t, "told", pair(len(h.kubelet.reported), len(h.herald.reported)), pair(1, 0))
		if want := []string{"Readiness of app-1: Failure"}; !slices.Equal(h.kubelet.reported, want) {
			t.Errorf("the kubelet says %q", h.kubelet.reported)
		}
	})
}

func TestPRB14_CreatedContainer(t *testing.T) {
	late := func(c *v1.Container) { c.LivenessProbe.InitialDelaySeconds = 60 }
	withProber(t, map[probejudge.Kind]string{probejudge.Liveness: "+"}, late, func(h *proberHarness) {
		created := instance{name: "app", id: "app-1", state: observed.Created}
		h.setInstance(created)
		h.wait(2 * time.Second)
		created.state, created.startedAt = observed.Running, time.Now()
		h.setInstance(created)
		h.wait(10 * time.Second)
		expect(t, "asked", h.startedCounts(probejudge.Liveness, time.Time{}), pair(0, 0))
		expect(t, "alive", h.states("app", probejudge.Liveness), pair(failed, undecided))
	})
}

func TestPRB37_StartupDuringTermination(t *testing.T) {
	patient := func(c *v1.Container) { c.StartupProbe.FailureThreshold = 1000 }
	scripts := map[probejudge.Kind]string{probejudge.Startup: "-", probejudge.Readiness: "+"}
	withProber(t, scripts, patient, func(h *proberHarness) {
		h.start("app")
		h.wait(5 * time.Second)
		h.terminate()
		h.sync()
		h.wait(5 * time.Second)
		expect(t, "started", h.states("app", probejudge.Startup), pair(passed, undecided))
		expect(t, "ready", h.states("app", probejudge.Readiness), pair(passed, undecided))
	})
}

func TestBUG22_ThresholdPerContainer(t *testing.T) {
	four := func(c *v1.Container) { c.ReadinessProbe.SuccessThreshold = 4 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, four, func(h *proberHarness) {
		h.kubelet.keepResultRuns = true
		h.start("app")
		h.wait(10 * time.Second)
		h.start("app")
		h.wait(time.Second)
		expect(t, "ready after two answers", h.states("app", probejudge.Readiness), pair(passed, undecided))
		h.wait(3 * time.Second)
		expect(t, "ready after four", h.states("app", probejudge.Readiness), pair(passed, passed))
	})
}

func TestBUG23_RemovedPod(t *testing.T) {
	patient := func(c *v1.Container) { c.LivenessProbe.TimeoutSeconds = 60 }
	withProber(t, map[probejudge.Kind]string{probejudge.Liveness: "h"}, patient, func(h *proberHarness) {
		h.start("app")
		h.wait(time.Second)
		expect(t, "running", pair(h.kubelet.countRunning(), h.herald.countRunning()), pair(1, 1))
		h.kubelet.manager.RemovePod(h.pod)
		h.herald.RemovePod(podid.UID(h.pod.UID))
		h.wait(time.Second)
		expect(t, "running", pair(h.kubelet.countRunning(), h.herald.countRunning()), pair(1, 0))
	})
}

func TestBUG24_RepeatedErrors(t *testing.T) {
	for name, answers := range map[string]string{"errors": "+++eeeeeeeee", "gone": "+++g"} {
		t.Run(name, func(t *testing.T) {
			withProber(t, map[probejudge.Kind]string{probejudge.Readiness: answers}, nil, func(h *proberHarness) {
				h.start("app")
				h.wait(time.Second)
				expect(t, "ready", h.states("app", probejudge.Readiness), pair(passed, passed))
				h.wait(time.Minute)
				expect(t, "ready", h.states("app", probejudge.Readiness), pair(passed, undecided))
			})
		})
	}
}

func TestBUG26_AgentRestart(t *testing.T) {
	three := func(c *v1.Container) { c.ReadinessProbe.FailureThreshold = 3 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, three, func(h *proberHarness) {
		h.start("app")
		h.wait(5 * time.Second)
		h.restart()
		h.wait(time.Second)
		unready := pair(slices.Contains(h.kubelet.reported, "Readiness of app-1: Failure"), slices.Contains(h.herald.reported, "Readiness of app-1: false"))
		expect(t, "told that it is not ready", unready, pair(true, false))
	})
}

func TestBUG35_SidecarTermination(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways)
	pod.Spec.InitContainers = []v1.Container{{
		Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways), LivenessProbe: execProbe(probejudge.Liveness),
	}}
	synctest.Test(t, func(t *testing.T) {
		runProberHarness(t, pod, 1, func(h *proberHarness) {
			h.scripts = map[probejudge.Kind]string{probejudge.Liveness: "+++++-"}
			h.start("proxy")
			h.wait(time.Second)
			h.terminate()
			h.wait(10 * time.Second)
			expect(t, "alive", h.states("proxy", probejudge.Liveness), pair(failed, undecided))
		})
	})
}

func TestBUG36_SyncDoesNotProbe(t *testing.T) {
	slow := func(c *v1.Container) { c.ReadinessProbe.PeriodSeconds = 100 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "-"}, slow, func(h *proberHarness) {
		h.start("app")
		h.wait(time.Second)
		since := time.Now()
		for range 10 {
			h.sync()
			h.wait(time.Second)
		}
		expect(t, "asked", h.startedCounts(probejudge.Readiness, since), pair(10, 0))
	})
}
