package probe_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// The components implement each other's interfaces.
var (
	_ worker.Probes  = (*probe.Prober)(nil)
	_ probe.PodCache = (*pleg.PLEG)(nil)
	_ probe.Statuses = (*status.Manager)(nil)
	_ check.Runtime  = (*cri.Runtime)(nil)
)

// PRB-2: containers that run to completion are not probed.
func TestPRB1_OncePerPeriod(t *testing.T) {
	runTest(t, func(h *harness) {
		always := v1.ContainerRestartPolicyAlways
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready"), LivenessProbe: newExecProbe("live")})
		pod.Spec.InitContainers = []v1.Container{
			{Name: "once", ReadinessProbe: newExecProbe("init")},
			{Name: "side", RestartPolicy: &always, ReadinessProbe: newExecProbe("side")},
		}
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", ReadinessProbe: newExecProbe("debug")}},
		}
		for _, name := range []string{"app", "once", "side", "debug"} {
			h.setRunning(pod, name, name+"1")
		}
		h.AddPod(pod)
		h.AddPod(pod)
		h.advance(2500 * time.Millisecond)
		for command, want := range map[string][]float64{"ready": {0, 1, 2}, "live": {1, 2}, "side": {0, 1, 2}, "init": nil, "debug": nil} {
			if diff := cmp.Diff(want, h.executedAt(command)); diff != "" {
				t.Errorf("%s:\n%s", command, diff)
			}
		}
	})
}

// Checks of containers that started at any time fall into a few instants of each second, and are exactly a period apart from then on.
// The first check is not delayed.
func TestPRB1_ChecksCoalesce(t *testing.T) {
	runTest(t, func(h *harness) {
		const containers = 60
		for i := range containers {
			pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe(fmt.Sprint("ready", i))})
			pod.UID = types.UID(fmt.Sprint("u", i))
			h.setRunning(pod, "app", fmt.Sprint("a", i))
			h.AddPod(pod)
			h.advance(1700 * time.Microsecond)
		}
		h.advance(5 * time.Second)
		instants := map[float64]bool{}
		for i := range containers {
			checks := h.executedAt(fmt.Sprint("ready", i))
			if want := (time.Duration(i) * 1700 * time.Microsecond).Seconds(); checks[0] != want {
				t.Errorf("container %d: got the first check at %v, want %v", i, checks[0], want)
			}
			if gap := checks[1] - checks[0]; gap < 1 || gap > 1.1 {
				t.Errorf("container %d: got the second check %v s after the first, want 1 to 1.1", i, gap)
			}
			for j, at := range checks[1:] {
				if want := checks[1] + float64(j); math.Abs(at-want) > 1e-9 {
					t.Errorf("container %d: got a check at %v, want %v", i, at, want)
				}
				instants[math.Mod(math.Round(at*1000), 1000)] = true
			}
		}
		if len(instants) > 3 {
			t.Errorf("got checks at %d instants of a second, want at most 3 for containers that started within 101 ms: %v", len(instants), instants)
		}
	})
}

// PRB-31: only changes are reported.
func TestPRB40_StatusBeforeWake(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(3500 * time.Millisecond)
		h.handle("ready", fails)
		h.advance(2 * time.Second)
		want := []string{
			"ready a1 true", "wake u",
			"event spec.containers{app} Warning Unhealthy: Readiness probe failed: ready output", "ready a1 false", "wake u",
			"event spec.containers{app} Warning Unhealthy: Readiness probe failed: ready output",
		}
		if diff := cmp.Diff(want, h.takeRecorded("")); diff != "" {
			t.Fatalf("PRB-31:\n%s", diff)
		}
	})
}

