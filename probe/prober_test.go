package probe_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/worker"
)

// What the stages ask of each other fits.
var (
	_ worker.Probes  = (*probe.Prober)(nil)
	_ probe.PodCache = (*pleg.PLEG)(nil)
	_ probe.Statuses = (*status.Manager)(nil)
	_ check.Runtime  = (*cri.Runtime)(nil)
)

func TestPRB1EachDeclaredProbeIsAskedOncePerPeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		always := v1.ContainerRestartPolicyAlways
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready"), LivenessProbe: command("live")})
		pod.Spec.InitContainers = []v1.Container{
			{Name: "once", ReadinessProbe: command("init")},
			{Name: "side", RestartPolicy: &always, ReadinessProbe: command("side")},
		}
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", ReadinessProbe: command("debug")}},
		}
		for _, name := range []string{"app", "once", "side", "debug"} {
			w.run(pod, name, name+"1")
		}
		w.AddPod(pod)
		w.AddPod(pod)
		w.after(2500 * time.Millisecond)
		for word, want := range map[string][]float64{"ready": {0, 1, 2}, "live": {1, 2}, "side": {0, 1, 2}, "init": nil, "debug": nil} {
			if diff := cmp.Diff(want, w.times(word)); diff != "" {
				t.Errorf("%s was asked at (PRB-2: never what runs to its end):\n%s", word, diff)
			}
		}
	})
}

func TestPRB40AVerdictReachesTheStatusFirstThenTheWorker(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(3500 * time.Millisecond)
		w.answer("ready", fails)
		w.after(2 * time.Second)
		want := []string{
			"ready a1 true", "wake u",
			"event spec.containers{app} Warning Unhealthy: Readiness probe failed: ready said so", "ready a1 false", "wake u",
			"event spec.containers{app} Warning Unhealthy: Readiness probe failed: ready said so",
		}
		if diff := cmp.Diff(want, w.heard("")); diff != "" {
			t.Fatalf("PRB-31: only what changed is told:\n%s", diff)
		}
	})
}

func TestPRB17StartupGatesTheOthersAndOpensTheGateAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := command("live")
		slow.PeriodSeconds = 100
		pod := podOf(v1.Container{Name: "app", StartupProbe: command("start"), ReadinessProbe: command("ready"), LivenessProbe: slow})
		pod.Spec.Containers[0].StartupProbe.FailureThreshold = 10
		w.answer("start", fails)
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(2500 * time.Millisecond)
		w.answer("start", succeeds)
		w.after(3 * time.Second)
		for word, want := range map[string][]float64{"start": {0, 1, 2, 3}, "ready": {3, 4, 5}, "live": {3}} {
			if diff := cmp.Diff(want, w.times(word)); diff != "" {
				t.Errorf("%s was asked at (PRB-16: startup rests when it has passed):\n%s", word, diff)
			}
		}
		facts, unhealthy := w.Results("u")
		want := derive.ProbeResults{named("a1"): {Startup: derive.ProbeSuccess, Readiness: derive.ProbeSuccess}}
		if diff := cmp.Diff(want, facts); diff != "" || len(unhealthy) > 0 {
			t.Fatal(diff, unhealthy)
		}
	})
}

func TestPRB20AfterAVerdictForRestartNothingIsAskedUntilTheNextContainer(t *testing.T) {
	for name, test := range map[string]struct {
		declare func(*v1.Container)
		asked   []float64
	}{
		"liveness": {func(c *v1.Container) { c.LivenessProbe = command("ask") }, []float64{1, 4.5}},
		"startup":  {func(c *v1.Container) { c.StartupProbe = command("ask") }, []float64{0, 3.5}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := podOf(v1.Container{Name: "app"})
				test.declare(&pod.Spec.Containers[0])
				w.answer("ask", fails)
				w.run(pod, "app", "a1")
				w.AddPod(pod)
				w.after(3500 * time.Millisecond)
				_, unhealthy := w.Results("u")
				if diff := cmp.Diff(map[observed.ContainerID]string{named("a1"): ""}, unhealthy); diff != "" {
					t.Fatal(diff)
				}
				if got := w.heard("wake"); len(got) != 1 {
					t.Fatalf("PRB-13: woken %d times", len(got))
				}
				w.run(pod, "app", "a2")
				w.AddPod(pod)
				w.after(3 * time.Second)
				if diff := cmp.Diff(test.asked, w.times("ask")); diff != "" {
					t.Fatal(diff)
				}
			})
		})
	}
}

func TestPRB15LivenessGivesAContainerAPeriodToStart(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := func(word string, delay int32) *v1.Probe {
			p := command(word)
			p.PeriodSeconds, p.InitialDelaySeconds = 10, delay
			return p
		}
		pod := podOf(
			v1.Container{Name: "app", LivenessProbe: slow("live", 0), ReadinessProbe: slow("ready", 0)},
			v1.Container{Name: "delayed", LivenessProbe: slow("said", 3)},
			v1.Container{Name: "gated", LivenessProbe: slow("gated", 0), StartupProbe: slow("start", 0)},
		)
		for _, name := range []string{"app", "delayed", "gated"} {
			w.run(pod, name, name+"1")
		}
		w.AddPod(pod)
		w.after(11 * time.Second)
		for word, want := range map[string][]float64{"live": {10}, "ready": {0, 10}, "said": {3}, "start": {0}, "gated": {0, 10}} {
			if diff := cmp.Diff(want, w.times(word)); diff != "" {
				t.Errorf("%s was asked at:\n%s", word, diff)
			}
		}
	})
}

