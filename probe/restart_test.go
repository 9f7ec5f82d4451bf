package probe_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/probe"
)

// restartAgent ends the agent and starts one that knows nothing but what was published.
func (w *world) restartAgent() {
	w.stop()
	w.boot(func(*probe.Config) {})
}

func TestBUG26WhatHadStartedUnderTheAgentBeforeIsNotAskedToStartAgain(t *testing.T) {
	started := true
	published := func(id string) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "test://" + id, Started: &started}}}
	}
	tests := map[string]struct {
		published v1.PodStatus
		want      derive.ProbeResult
		asked     int
	}{
		"this very container was published as started": {published("a1"), derive.ProbeSuccess, 0},
		"another one was": {published("a0"), derive.ProbeFailure, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := podOf(v1.Container{Name: "app", StartupProbe: command("start"), LivenessProbe: command("live")})
				w.answer("start", fails)
				w.statuses["u"] = test.published
				w.run(pod, "app", "a1")
				w.after(time.Hour)
				w.restartAgent()
				w.AddPod(pod)
				w.after(5 * time.Second)
				if facts, _ := w.Results("u"); facts[named("a1")].Startup != test.want {
					t.Fatalf("startup is %v, want %v", facts[named("a1")].Startup, test.want)
				}
				if got := len(w.times("start")); got != test.asked {
					t.Fatalf("asked %d times, want %d", got, test.asked)
				}
				if woken := w.heard("wake"); len(woken) != 1 {
					t.Fatalf("the worker was woken %d times", len(woken))
				}
				if opened := len(w.times("live")) > 0; opened != (test.want == derive.ProbeSuccess) {
					t.Fatal("the gate does not follow")
				}
			})
		})
	}
}

func TestPRB34UntilAProbeSpeaksAfterARestartThereIsNoVerdict(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 3
		w.answer("ready", fails)
		w.run(pod, "app", "a1")
		w.after(time.Hour)
		w.restartAgent()
		w.AddPod(pod)
		w.after(1999 * time.Millisecond)
		if facts, _ := w.Results("u"); len(facts) > 0 {
			t.Fatalf("after at most two failures of three: %v", facts)
		}
		w.after(2 * time.Second)
		if facts, _ := w.Results("u"); facts[named("a1")].Readiness != derive.ProbeFailure {
			t.Fatal("three failures do not count")
		}
	})
}

func TestPRB4AnAgentThatHasJustBegunSpreadsItsFirstChecks(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf()
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			c := v1.Container{Name: name, ReadinessProbe: command(name)}
			c.ReadinessProbe.PeriodSeconds = 1000
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			w.run(pod, name, name)
		}
		w.after(time.Second)
		w.restartAgent()
		w.AddPod(pod)
		w.run(pod, "h", "h2") // a new one does not wait
		w.AddPod(pod)
		w.after(1000 * time.Second)
		var firsts []float64
		for _, c := range pod.Spec.Containers[:7] {
			times := w.times(c.Name)
			if len(times) == 0 {
				t.Fatalf("%s was not asked within a period", c.Name)
			}
			firsts = append(firsts, times[0])
		}
		slices.Sort(firsts)
		if distinct := len(slices.Compact(firsts)); distinct < 6 {
			t.Fatalf("asked at %v", firsts)
		}
		if got := w.times("h")[0]; got != 1 {
			t.Fatalf("the new container was first asked at %v", got)
		}
	})
}

func TestBUG22AContainerThatIsStartedAgainIsCountedAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.SuccessThreshold = 4
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(3500 * time.Millisecond)
		w.run(pod, "app", "a2")
		w.AddPod(pod)
		w.after(2500 * time.Millisecond)
		if got := w.heard("ready"); !cmp.Equal(got, []string{"ready a1 true"}) {
			t.Fatalf("after three successes of the new container: %q", got)
		}
		w.after(time.Second)
		if got := w.heard("ready"); !cmp.Equal(got, []string{"ready a2 true"}) {
			t.Fatalf("after four: %q", got)
		}
	})
}

func TestPRB14AContainerThatEndedIsNotReadyAndIsNotAsked(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		synctest.Wait()
		w.show(pod, observed.Container{Name: "app", ID: named("a1"), State: observed.Exited})
		w.AddPod(pod)
		w.after(5 * time.Second)
		if facts, _ := w.Results("u"); facts[named("a1")].Readiness != derive.ProbeFailure {
			t.Fatal("it is")
		}
		if got := w.times("ready"); len(got) != 1 {
			t.Fatalf("PRB-10: asked at %v", got)
		}
	})
}