// PRB-16: a startup probe that succeeded is not checked again.
func TestPRB17_StartupGatesOthers(t *testing.T) {
	runTest(t, func(h *harness) {
		slow := newExecProbe("live")
		slow.PeriodSeconds = 100
		pod := newPod(v1.Container{Name: "app", StartupProbe: newExecProbe("start"), ReadinessProbe: newExecProbe("ready"), LivenessProbe: slow})
		pod.Spec.Containers[0].StartupProbe.FailureThreshold = 10
		h.handle("start", fails)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(2500 * time.Millisecond)
		h.handle("start", succeeds)
		h.advance(3 * time.Second)
		for command, want := range map[string][]float64{"start": {0, 1, 2, 3}, "ready": {3, 4, 5}, "live": {3}} {
			if diff := cmp.Diff(want, h.executedAt(command)); diff != "" {
				t.Errorf("%s:\n%s", command, diff)
			}
		}
		results, unhealthy := h.Results("u")
		want := derive.ProbeResults{containerID("a1"): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}}
		if diff := cmp.Diff(want, results); diff != "" || len(unhealthy) > 0 {
			t.Fatal(diff, unhealthy)
		}
	})
}

func TestPRB20_OnHoldUntilNextContainer(t *testing.T) {
	for name, test := range map[string]struct {
		declare func(*v1.Container)
		checks  []float64
	}{
		"liveness": {func(c *v1.Container) { c.LivenessProbe = newExecProbe("check") }, []float64{1, 4.5}},
		"startup":  {func(c *v1.Container) { c.StartupProbe = newExecProbe("check") }, []float64{0, 3.5}},
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(h *harness) {
				pod := newPod(v1.Container{Name: "app"})
				test.declare(&pod.Spec.Containers[0])
				h.handle("check", fails)
				h.setRunning(pod, "app", "a1")
				h.AddPod(pod)
				h.advance(3500 * time.Millisecond)
				_, unhealthy := h.Results("u")
				if diff := cmp.Diff(map[observed.ContainerID]string{containerID("a1"): ""}, unhealthy); diff != "" {
					t.Fatal(diff)
				}
				if got := h.takeRecorded("wake"); len(got) != 1 {
					t.Fatalf("PRB-13: got %d wake-ups, want 1", len(got))
				}
				h.setRunning(pod, "app", "a2")
				h.AddPod(pod)
				h.advance(3 * time.Second)
				if diff := cmp.Diff(test.checks, h.executedAt("check")); diff != "" {
					t.Fatal(diff)
				}
			})
		})
	}
}

func TestPRB15_FirstCheck(t *testing.T) {
	runTest(t, func(h *harness) {
		slow := func(command string, delay int32) *v1.Probe {
			p := newExecProbe(command)
			p.PeriodSeconds, p.InitialDelaySeconds = 10, delay
			return p
		}
		pod := newPod(
			v1.Container{Name: "app", LivenessProbe: slow("live", 0), ReadinessProbe: slow("ready", 0)},
			v1.Container{Name: "delayed", LivenessProbe: slow("delayed", 3)},
			v1.Container{Name: "gated", LivenessProbe: slow("gated", 0), StartupProbe: slow("start", 0)},
		)
		for _, name := range []string{"app", "delayed", "gated"} {
			h.setRunning(pod, name, name+"1")
		}
		h.AddPod(pod)
		h.advance(11 * time.Second)
		for command, want := range map[string][]float64{"live": {10}, "ready": {0, 10}, "delayed": {3}, "start": {0}, "gated": {0, 10}} {
			if diff := cmp.Diff(want, h.executedAt(command)); diff != "" {
				t.Errorf("%s:\n%s", command, diff)
			}
		}
	})
}

func TestBUG23_CancelCheck(t *testing.T) {
	for name, stop := range map[string]func(*harness, *v1.Pod){
		"pod removed":     func(h *harness, _ *v1.Pod) { h.RemovePod("u") },
		"pod terminating": func(h *harness, pod *v1.Pod) { h.StopLivenessAndStartup(pod) },
		"prober stopped":  func(h *harness, _ *v1.Pod) { h.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			runTest(t, func(h *harness) {
				pod := newPod(v1.Container{Name: "app", LivenessProbe: newExecProbe("live")})
				pod.Spec.Containers[0].LivenessProbe.TimeoutSeconds = 1000
				var ended time.Duration
				h.handle("live", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					ended = time.Since(startOfTime)
					return 1, nil
				})
				h.setRunning(pod, "app", "a1")
				h.AddPod(pod)
				h.advance(5 * time.Second)
				stop(h, pod)
				stop(h, pod)
				h.advance(5 * time.Second)
				if ended != 5*time.Second {
					t.Fatalf("got end of the command after %v, want 5s", ended)
				}
				if recorded := h.takeRecorded(""); recorded != nil {
					t.Fatalf("got %q, want none", recorded)
				}
			})
		})
	}
}

