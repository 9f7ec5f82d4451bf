package worker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// podState returns the state of the pod's worker.
func (h *harness) podState(pod *v1.Pod) worker.PodState {
	h.Helper()
	state, found := h.Pod(podid.UID(pod.UID))
	if !found {
		h.Fatalf("pod %s has no worker", pod.UID)
	}
	return state
}

// fail makes all calls of a method of the runtime fail until the returned function is called.
func (h *harness) fail(method string, err error) (repair func()) {
	return h.runtime.Inject(fakeruntime.Method(method), fakeruntime.Fault{Err: err})
}

// countStarts returns how often a container of the pod was started.
func (h *harness) countStarts(pod *v1.Pod) int {
	h.Helper()
	inspected, err := h.runtime.InspectPod(h.Context(), podid.UID(pod.UID))
	if err != nil {
		h.Fatal(err)
	}
	return len(inspected.Containers)
}

// E3: the start happens at the published instant and not before.
func TestE3_NextStartOfCrashLoop(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 3})
		pod := newAPIPod("web")
		h.create(pod)
		h.advance(3 * time.Second) // runs twice, the second one at once
		for i, delay := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			state := h.podState(pod)
			next, waits := state.Starts["app"]
			if !waits || next.Waiting.Reason != plan.ReasonCrashLoopBackOff || next.Delay != delay || next.Failures != i+2 {
				t.Fatalf("round %d: got %+v, want a crash loop with %d short runs and a delay of %v", i, next, i+2, delay)
			}
			before := h.countStarts(pod)
			h.advance(time.Until(next.At) - 1)
			if got := h.countStarts(pod); got != before {
				t.Fatalf("round %d: got %d starts before the instant, want %d", i, got, before)
			}
			h.advance(1)
			if got := h.countStarts(pod); got != before+1 {
				t.Fatalf("round %d: got %d starts at the instant, want %d", i, got, before+1)
			}
			if got := h.podState(pod).Starts; got != nil {
				t.Fatalf("round %d: got starts %v of a running container, want none", i, got)
			}
			h.advance(time.Second)
		}
	})
}

// E3: a failed start is retried at the published instant.
func TestE3_NextStartAfterFailure(t *testing.T) {
	run(t, func(h *harness) {
		h.fail("StartContainer", errFake)
		pod := newAPIPod("web")
		h.create(pod)
		for i := range 5 {
			state := h.podState(pod)
			next := state.Starts["app"]
			if next.Waiting.Reason != "RunContainerError" || next.Failures != i+1 || !errors.Is(state.Err, errFake) {
				t.Fatalf("round %d: got %+v, %v; want %d failures", i, next, state.Err, i+1)
			}
			if !state.RetryAt.Equal(next.At) || state.Failures != i+1 {
				t.Fatalf("round %d: got retry at %v after %d failures, want %v after %d", i, state.RetryAt, state.Failures, next.At, i+1)
			}
			h.advance(time.Until(next.At) - 1)
			if got := h.podState(pod).Starts["app"].Failures; got != i+1 {
				t.Fatalf("round %d: got %d failures before the instant, want %d", i, got, i+1)
			}
			h.advance(1)
		}
	})
}

// refusalError is the error of a runtime that refuses a start for a time.
type refusalError struct{ after time.Duration }

func (refusalError) Error() string               { return "back-off pulling image" }
func (refusalError) WaitingReason() string       { return "ImagePullBackOff" }
func (e refusalError) RetryAfter() time.Duration { return e.after }

// A refused start is not an attempt, and the next attempt is when the runtime says, although the worker asks each minute.
func TestE3_NextStartOfRefusal(t *testing.T) {
	run(t, func(h *harness) {
		accept := h.fail("StartContainer", errFake)
		pod := newAPIPod("web")
		h.create(pod)
		next := h.podState(pod).Starts["app"]
		refusedUntil := next.At.Add(150 * time.Second)
		accept()
		accept = h.fail("StartContainer", refusalError{150 * time.Second})
		h.advance(time.Until(next.At))
		next = h.podState(pod).Starts["app"]
		if next.Failures != 1 || !next.At.Equal(refusedUntil) || next.Waiting.Reason != "ImagePullBackOff" {
			t.Fatalf("got %+v, want 1 failure and a start at %v", next, refusedUntil)
		}
		accept()
		h.fail("StartContainer", refusalError{90 * time.Second})
		h.advance(time.Minute)
		if got := h.podState(pod).Starts["app"]; got.Failures != 1 || !got.At.Equal(refusedUntil) || got.Delay != next.Delay {
			t.Fatalf("got %+v after a minute, want the same instant and delay as before", got)
		}
	})
}

func TestE3_RetryAt(t *testing.T) {
	run(t, func(h *harness) {
		h.volumes.set(false, errFake)
		pod := newAPIPod("web")
		h.create(pod)
		for i := range 5 {
			state := h.podState(pod)
			if state.Failures != i+1 || !errors.Is(state.Err, errFake) || !state.VolumesPending {
				t.Fatalf("got %+v, want failure %d of the volumes", state, i+1)
			}
			h.advance(time.Until(state.RetryAt) - 1)
			if got := h.podState(pod).Failures; got != i+1 {
				t.Fatalf("got %d failures before the instant, want %d", got, i+1)
			}
			h.advance(1)
		}
		h.volumes.set(false, nil)
		h.advance(time.Until(h.podState(pod).RetryAt))
		if state := h.podState(pod); state.Err != nil || state.Failures != 0 || !state.RetryAt.IsZero() || state.VolumesPending {
			t.Fatalf("got %+v, want no trouble", state)
		}
	})
}

