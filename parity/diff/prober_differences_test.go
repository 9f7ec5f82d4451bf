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
func onWard(t *testing.T, scripts map[probejudge.Kind]string, change func(*v1.Container), story func(*ward)) {
	t.Helper()
	app := v1.Container{Name: "app"}
	for kind := range scripts {
		switch kind {
		case probejudge.Startup:
			app.StartupProbe = asking(kind)
		case probejudge.Readiness:
			app.ReadinessProbe = asking(kind)
		case probejudge.Liveness:
			app.LivenessProbe = asking(kind)
		}
	}
	if change != nil {
		change(&app)
	}
	pod := podWith(v1.RestartPolicyAlways)
	pod.Spec.Containers = []v1.Container{app}
	synctest.Test(t, func(t *testing.T) {
		newWard(t, pod, 1, func(w *ward) {
			w.scripts = scripts
			story(w)
		})
	})
}

// levels is where each is with a probe of the newest instance of the container.
func (w *ward) levels(container string, kind probejudge.Kind) said[level] {
	w.mu.Lock()
	id := w.current[container].id
	w.mu.Unlock()
	return pair(w.kubelet.level(id, kind), w.herald.level(id, kind))
}

// asked is how often each asked since then.
func (w *ward) asked(kind probejudge.Kind, since time.Time) said[int] {
	return pair(w.kubelet.times(kind, since), w.herald.times(kind, since))
}

// after lets time pass, and half a second, so that nothing else happens at the time at which it ends.
func (w *ward) after(d time.Duration) {
	time.Sleep(d + time.Second/2)
	synctest.Wait()
}

var (
	passed    = level{Passed: true}
	failed    = level{Failed: true}
	undecided = level{}
)

func TestPRB3AnEditedProbeIsFollowed(t *testing.T) {
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, nil, func(w *ward) {
		w.start("app")
		w.after(time.Second)
		w.pod = w.pod.DeepCopy()
		w.pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 100
		w.sync()
		w.after(time.Second)
		since := time.Now()
		w.after(10 * time.Second)
		expect(t, "asked", w.asked(probejudge.Readiness, since), pair(11, 0))
	})
}

func TestPRB4ANewContainerOfAYoungAgentIsAskedAtOnce(t *testing.T) {
	long := func(c *v1.Container) { c.ReadinessProbe.PeriodSeconds = 100 }
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, long, func(w *ward) {
		w.restart()
		since := time.Now()
		w.start("app")
		expect(t, "asked", w.asked(probejudge.Readiness, since), pair(0, 1))
	})
}

func TestPRB15LivenessDoesNotAskWhatHasJustBeenStarted(t *testing.T) {
	long := func(c *v1.Container) { c.LivenessProbe.PeriodSeconds = 100 }
	onWard(t, map[probejudge.Kind]string{probejudge.Liveness: "+"}, long, func(w *ward) {
		since := time.Now()
		w.start("app")
		expect(t, "asked at once", w.asked(probejudge.Liveness, since), pair(1, 0))
		w.after(100 * time.Second)
		expect(t, "asked in a period", w.asked(probejudge.Liveness, since), pair(2, 1))
	})
}

func TestBUG25ReadinessFallsWhileThePodStops(t *testing.T) {
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+++++-"}, nil, func(w *ward) {
		ctx, cancel := context.WithCancel(w.kubelet.ctx) // the sync's, which the end of the pod interrupts
		w.kubelet.ctx = ctx
		w.start("app")
		w.after(2 * time.Second)
		cancel()
		w.terminate()
		w.after(10 * time.Second)
		expect(t, "ready", w.levels("app", probejudge.Readiness), pair(passed, undecided))
	})
}

func TestPRB10ReadinessIsWatchedForAsLongAsAContainerRuns(t *testing.T) {
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, nil, func(w *ward) {
		w.start("app")
		w.after(time.Second)
		w.kubelet.published.Lock()
		w.kubelet.phase = v1.PodFailed // as of a pod that is evicted
		w.kubelet.published.Unlock()
		w.terminate()
		w.sync()
		w.after(time.Second)
		since := time.Now()
		w.after(5 * time.Second)
		expect(t, "asked", w.asked(probejudge.Readiness, since), pair(0, 6))
	})
}

func TestPRB12NothingIsToldOfAContainerThatWasNotAsked(t *testing.T) {
	late := func(c *v1.Container) { c.ReadinessProbe.InitialDelaySeconds = 60 }
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, late, func(w *ward) {
		w.start("app")
		w.after(10 * time.Second)
		expect(t, "asked", w.asked(probejudge.Readiness, time.Time{}), pair(0, 0))
		expect(t, "told", pair(len(w.kubelet.told), len(w.herald.told)), pair(1, 0))
		if want := []string{"Readiness of app-1: Failure"}; !slices.Equal(w.kubelet.told, want) {
			t.Errorf("the kubelet says %q", w.kubelet.told)
		}
	})
}

