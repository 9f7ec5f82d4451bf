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

// restartProber replaces the prober by one without state. The published statuses remain.
func (h *harness) restartProber() {
	h.stop()
	h.startProber(func(*probe.Config) {})
}

func TestBUG26_StartedUnderEarlierAgent(t *testing.T) {
	started := true
	published := func(id string) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "test://" + id, Started: &started}}}
	}
	tests := map[string]struct {
		published v1.PodStatus
		want      derive.ProbeResult
		checks    int
	}{
		"same container":  {published("a1"), derive.ProbeSuccess, 0},
		"other container": {published("a0"), derive.ProbeFailure, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(h *harness) {
				pod := newPod(v1.Container{Name: "app", StartupProbe: newExecProbe("start"), LivenessProbe: newExecProbe("live")})
				h.handle("start", fails)
				h.statuses["u"] = test.published
				h.setRunning(pod, "app", "a1")
				h.advance(time.Hour)
				h.restartProber()
				h.AddPod(pod)
				h.advance(5 * time.Second)
				if results, _ := h.Results("u"); results[containerID("a1")].Startup != test.want {
					t.Fatalf("got startup %v, want %v", results[containerID("a1")].Startup, test.want)
				}
				if got := len(h.executedAt("start")); got != test.checks {
					t.Fatalf("got %d checks, want %d", got, test.checks)
				}
				if woken := h.takeRecorded("wake"); len(woken) != 1 {
					t.Fatalf("got %d wake-ups, want 1", len(woken))
				}
				if opened := len(h.executedAt("live")) > 0; opened != (test.want == derive.ProbeSuccess) {
					t.Fatal("got liveness checks that do not follow startup")
				}
			})
		})
	}
}

func TestPRB34_NoResultAfterRestart(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 3
		h.handle("ready", fails)
		h.setRunning(pod, "app", "a1")
		h.advance(time.Hour)
		h.restartProber()
		h.AddPod(pod)
		h.advance(1999 * time.Millisecond)
		if results, _ := h.Results("u"); len(results) > 0 {
			t.Fatalf("got %v after two failures of three, want none", results)
		}
		h.advance(2 * time.Second)
		if results, _ := h.Results("u"); results[containerID("a1")].Readiness != derive.ProbeFailure {
			t.Fatal("got no failure after three failures")
		}
	})
}

func TestPRB4_FirstChecksSpread(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod()
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			c := v1.Container{Name: name, ReadinessProbe: newExecProbe(name)}
			c.ReadinessProbe.PeriodSeconds = 1000
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			h.setRunning(pod, name, name)
		}
		h.advance(time.Second)
		h.restartProber()
		h.AddPod(pod)
		h.setRunning(pod, "h", "h2") // a new container is checked at once
		h.AddPod(pod)
		h.advance(1000 * time.Second)
		var firsts []float64
		for _, c := range pod.Spec.Containers[:7] {
			times := h.executedAt(c.Name)
			if len(times) == 0 {
				t.Fatalf("got no check of %s within a period", c.Name)
			}
			firsts = append(firsts, times[0])
		}
		slices.Sort(firsts)
		if distinct := len(slices.Compact(firsts)); distinct < 6 {
			t.Fatalf("got first checks at %v, want them spread", firsts)
		}
		if got := h.executedAt("h")[0]; got != 1 {
			t.Fatalf("got first check of the new container at %v, want 1", got)
		}
	})
}

func TestBUG22_ContainerRestarted(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.SuccessThreshold = 4
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(3500 * time.Millisecond)
		h.setRunning(pod, "app", "a2")
		h.AddPod(pod)
		h.advance(2500 * time.Millisecond)
		if got := h.takeRecorded("ready"); !cmp.Equal(got, []string{"ready a1 true"}) {
			t.Fatalf("after three successes of the new container: got %q", got)
		}
		h.advance(time.Second)
		if got := h.takeRecorded("ready"); !cmp.Equal(got, []string{"ready a2 true"}) {
			t.Fatalf("after four successes: got %q", got)
		}
	})
}

func TestPRB14_ExitedContainer(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		synctest.Wait()
		h.setContainer(pod, observed.Container{Name: "app", ID: containerID("a1"), State: observed.Exited})
		h.AddPod(pod)
		h.advance(5 * time.Second)
		if results, _ := h.Results("u"); results[containerID("a1")].Readiness != derive.ProbeFailure {
			t.Fatal("got ready, want not ready")
		}
		if got := h.executedAt("ready"); len(got) != 1 {
			t.Fatalf("PRB-10: got checks at %v, want one", got)
		}
	})
}