func TestBUG23StoppingCancelsTheCheckThatIsUnderWay(t *testing.T) {
	for name, stop := range map[string]func(*world, *v1.Pod){
		"the pod goes":        func(w *world, _ *v1.Pod) { w.RemovePod("u") },
		"the pod is stopping": func(w *world, pod *v1.Pod) { w.StopLivenessAndStartup(pod) },
		"the agent ends":      func(w *world, _ *v1.Pod) { w.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := podOf(v1.Container{Name: "app", LivenessProbe: command("live")})
				pod.Spec.Containers[0].LivenessProbe.TimeoutSeconds = 1000
				var ended time.Duration
				w.answer("live", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					ended = time.Since(began)
					return 1, nil
				})
				w.run(pod, "app", "a1")
				w.AddPod(pod)
				w.after(5 * time.Second)
				stop(w, pod)
				stop(w, pod)
				w.after(5 * time.Second)
				if ended != 5*time.Second {
					t.Fatalf("the command ended after %v", ended)
				}
				if told := w.heard(""); told != nil {
					t.Fatalf("a check that was stopped was told of: %q", told)
				}
			})
		})
	}
}

func TestBUG25ReadinessFallsWhileAPodStops(t *testing.T) {
	inWorld(t, func(w *world) {
		always := v1.ContainerRestartPolicyAlways
		pod := podOf(v1.Container{Name: "app", StartupProbe: command("start"), ReadinessProbe: command("ready"), LivenessProbe: command("live")})
		pod.Spec.InitContainers = []v1.Container{{
			Name: "side", RestartPolicy: &always, StartupProbe: command("sidestart"), LivenessProbe: command("sidelive"), ReadinessProbe: command("sideready"),
		}}
		w.run(pod, "app", "a1")
		w.run(pod, "side", "s1")
		w.AddPod(pod)
		w.after(1500 * time.Millisecond)
		w.StopLivenessAndStartup(pod)
		w.heard("")
		for _, word := range []string{"ready", "live", "sidelive", "sideready"} {
			w.answer(word, fails)
		}
		w.AddPod(pod) // a sync that was under way
		w.after(2 * time.Second)
		if got := w.heard("ready"); len(got) != 2 || !slices.Contains(got, "ready a1 false") || !slices.Contains(got, "ready s1 false") {
			t.Fatalf("PRB-8: told %q", got)
		}
		if live, side := w.times("live"), w.times("sidelive"); len(live) != 2 || len(side) != 2 {
			t.Fatalf("PRB-37, BUG-35: liveness went on: %v, %v", live, side)
		}
		if _, unhealthy := w.Results("u"); len(unhealthy) > 0 {
			t.Fatalf("PRB-21: a pod that stops has unhealthy containers: %v", unhealthy)
		}
	})
}

func TestPRB21AContainerThatWasUnhealthyStopsInPeace(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", LivenessProbe: command("live")})
		w.answer("live", fails)
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(time.Second)
		w.StopLivenessAndStartup(pod)
		if _, unhealthy := w.Results("u"); len(unhealthy) > 0 {
			t.Fatalf("it is still %v", unhealthy)
		}
	})
}

func TestF24AContainerThatHangsDelaysNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		hanging := podOf()
		seen := &observed.Pod{}
		for i := range 1000 {
			name := "c" + strconv.Itoa(i)
			c := v1.Container{Name: name, LivenessProbe: command("hang")}
			c.LivenessProbe.TimeoutSeconds = 600
			hanging.Spec.Containers = append(hanging.Spec.Containers, c)
			seen.Containers = append(seen.Containers, observed.Container{
				Name: name, ID: named(name), State: observed.Running, StartedAt: time.Now(),
			})
		}
		w.seen["u"] = seen
		w.answer("hang", hangs)
		well := podOf(v1.Container{Name: "app", LivenessProbe: command("live")})
		well.UID, well.Name = "v", "well"
		w.run(well, "app", "a1")
		w.AddPod(hanging)
		w.AddPod(well)
		w.after(10500 * time.Millisecond)
		if got := w.times("live"); len(got) != 10 {
			t.Fatalf("asked at %v", got)
		}
		if got := len(w.times("hang")); got != 1000 {
			t.Fatalf("%d checks of 1000 probes that hang", got)
		}
	})
}

func TestPRB36ASyncDoesNotMakeProbesRunMoreOften(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 10
		w.answer("ready", fails)
		w.run(pod, "app", "a1")
		for range 250 {
			w.AddPod(pod)
			w.after(100 * time.Millisecond)
		}
		if diff := cmp.Diff([]float64{0, 10, 20}, w.times("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestASyncDuringALookIsNotLost(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 100
		w.looking = func() {
			w.run(pod, "app", "a1")
			w.AddPod(pod)
		}
		w.AddPod(pod)
		synctest.Wait()
		if got := w.times("ready"); len(got) != 1 {
			t.Fatalf("the container that appeared during the look was asked at %v", got)
		}
	})
}

func TestASyncDuringALookDoesNotMakeTwoChecksOfOne(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 10
		w.answer("ready", hangs)
		w.run(pod, "app", "a1")
		w.looking = func() { w.AddPod(pod) }
		w.AddPod(pod)
		w.after(15 * time.Second)
		if diff := cmp.Diff([]float64{0, 10}, w.times("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestPRB5ACheckThatTakesLongerThanThePeriodIsFollowedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := podOf(v1.Container{Name: "app", ReadinessProbe: command("ready")})
		pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 3
		w.answer("ready", hangs)
		w.run(pod, "app", "a1")
		w.AddPod(pod)
		w.after(7 * time.Second)
		if diff := cmp.Diff([]float64{0, 3, 6}, w.times("ready")); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := probe.New(probe.Config{})
	if err == nil || err.Error() != "probe.Config: PodCache is required\nprobe.Config: Statuses is required" {
		t.Fatalf("%v", err)
	}
}
