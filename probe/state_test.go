package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe"
	"github.com/heraldnode/herald/probe/judge"
)

// E3: Next is the instant of the next check, not of the next evaluation.
func TestE3_NextIsTheRealInstant(t *testing.T) {
	runTest(t, func(h *harness) {
		ready := newExecProbe("ready")
		ready.InitialDelaySeconds, ready.PeriodSeconds, ready.FailureThreshold = 5, 7, 2
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: ready})
		h.handle("ready", fails)
		h.advance(30 * time.Millisecond)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		for round, want := range []float64{5.1, 12.1, 19.1} {
			h.advance(time.Second)
			h.AddPod(pod) // an evaluation changes nothing
			h.advance(0)
			next := h.State("u")[0].Next
			if got := next.Sub(startOfTime).Seconds(); got != want {
				t.Fatalf("round %d: got next %v, want %v", round, got, want)
			}
			h.advance(time.Until(next) - 1)
			if got := len(h.executedAt("ready")); got != round {
				t.Fatalf("round %d: got %d checks before the instant, want %d", round, got, round)
			}
			h.advance(1)
			if got := len(h.executedAt("ready")); got != round+1 {
				t.Fatalf("round %d: got %d checks at the instant, want %d", round, got, round+1)
			}
		}
	})
}

func TestState(t *testing.T) {
	runTest(t, func(h *harness) {
		ready, start := newExecProbe("ready"), newExecProbe("start")
		ready.FailureThreshold, start.FailureThreshold = 3, 10
		pod := newPod(v1.Container{Name: "app", StartupProbe: start, ReadinessProbe: ready})
		h.handle("start", fails)
		requireStates := func(at string, want ...probe.State) {
			t.Helper()
			if diff := cmp.Diff(want, h.State("u"), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s:\n%s", at, diff)
			}
		}
		requireStates("unknown pod")

		h.AddPod(pod)
		h.advance(500 * time.Millisecond)
		requireStates("no container",
			probe.State{Container: "app", Kind: judge.Startup, Target: "exec start", Threshold: 10},
			probe.State{Container: "app", Kind: judge.Readiness, Target: "exec ready", Threshold: 3})

		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(600 * time.Millisecond) // checked at 0.5, again at 1.5
		failed := probe.Answer{At: startOfTime.Add(500 * time.Millisecond).Local(), Message: "start output"}
		requireStates("gated",
			probe.State{
				Container: "app", ContainerID: containerID("a1"), Kind: judge.Startup, Target: "exec start", Threshold: 10,
				Streak: 1, StreakFailed: true, Last: failed, Next: startOfTime.Add(1500 * time.Millisecond).Local(),
			},
			probe.State{Container: "app", ContainerID: containerID("a1"), Kind: judge.Readiness, Target: "exec ready", Threshold: 3})

		h.handle("start", succeeds)
		h.handle("ready", func(_ context.Context) (int, error) { time.Sleep(250 * time.Millisecond); return 0, nil })
		h.advance(500 * time.Millisecond)
		states := h.State("u")
		if got := states[0]; got.Result != derive.ProbeSuccess || !got.Next.IsZero() || got.StreakFailed || got.Threshold != 1 {
			t.Fatalf("got startup %+v, want success and no next check", got)
		}
		if got := states[1]; !got.Checking || !got.Next.IsZero() {
			t.Fatalf("got readiness %+v, want a check in flight and no next check", got)
		}
		h.advance(200 * time.Millisecond)
		if got := h.State("u")[1]; got.Result != derive.ProbeSuccess || got.Last.Took != 250*time.Millisecond ||
			!got.LastSuccess.Equal(startOfTime.Add(1750*time.Millisecond)) {
			t.Fatalf("got readiness %+v, want success after 250ms", got)
		}

		h.handle("ready", errs)
		h.advance(2 * time.Second)
		if got := h.State("u")[1]; got.Errors != 2 || got.Result != derive.ProbeSuccess || got.Last.OK || got.LastSuccess.IsZero() {
			t.Fatalf("got readiness %+v, want two errors and the old result", got)
		}

		h.setRunning(pod, "app", "a2")
		h.handle("start", fails)
		h.AddPod(pod)
		h.advance(0)
		if got := h.State("u")[1]; got.ContainerID != containerID("a2") || !got.Last.At.IsZero() || !got.LastSuccess.IsZero() {
			t.Fatalf("got readiness %+v, want no answers of the previous container", got)
		}
		h.StopLivenessAndStartup(pod)
		if got := h.State("u")[0]; !got.Next.IsZero() {
			t.Fatalf("got startup %+v of a terminating pod, want no next check", got)
		}
	})
}

// Median and Longest are of the last 16 checks of an instance: the first four are forgotten, and all with the instance.
func TestState_Durations(t *testing.T) {
	runTest(t, func(h *harness) {
		ready := newExecProbe("ready")
		ready.TimeoutSeconds, ready.PeriodSeconds = 30, 30
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: ready})
		checks := 0
		h.handle("ready", func(context.Context) (int, error) {
			checks++
			time.Sleep(time.Duration(21-checks) * time.Second)
			return 0, nil
		})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(20*30*time.Second - 1) // they took 20, 19, ... and 1 second
		if got := h.State("u")[0]; checks != 20 || got.Median != 8*time.Second || got.Longest != 16*time.Second {
			t.Fatalf("got median %v and longest %v after %d checks, want 8s, 16s, 20", got.Median, got.Longest, checks)
		}
		h.setRunning(pod, "app", "a2")
		h.AddPod(pod)
		h.advance(0)
		if got := h.State("u")[0]; got.Longest != 0 {
			t.Fatalf("got %v of the instance before", got.Longest)
		}
	})
}