func TestBUG25_ReadinessWhileTerminating(t *testing.T) {
	runTest(t, func(h *harness) {
		always := v1.ContainerRestartPolicyAlways
		pod := newPod(v1.Container{Name: "app", StartupProbe: newExecProbe("start"), ReadinessProbe: newExecProbe("ready"), LivenessProbe: newExecProbe("live")})
		pod.Spec.InitContainers = []v1.Container{{
			Name: "side", RestartPolicy: &always, StartupProbe: newExecProbe("sidestart"), LivenessProbe: newExecProbe("sidelive"), ReadinessProbe: newExecProbe("sideready"),
		}}
		h.setRunning(pod, "app", "a1")
		h.setRunning(pod, "side", "s1")
		h.AddPod(pod)
		h.advance(1500 * time.Millisecond)
		h.StopLivenessAndStartup(pod)
		h.takeRecorded("")
		for _, command := range []string{"ready", "live", "sidelive", "sideready"} {
			h.handle(command, fails)
		}
		h.AddPod(pod) // by a sync in flight
		h.advance(2 * time.Second)
		if got := h.takeRecorded("ready"); len(got) != 2 || !slices.Contains(got, "ready a1 false") || !slices.Contains(got, "ready s1 false") {
			t.Fatalf("PRB-8: got %q", got)
		}
		if live, side := h.executedAt("live"), h.executedAt("sidelive"); len(live) != 2 || len(side) != 2 {
			t.Fatalf("PRB-37, BUG-35: got liveness checks at %v and %v, want two each", live, side)
		}
		if _, unhealthy := h.Results("u"); len(unhealthy) > 0 {
			t.Fatalf("PRB-21: got unhealthy %v, want none", unhealthy)
		}
	})
}

func TestPRB21_UnhealthyTerminating(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", LivenessProbe: newExecProbe("live")})
		h.handle("live", fails)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(time.Second)
		h.StopLivenessAndStartup(pod)
		if _, unhealthy := h.Results("u"); len(unhealthy) > 0 {
			t.Fatalf("got unhealthy %v, want none", unhealthy)
		}
	})
}

func TestF24_HangingContainers(t *testing.T) {
	runTest(t, func(h *harness) {
		hanging := newPod()
		runtimePod := &observed.Pod{}
		for i := range 1000 {
			name := "c" + strconv.Itoa(i)
			c := v1.Container{Name: name, LivenessProbe: newExecProbe("hang")}
			c.LivenessProbe.TimeoutSeconds = 600
			hanging.Spec.Containers = append(hanging.Spec.Containers, c)
			runtimePod.Containers = append(runtimePod.Containers, observed.Container{
				Name: name, ID: containerID(name), State: observed.Running, StartedAt: time.Now(),
			})
		}
		h.pods["u"] = runtimePod
		h.handle("hang", hangs)
		well := newPod(v1.Container{Name: "app", LivenessProbe: newExecProbe("live")})
		well.UID, well.Name = "v", "well"
		h.setRunning(well, "app", "a1")
		h.AddPod(hanging)
		h.AddPod(well)
		h.advance(10500 * time.Millisecond)
		if got := h.executedAt("live"); len(got) != 10 {
			t.Fatalf("got checks at %v, want 10", got)
		}
		if got := len(h.executedAt("hang")); got != 10 { // the limit of one pod
			t.Fatalf("got %d checks of hanging probes, want 10", got)
		}
	})
}