func TestPRB11_ContainerAppears(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.AddPod(pod) // PRB-9: the pod is not in the cache yet
		h.advance(2500 * time.Millisecond)
		h.setRunning(pod, "app", "a1")
		h.advance(time.Second)
		if diff := cmp.Diff([]float64{3}, h.executedAt("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestPRB3_EditedProbe(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("old"), LivenessProbe: newExecProbe("live")})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(1500 * time.Millisecond)
		edited := pod.DeepCopy()
		edited.Spec.Containers[0].ReadinessProbe = newExecProbe("new")
		edited.Spec.Containers[0].LivenessProbe = nil
		h.AddPod(edited)
		h.advance(2 * time.Second)
		for command, want := range map[string][]float64{"old": {0, 1}, "live": {1}, "new": {2, 3}} {
			if diff := cmp.Diff(want, h.executedAt(command)); diff != "" {
				t.Errorf("%s:\n%s", command, diff)
			}
		}
		if results, _ := h.Results("u"); results[containerID("a1")].Readiness != derive.ProbeSuccess {
			t.Error("got no result after an edit, want it kept")
		}
	})
}

func TestPRB3_ResultOrderAfterEdit(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("old")})
		h.handle("new", fails)
		h.setRunning(pod, "app", "a1")
		release := make(chan struct{})
		h.beforeReadiness = func() { <-release }
		h.AddPod(pod)
		synctest.Wait() // the result of the old probe is being published
		for _, command := range []string{"newer", "new"} {
			edited := pod.DeepCopy()
			edited.Spec.Containers[0].ReadinessProbe = newExecProbe(command)
			h.AddPod(edited)
		}
		h.advance(1500 * time.Millisecond)
		close(release)
		h.advance(1500 * time.Millisecond)
		if got := h.takeRecorded("ready"); !cmp.Equal(got, []string{"ready a1 true", "ready a1 false"}) {
			t.Fatalf("got %q", got)
		}
		if got := h.executedAt("newer"); got != nil {
			t.Fatalf("got checks of a replaced probe at %v, want none", got)
		}
	})
}

func TestBUG25_TerminatingUnderEarlierAgent(t *testing.T) {
	started := true
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", StartupProbe: newExecProbe("start"), ReadinessProbe: newExecProbe("ready"), LivenessProbe: newExecProbe("live")})
		for _, command := range []string{"start", "ready", "live"} {
			h.handle(command, fails)
		}
		h.setRunning(pod, "app", "a1")
		h.statuses["u"] = v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "test://a1", Started: &started}}}
		h.advance(time.Hour)
		h.restartProber()
		h.StopLivenessAndStartup(pod) // found terminating after the restart
		h.advance(2 * time.Second)
		if got := h.takeRecorded("ready"); !cmp.Equal(got, []string{"ready a1 false"}) {
			t.Errorf("got %q", got)
		}
		if start, live := h.executedAt("start"), h.executedAt("live"); start != nil || live != nil {
			t.Errorf("PRB-37: got checks at %v and %v, want none", start, live)
		}
		checks := len(h.executedAt("ready"))
		h.RemovePod("u")
		h.advance(5 * time.Second)
		if got := len(h.executedAt("ready")); got != checks {
			t.Errorf("got %d checks after RemovePod, want 0", got-checks)
		}
	})
}

func TestPRB6_RemovePod(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", StartupProbe: newExecProbe("start"), ReadinessProbe: newExecProbe("ready")})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(2500 * time.Millisecond)
		if got := h.countSeries("prober_probe_total"); got != 2 {
			t.Fatalf("PRB-42: got %d series, want 2", got)
		}
		h.StopLivenessAndStartup(pod)
		h.RemovePod("u")
		h.RemovePod("u")
		h.advance(5 * time.Second)
		if results, unhealthy := h.Results("u"); results != nil || unhealthy != nil {
			t.Errorf("got results %v, %v, want none", results, unhealthy)
		}
		if got := h.countSeries("prober_probe_total") + h.countSeries("prober_probe_duration_seconds"); got != 0 {
			t.Errorf("PRB-42: got %d series, want 0", got)
		}
		if got := h.executedAt("ready"); len(got) != 3 {
			t.Errorf("PRB-38: got checks at %v, want three", got)
		}
		h.AddPod(pod) // a static pod restarts under its UID
		synctest.Wait()
		if start, ready := h.executedAt("start"), h.executedAt("ready"); len(start) != 2 || len(ready) != 4 {
			t.Errorf("got checks at %v and %v, want a new start", start, ready)
		}
	})
}