func TestPodState_VolumesPendingDuringMount(t *testing.T) {
	run(t, func(h *harness) {
		h.volumes.set(true, nil)
		pod := newAPIPod("web")
		h.create(pod)
		if !h.podState(pod).VolumesPending {
			t.Fatal("got no pending volumes during the first mount")
		}
	})
}

func TestPodState_Stopping(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{PreStopDuration: 10 * time.Second, StopDuration: fakeruntime.Forever})
		pod := newAPIPod("web", func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
		})
		h.create(pod)
		if got := h.podState(pod).Stopping; got != nil {
			t.Fatalf("got %v of a running pod, want none", got)
		}
		began := time.Now()
		h.delete(pod, 60)
		stopping := h.podState(pod).Stopping
		if len(stopping) != 1 || stopping[0].Container != "app" || stopping[0].Reason != plan.StopPodTerminating ||
			!stopping[0].Since.Equal(began) || !stopping[0].KillAt.Equal(began.Add(time.Minute)) || !stopping[0].PreStop {
			t.Fatalf("got %+v, want app in its preStop hook, to be killed after 60s", stopping)
		}
		h.advance(10 * time.Second)
		if got := h.podState(pod).Stopping; len(got) != 1 || got[0].PreStop || !got[0].KillAt.Equal(stopping[0].KillAt) {
			t.Fatalf("got %+v after the hook, want app to be stopped", got)
		}
		h.delete(pod, 30) // a shorter grace period
		stopping = h.podState(pod).Stopping
		if len(stopping) != 1 || !stopping[0].Since.Equal(began) || stopping[0].PreStop {
			t.Fatalf("got %+v, want the same beginning", stopping)
		}
		h.advance(time.Until(stopping[0].KillAt) - 1)
		h.wantRunning(pod, true)
		h.advance(1) // E3
		h.wantRunning(pod, false)
		if state := h.podState(pod); state.Stopping != nil || state.Stage == plan.Syncing {
			t.Fatalf("got %+v, want nothing to stop", state)
		}
	})
}

func TestPodState_StopThatFails(t *testing.T) {
	run(t, func(h *harness) {
		pod := newAPIPod("web")
		h.create(pod)
		repair := h.fail("StopContainer", errFake)
		began := time.Now()
		h.delete(pod, 30)
		h.advance(5 * time.Second)
		if got := h.podState(pod); len(got.Stopping) != 1 || !got.Stopping[0].Since.Equal(began) || got.Failures < 2 {
			t.Fatalf("got %+v, want app still to be stopped since the beginning", got)
		}
		repair()
		h.advance(time.Minute)
		if got := h.podState(pod).Stopping; got != nil {
			t.Fatalf("got %+v, want none", got)
		}
	})
}

func TestPW15_PodStateWaitsFor(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		old, next, last := newStaticPod("db", "u1"), newStaticPod("db", "u2"), newStaticPod("db", "u3")
		h.create(old)
		h.remove(old)
		h.create(next)
		h.create(last)
		if got := h.podState(next); got.WaitsFor != "u1" || got.Started {
			t.Fatalf("got %+v, want a pod that waits for u1", got)
		}
		if got := h.podState(last).WaitsFor; got != "u1" {
			t.Fatalf("got %q, want u1", got)
		}
		h.advance(31 * time.Second)
		if got := h.podState(next); got.WaitsFor != "" || !got.Started {
			t.Fatalf("got %+v, want a started pod", got)
		}
		if got := h.podState(last).WaitsFor; got != "u2" {
			t.Fatalf("got %q, want u2", got)
		}
	})
}

func TestPodState_Rejected(t *testing.T) {
	for name, pod := range map[string]*v1.Pod{"api": newAPIPod("web"), "static": newStaticPod("web", "u1")} {
		t.Run(name, func(t *testing.T) {
			runWith(t, func(config *worker.Config) { config.Admit = func(*v1.Pod) error { return errFake } }, func(h *harness) {
				h.create(pod)
				state := h.podState(pod)
				if !errors.Is(state.Rejected, errFake) || state.Admitted {
					t.Fatalf("got %+v, want a rejected pod", state)
				}
				if name == "static" && (state.Failures != 1 || state.RetryAt.IsZero()) {
					t.Fatalf("got %+v, want a retry", state)
				}
			})
		})
	}
}

// A pod that has nothing to report costs nothing but the iteration itself.
func TestPodState_Idle(t *testing.T) {
	run(t, func(h *harness) {
		pod := newAPIPod("web")
		h.create(pod)
		h.advance(10 * time.Minute)
		synctest.Wait()
		state := h.podState(pod)
		if state.Starts != nil || state.Stopping != nil || !state.RetryAt.IsZero() || state.Failures != 0 || state.Err != nil {
			t.Fatalf("got %+v, want no progress to report", state)
		}
		if _, found := h.Pod("other"); found {
			t.Fatal("got the state of an unknown pod")
		}
	})
}