func TestPRB14AContainerThatDoesNotRunYetIsNotUnhealthy(t *testing.T) {
	late := func(c *v1.Container) { c.LivenessProbe.InitialDelaySeconds = 60 }
	onWard(t, map[probejudge.Kind]string{probejudge.Liveness: "+"}, late, func(w *ward) {
		created := patient{name: "app", id: "app-1", state: observed.Created}
		w.show(created)
		w.after(2 * time.Second)
		created.state, created.since = observed.Running, time.Now()
		w.show(created)
		w.after(10 * time.Second)
		expect(t, "asked", w.asked(probejudge.Liveness, time.Time{}), pair(0, 0))
		expect(t, "alive", w.levels("app", probejudge.Liveness), pair(failed, undecided))
	})
}

func TestPRB37AContainerThatStopsHasNotStartedForThat(t *testing.T) {
	patient := func(c *v1.Container) { c.StartupProbe.FailureThreshold = 1000 }
	scripts := map[probejudge.Kind]string{probejudge.Startup: "-", probejudge.Readiness: "+"}
	onWard(t, scripts, patient, func(w *ward) {
		w.start("app")
		w.after(5 * time.Second)
		w.terminate()
		w.sync()
		w.after(5 * time.Second)
		expect(t, "started", w.levels("app", probejudge.Startup), pair(passed, undecided))
		expect(t, "ready", w.levels("app", probejudge.Readiness), pair(passed, undecided))
	})
}

func TestBUG22ANewContainerIsCountedAnew(t *testing.T) {
	four := func(c *v1.Container) { c.ReadinessProbe.SuccessThreshold = 4 }
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, four, func(w *ward) {
		w.kubelet.keepStreaks = true
		w.start("app")
		w.after(10 * time.Second)
		w.start("app")
		w.after(time.Second)
		expect(t, "ready after two answers", w.levels("app", probejudge.Readiness), pair(passed, undecided))
		w.after(3 * time.Second)
		expect(t, "ready after four", w.levels("app", probejudge.Readiness), pair(passed, passed))
	})
}

func TestBUG23NothingIsAskedOfAPodThatIsGone(t *testing.T) {
	patient := func(c *v1.Container) { c.LivenessProbe.TimeoutSeconds = 60 }
	onWard(t, map[probejudge.Kind]string{probejudge.Liveness: "h"}, patient, func(w *ward) {
		w.start("app")
		w.after(time.Second)
		expect(t, "running", pair(w.kubelet.running(), w.herald.running()), pair(1, 1))
		w.kubelet.manager.RemovePod(w.pod)
		w.herald.RemovePod(podid.UID(w.pod.UID))
		w.after(time.Second)
		expect(t, "running", pair(w.kubelet.running(), w.herald.running()), pair(1, 0))
	})
}

func TestBUG24AContainerThatCannotBeAskedForLongIsNotReady(t *testing.T) {
	for name, answers := range map[string]string{"errors": "+++eeeeeeeee", "gone": "+++g"} {
		t.Run(name, func(t *testing.T) {
			onWard(t, map[probejudge.Kind]string{probejudge.Readiness: answers}, nil, func(w *ward) {
				w.start("app")
				w.after(time.Second)
				expect(t, "ready", w.levels("app", probejudge.Readiness), pair(passed, passed))
				w.after(time.Minute)
				expect(t, "ready", w.levels("app", probejudge.Readiness), pair(passed, undecided))
			})
		})
	}
}

func TestBUG26ARestartOfTheAgentTellsNothingNew(t *testing.T) {
	three := func(c *v1.Container) { c.ReadinessProbe.FailureThreshold = 3 }
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "+"}, three, func(w *ward) {
		w.start("app")
		w.after(5 * time.Second)
		w.restart()
		w.after(time.Second)
		unready := pair(slices.Contains(w.kubelet.told, "Readiness of app-1: Failure"), slices.Contains(w.herald.told, "Readiness of app-1: false"))
		expect(t, "told that it is not ready", unready, pair(true, false))
	})
}

func TestBUG35SidecarsStopInPeace(t *testing.T) {
	pod := podWith(v1.RestartPolicyAlways)
	pod.Spec.InitContainers = []v1.Container{{
		Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways), LivenessProbe: asking(probejudge.Liveness),
	}}
	synctest.Test(t, func(t *testing.T) {
		newWard(t, pod, 1, func(w *ward) {
			w.scripts = map[probejudge.Kind]string{probejudge.Liveness: "+++++-"}
			w.start("proxy")
			w.after(time.Second)
			w.terminate()
			w.after(10 * time.Second)
			expect(t, "alive", w.levels("proxy", probejudge.Liveness), pair(failed, undecided))
		})
	})
}

func TestBUG36ASyncDoesNotMakeReadinessAskMoreOften(t *testing.T) {
	slow := func(c *v1.Container) { c.ReadinessProbe.PeriodSeconds = 100 }
	onWard(t, map[probejudge.Kind]string{probejudge.Readiness: "-"}, slow, func(w *ward) {
		w.start("app")
		w.after(time.Second)
		since := time.Now()
		for range 10 {
			w.sync()
			w.after(time.Second)
		}
		expect(t, "asked", w.asked(probejudge.Readiness, since), pair(10, 0))
	})
}