func TestState_Message(t *testing.T) {
	runTest(t, func(h *harness) {
		command := "\x1b[31mcontainer-id " + strings.Repeat("x", 1000)
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe(command)})
		h.handle(command, fails)
		h.setRunning(pod, "app", "container-id")
		h.AddPod(pod)
		h.advance(0)
		got := h.State("u")[0]
		if !strings.HasPrefix(got.Last.Message, "[31mapp xx") || len(got.Last.Message) > 256 || len(got.Target) > 256 {
			t.Fatalf("got message %q of %q, want a bounded one without control characters and IDs", got.Last.Message, got.Target)
		}
	})
}

func TestState_Target(t *testing.T) {
	service := "svc"
	for want, handler := range map[string]v1.ProbeHandler{
		"exec /bin/x -a":              {Exec: &v1.ExecAction{Command: []string{"/bin/x", "-a"}}},
		"http-get :8080/ready":        {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(8080), Path: "/ready"}},
		"http-get https://db:tls/":    {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("tls"), Host: "db", Scheme: v1.URISchemeHTTPS}},
		"tcp :80":                     {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}},
		"grpc :9000/svc":              {GRPC: &v1.GRPCAction{Port: 9000, Service: &service}},
		"grpc :9000":                  {GRPC: &v1.GRPCAction{Port: 9000}},
		"unknown":                     {},
		"http-get 10.0.0.7:8080/a?b=": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(8080), Host: "10.0.0.7", Path: "a?b="}},
	} {
		runTest(t, func(h *harness) {
			h.AddPod(newPod(v1.Container{Name: "app", ReadinessProbe: &v1.Probe{ProbeHandler: handler}}))
			if got := h.State("u")[0].Target; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A check on request changes nothing that the scheduled checks have found.
func TestCheckNow_ChangesNothing(t *testing.T) {
	runTest(t, func(h *harness) {
		ready := newExecProbe("ready")
		ready.PeriodSeconds = 60
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: ready})
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(time.Second)
		h.takeRecorded("")
		before := h.State("u")
		h.handle("ready", fails)
		for range 3 {
			target, answer, err := h.CheckNow(h.Context(), "u", "app", judge.Readiness)
			want := probe.Answer{At: time.Now(), Message: "ready output"}
			if err != nil || target != "exec ready" || answer != want {
				t.Fatalf("got %q, %+v, %v; want a failure", target, answer, err)
			}
		}
		if diff := cmp.Diff(before, h.State("u")); diff != "" {
			t.Fatalf("the check changed the state:\n%s", diff)
		}
		if got := h.takeRecorded(""); len(got) > 0 {
			t.Fatalf("got calls %v, want none", got)
		}
		if got := testutil.CollectAndCount(h.metrics, "prober_probe_total"); got != 1 {
			t.Fatalf("got %d series, want only that of the scheduled check", got)
		}
		if got := h.executedAt("ready"); len(got) != 4 {
			t.Fatalf("got checks at %v, want 1 scheduled and 3 on request", got)
		}
		h.advance(59 * time.Second) // the schedule is as before
		if got := h.executedAt("ready"); len(got) != 5 || got[4] != 60 {
			t.Fatalf("got checks at %v, want the next one at 60", got)
		}
	})
}

func TestCheckNow_Errors(t *testing.T) {
	runTest(t, func(h *harness) {
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.AddPod(pod)
		for name, test := range map[string]struct {
			uid, container string
			kind           judge.Kind
			want           error
		}{
			"unknown pod":       {"other", "app", judge.Readiness, probe.ErrNoProbe},
			"unknown container": {"u", "other", judge.Readiness, probe.ErrNoProbe},
			"no such kind":      {"u", "app", judge.Liveness, probe.ErrNoProbe},
			"no instance":       {"u", "app", judge.Readiness, probe.ErrNotRunning},
		} {
			if _, _, err := h.CheckNow(h.Context(), podid.UID(test.uid), test.container, test.kind); !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
		}
		h.setContainer(pod, observed.Container{Name: "app", ID: containerID("a1"), State: observed.Exited})
		if _, _, err := h.CheckNow(h.Context(), "u", "app", judge.Readiness); !errors.Is(err, probe.ErrNotRunning) {
			t.Errorf("exited: got %v, want ErrNotRunning", err)
		}
		h.setRunning(pod, "app", "a2")
		h.handle("ready", hangs)
		ctx, cancel := context.WithTimeout(h.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := h.CheckNow(ctx, "u", "app", judge.Readiness); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("canceled: got %v, want the end of the caller's context", err)
		}
	})
}

func TestOnAnswer(t *testing.T) {
	runTest(t, func(h *harness) {
		h.stop()
		h.startProber(func(c *probe.Config) { c.OnAnswer = func(uid podid.UID) { h.record("answer %s", uid) } })
		pod := newPod(v1.Container{Name: "app", ReadinessProbe: newExecProbe("ready")})
		h.handle("ready", fails)
		h.setRunning(pod, "app", "a1")
		h.AddPod(pod)
		h.advance(10 * time.Second)
		checks := len(h.executedAt("ready"))
		if got := len(h.takeRecorded("answer u")); got != checks || got == 0 {
			t.Errorf("got %d calls after %d checks, want one each", got, checks)
		}
	})
}
