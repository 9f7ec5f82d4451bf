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

// withProber runs a scenario with a container "app" whose probes are those of execProbe, except for a change. Commands
// answer as the scripts say.
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

// states returns the state of a probe of the container's newest instance on each side.
func (h *proberHarness) states(container string, kind probejudge.Kind) sides[probeState] {
	h.mu.Lock()
	id := h.current[container].id
	h.mu.Unlock()
	return pair(h.kubelet.currentState(id, kind), h.herald.currentState(id, kind))
}

// startedCounts returns how often each side probed since a time.
func (h *proberHarness) startedCounts(kind probejudge.Kind, since time.Time) sides[int] {
	return pair(h.kubelet.countStarted(kind, since), h.herald.countStarted(kind, since))
}

// wait lets time pass, plus half a second, so that nothing else happens at the same instant.
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
		expect(t, "probes", h.startedCounts(probejudge.Readiness, since), pair(11, 0))
	})
}

func TestPRB4_NewContainerAfterStart(t *testing.T) {
	long := func(c *v1.Container) { c.ReadinessProbe.PeriodSeconds = 100 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, long, func(h *proberHarness) {
		h.restart()
		since := time.Now()
		h.start("app")
		expect(t, "probes", h.startedCounts(probejudge.Readiness, since), pair(0, 1))
	})
}

func TestPRB15_FirstLivenessProbe(t *testing.T) {
	long := func(c *v1.Container) { c.LivenessProbe.PeriodSeconds = 100 }
	withProber(t, map[probejudge.Kind]string{probejudge.Liveness: "+"}, long, func(h *proberHarness) {
		since := time.Now()
		h.start("app")
		expect(t, "probes at once", h.startedCounts(probejudge.Liveness, since), pair(1, 0))
		h.wait(100 * time.Second)
		expect(t, "probes in a period", h.startedCounts(probejudge.Liveness, since), pair(2, 1))
	})
}

func TestBUG25_ReadinessDuringTermination(t *testing.T) {
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+++++-"}, nil, func(h *proberHarness) {
		ctx, cancel := context.WithCancel(h.kubelet.ctx) // the sync's context, which the pod's termination cancels
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
		h.kubelet.phase = v1.PodFailed // as after an eviction
		h.kubelet.mu.Unlock()
		h.terminate()
		h.sync()
		h.wait(time.Second)
		since := time.Now()
		h.wait(5 * time.Second)
		expect(t, "probes", h.startedCounts(probejudge.Readiness, since), pair(0, 6))
	})
}

func TestPRB12_NoResultBeforeProbe(t *testing.T) {
	late := func(c *v1.Container) { c.ReadinessProbe.InitialDelaySeconds = 60 }
	withProber(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, late, func(h *proberHarness) {
		h.start("app")
		h.wait(10 * time.Second)
		expect(t, "probes", h.startedCounts(probejudge.Readiness, time.Time{}), pair(0, 0))
		expect(t, "reports", pair(len(h.kubelet.reported), len(h.herald.reported)), pair(1, 0))
		if want := []string{"Readiness of app-1: Failure"}; !slices.Equal(h.kubelet.reported, want) {
			t.Errorf("kubelet: got reports %q, want %q", h.kubelet.reported, want)
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
		expect(t, "probes", h.startedCounts(probejudge.Liveness, time.Time{}), pair(0, 0))
		expect(t, "alive", h.states("app", probejudge.Liveness), pair(failed, undecided))
	})
}

func TestPRB37_StartupDuringTermination(t *testing.T) {
	highThreshold := func(c *v1.Container) { c.StartupProbe.FailureThreshold = 1000 }
	scripts := map[probejudge.Kind]string{probejudge.Startup: "-", probejudge.Readiness: "+"}
	withProber(t, scripts, highThreshold, func(h *proberHarness) {
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
		expect(t, "ready after two results", h.states("app", probejudge.Readiness), pair(passed, undecided))
		h.wait(3 * time.Second)
		expect(t, "ready after four results", h.states("app", probejudge.Readiness), pair(passed, passed))
	})
}

func TestBUG23_RemovedPod(t *testing.T) {
	longTimeout := func(c *v1.Container) { c.LivenessProbe.TimeoutSeconds = 60 }
	withProber(t, map[probejudge.Kind]string{probejudge.Liveness: "h"}, longTimeout, func(h *proberHarness) {
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
		expect(t, "reported as not ready", unready, pair(true, false))
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
		expect(t, "probes", h.startedCounts(probejudge.Readiness, since), pair(10, 0))
	})
}