func TestPRB36_FrequentSyncs(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 10
		h.handle("ready", fails)
		h.setRunning(pod, "app", "a1")
		for range 250 {
			h.AddPod(pod)
			h.advance(100 * time.Millisecond)
		}
		if diff := cmp.Diff([]float64{0, 10, 20}, h.executedAt("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestProber_AddPodDuringObserve(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 100
		h.duringGet = func() {
			h.setRunning(pod, "app", "a1")
			h.AddPod(pod)
		}
		h.AddPod(pod)
		synctest.Wait()
		if got := h.executedAt("ready"); len(got) != 1 {
			t.Fatalf("got checks at %v, want one", got)
		}
	})
}

func TestProber_SingleCheckInFlight(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 10
		h.handle("ready", hangs)
		h.setRunning(pod, "app", "a1")
		h.duringGet = func() { h.AddPod(pod) }
		h.AddPod(pod)
		h.advance(15 * time.Second)
		if diff := cmp.Diff([]float64{0, 10}, h.executedAt("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestPRB5_SlowCheck(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 3
		h.handle("ready", hangs)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(7 * time.Second)
		if diff := cmp.Diff([]float64{0, 3, 6}, h.executedAt("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestConfig_Required(t *testing.T) {
	_, err := probe.New(probe.Config{})
	if err == nil || err.Error() != "probe.Config: PodCache is required\nprobe.Config: Statuses is required" {
		t.Fatalf("got %v", err)
	}
}

// churn calls the prober for one pod in random order.
func (h *harness) churn(uid types.UID, rounds int) {
	pod := newPod(v1.Container{Name: "app", StartupProbe: newExecProbe("start"), ReadinessProbe: newExecProbe("ready"), LivenessProbe: newExecProbe("live")})
	pod.UID = uid
	for round := range rounds {
		switch rand.IntN(6) {
		case 0:
			h.RemovePod(podid.UID(uid))
		case 1:
			h.StopLivenessAndStartup(pod)
		case 2:
			pod = pod.DeepCopy()
			pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 1 + rand.Int32N(3)
		case 3:
			h.setRunning(pod, "app", fmt.Sprint(uid, "-", round))
		}
		h.AddPod(pod)
		h.Results(podid.UID(uid))
		time.Sleep(rand.N(700 * time.Millisecond))
	}
	h.RemovePod(podid.UID(uid))
}

func TestI14_Churn(t *testing.T) {
	runTest(t, func(h *harness) {
		h.handle("live", hangs)
		var workers sync.WaitGroup
		for n := range 8 {
			workers.Go(func() { h.churn(types.UID(fmt.Sprint("u", n)), 300) })
		}
		workers.Wait()
		synctest.Wait()
		checks := len(h.executedAt("ready"))
		h.advance(time.Minute)
		if more := len(h.executedAt("ready")) - checks; checks == 0 || more > 0 {
			t.Errorf("got %d checks, and %d after all pods were removed", checks, more)
		}
		if left := h.countSeries("prober_probe_total") + h.countSeries("prober_probe_duration_seconds"); left > 0 {
			t.Errorf("got %d series, want 0", left)
		}
	})
}

// TestProber_ExecConcurrency probes a pod whose commands all take their time. The time that a command waits for the others does
// not count against its timeout.
func TestProber_ExecConcurrency(t *testing.T) {
	runTest(t, func(h *harness) {
		var mu sync.Mutex
		running, most := 0, 0
		h.handle("slow", func(context.Context) (int, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(900 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return 0, nil
		})
		pod := newPod()
		for i := range 35 {
			name := fmt.Sprintf("c%d", i)
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name, ReadinessProbe: newExecProbe("slow")})
			h.setRunning(pod, name, name)
		}
		h.AddPod(pod)
		other := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("quick")})
		other.UID = "v"
		h.setRunning(other, "app", "other")
		h.AddPod(other)
		h.advance(5 * time.Second)
		if most != 10 {
			t.Errorf("got %d commands at once, want 10", most)
		}
		if got := h.executedAt("quick"); len(got) != 6 {
			t.Errorf("other pod: got checks at %v, want one each second", got)
		}
		ready := map[string]bool{}
		for _, call := range h.takeRecorded("ready ") {
			ready[call] = true
		}
		for i := range 35 {
			if !ready[fmt.Sprintf("ready c%d true", i)] {
				t.Errorf("container c%d is not ready", i)
			}
		}
	})
}