func TestPRB11AContainerThatAppearsIsFoundWithoutBeingTold(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		w.AddPod(pod) // PRB-9: nothing is known of the pod yet
		w.after(2500 * time.Millisecond)
		w.run(pod, "app", "a1")
		w.after(time.Second)
		if diff := cmp.Diff([]float64{3}, w.times("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestPRB3AProbeFollowsItsSpec(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("old"), LivenessProbe: command("live")})
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(1500 * time.Millisecond)
		edited := pod.DeepCopy()
		edited.Spec.Containers[0].ReadinessProbe = command("new")
		edited.Spec.Containers[0].LivenessProbe = nil
		w.AddPod(edited)
		w.after(2 * time.Second)
		for word, want := range map[string][]float64{"old": {0, 1}, "live": {1}, "new": {2, 3}} {
			if diff := cmp.Diff(want, w.times(word)); diff != "" {
				t.Errorf("%s was asked at:\n%s", word, diff)
			}
		}
		if facts, _ := w.Results("u"); facts[named("a1")].Readiness != derive.ProbeSuccess {
			t.Error("an edit took the verdict away")
		}
	})
}

func TestPRB3AfterAnEditTheOlderVerdictIsNotToldLast(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("old")})
		w.answer("new", fails)
		w.run(pod, "app", "a1")
		told := make(chan struct{})
		w.telling = func() { <-told }
		w.AddPod(pod)
		synctest.Wait() // the verdict of the old probe is on its way
		for _, word := range []string{"newer", "new"} {
			edited := pod.DeepCopy()
			edited.Spec.Containers[0].ReadinessProbe = command(word)
			w.AddPod(edited)
		}
		w.after(1500 * time.Millisecond)
		close(told)
		w.after(1500 * time.Millisecond)
		if got := w.heard("ready"); !cmp.Equal(got, []string{"ready a1 true", "ready a1 false"}) {
			t.Fatalf("told %q", got)
		}
		if got := w.times("newer"); got != nil {
			t.Fatalf("what was edited again was asked at %v", got)
		}
	})
}

func TestBUG25ReadinessFallsWhileAPodStopsUnderAnotherAgent(t *testing.T) {
	started := true
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", StartupProbe: command("start"), ReadinessProbe: command("ready"), LivenessProbe: command("live")})
		for _, word := range []string{"start", "ready", "live"} {
			w.answer(word, fails)
		}
		w.run(pod, "app", "a1")
		w.statuses["u"] = v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "test://a1", Started: &started}}}
		w.after(time.Hour)
		w.restartAgent()
		w.StopLivenessAndStartup(pod) // the agent found it stopping
		w.after(2 * time.Second)
		if got := w.heard("ready"); !cmp.Equal(got, []string{"ready a1 false"}) {
			t.Errorf("told %q", got)
		}
		if start, live := w.times("start"), w.times("live"); start != nil || live != nil {
			t.Errorf("PRB-37: asked at %v and %v", start, live)
		}
		asked := len(w.times("ready"))
		w.RemovePod("u")
		w.after(5 * time.Second)
		if got := len(w.times("ready")); got != asked {
			t.Errorf("asked %d times after it was removed", got-asked)
		}
	})
}

func TestPRB6APodThatWasRemovedLeavesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", StartupProbe: command("start"), ReadinessProbe: command("ready")})
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(2500 * time.Millisecond)
		if got := w.count("prober_probe_total"); got != 2 {
			t.Fatalf("PRB-42: %d series of two probes", got)
		}
		w.StopLivenessAndStartup(pod)
		w.RemovePod("u")
		w.RemovePod("u")
		w.after(5 * time.Second)
		if facts, unhealthy := w.Results("u"); facts != nil || unhealthy != nil {
			t.Errorf("results: %v, %v", facts, unhealthy)
		}
		if got := w.count("prober_probe_total") + w.count("prober_probe_duration_seconds"); got != 0 {
			t.Errorf("PRB-42: %d series", got)
		}
		if got := w.times("ready"); len(got) != 3 {
			t.Errorf("PRB-38: asked at %v", got)
		}
		w.AddPod(pod) // a static pod begins again under its UID
		synctest.Wait()
		if start, ready := w.times("start"), w.times("ready"); len(start) != 2 || len(ready) != 4 {
			t.Errorf("the pod is not probed from the beginning: %v, %v", start, ready)
		}
	})
}
