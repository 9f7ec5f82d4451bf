package diff_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	probejudge "github.com/heraldnode/herald/probe/judge"
)

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
