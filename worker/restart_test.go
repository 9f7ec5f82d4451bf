package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// restartCall is a call of RestartContainer in progress.
type restartCall struct {
	done      chan struct{} // closed when restarted and err are set
	restarted worker.Restarted
	err       error
}

// restartContainer requests a restart and waits until nothing happens without time passing.
func (h *harness) restartContainer(ctx context.Context, pod *v1.Pod, container string) *restartCall {
	call := &restartCall{done: make(chan struct{})}
	go func() {
		defer close(call.done)
		call.restarted, call.err = h.RestartContainer(ctx, podid.UID(pod.UID), container, "new cert")
	}()
	synctest.Wait()
	return call
}

func (c *restartCall) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// recordStops collects the stops that the workers announce.
type recordStops struct {
	mu    sync.Mutex // guards stops
	stops []plan.Stop
}

func (r *recordStops) add(stop plan.Stop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, stop)
}

func (r *recordStops) taken() []plan.Stop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stops
}

func TestRestartContainer_Running(t *testing.T) {
	var stops recordStops
	runWith(t, func(config *worker.Config) { config.OnContainerStop = stops.add }, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{PreStopDuration: 2 * time.Second, StopDuration: 3 * time.Second})
		pod := newAPIPod("web", withContainers("app", "other"))
		h.create(pod)
		call := h.restartContainer(h.Context(), pod, "app")
		h.advance(5*time.Second - 1)
		if call.isDone() {
			t.Fatal("got an answer before the instance ended")
		}
		h.advance(1)
		if !call.isDone() || call.err != nil {
			t.Fatalf("got %v, want the answer at the end of the instance", call.err)
		}
		if got := call.restarted; got.ExitCode != 143 || got.Took != 5*time.Second || !got.WasRunning || !strings.HasSuffix(got.ID.ID, "-app-0") {
			t.Fatalf("got %+v, want the end of the first instance", got)
		}
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "start web_shop/other #0",
			"preStop web_shop/app", "stop web_shop/app", "start web_shop/app #1")
		if got := stops.taken(); len(got) != 1 || got[0].Reason != plan.StopUser ||
			got[0].Message != "Container app is stopped by a user (new cert), will be restarted" {
			t.Fatalf("got stops %+v, want one by a user", got)
		}
		h.advance(time.Hour)
		if got := len(h.runtime.Transcript()); got != 6 {
			t.Fatalf("got %v, want no further action", h.runtime.Transcript())
		}
	})
}

// The next start does not wait for the end of the crash-loop backoff, neither after a stop nor in the backoff itself.
func TestRestartContainer_IgnoresBackoff(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 3})
		pod := newAPIPod("web")
		h.create(pod)
		h.advance(90 * time.Second)
		next := h.podState(pod).Starts["app"]
		if next.Failures < 3 || time.Until(next.At) < 5*time.Second {
			t.Fatalf("got %+v, want a crash loop", next)
		}
		before := h.countStarts(pod)
		call := h.restartContainer(h.Context(), pod, "app")
		if got := call.restarted; !call.isDone() || call.err != nil || got.WasRunning || got.ExitCode != 3 {
			t.Fatalf("got %+v, %v; want a start of the waiting container", got, call.err)
		}
		if got := h.countStarts(pod); got != before+1 {
			t.Fatalf("got %d starts, want %d", got, before+1)
		}
		h.advance(500 * time.Millisecond)
		call = h.restartContainer(h.Context(), pod, "app") // runs for half a second
		if !call.isDone() || call.err != nil || !call.restarted.WasRunning {
			t.Fatalf("got %+v, %v; want the end of the instance", call.restarted, call.err)
		}
		if got := h.countStarts(pod); got != before+2 {
			t.Fatalf("got %d starts, want %d", got, before+2)
		}
		h.advance(2 * time.Second)
		if _, waits := h.podState(pod).Starts["app"]; !waits || h.isRunning(pod) {
			t.Fatal("got another start without backoff, want the crash loop to continue")
		}
	})
}

func TestRestartContainer_FailedStart(t *testing.T) {
	run(t, func(h *harness) {
		repair := h.fail("StartContainer", refusalError{time.Minute})
		pod := newAPIPod("web")
		h.create(pod)
		if call := h.restartContainer(h.Context(), pod, "app"); !errors.As(call.err, &refusalError{}) {
			t.Fatalf("got %v, want the error of the start", call.err)
		}
		repair()
		if call := h.restartContainer(h.Context(), pod, "app"); !call.isDone() || call.err != nil || call.restarted.ExitCode != -1 {
			t.Fatalf("got %+v, %v; want a start", call.restarted, call.err)
		}
		h.wantRunning(pod, true)
	})
}

// A stop that fails is repeated, and the container starts without backoff all the same.
func TestRestartContainer_FailedStop(t *testing.T) {
	run(t, func(h *harness) {
		pod := newAPIPod("web")
		h.create(pod)
		repair := h.fail("StopContainer", errFake)
		call := h.restartContainer(h.Context(), pod, "app")
		h.advance(time.Minute)
		if call.isDone() {
			t.Fatalf("got %+v, %v; want no answer before the end of the instance", call.restarted, call.err)
		}
		repair()
		h.advance(time.Minute)
		if !call.isDone() || call.err != nil || h.countStarts(pod) != 2 {
			t.Fatalf("got %+v, %v, %d starts; want the end and another start", call.restarted, call.err, h.countStarts(pod))
		}
	})
}

// The runtime cannot be observed when the request arrives.
func TestRestartContainer_Unobserved(t *testing.T) {
	run(t, func(h *harness) {
		pod := newAPIPod("web")
		h.create(pod)
		repair := h.fail("InspectPod", errFake)
		h.startStopOf(pod)
		call := h.restartContainer(h.Context(), pod, "app")
		h.advance(time.Minute)
		if call.isDone() {
			t.Fatalf("got %+v, %v; want no answer while nothing is known", call.restarted, call.err)
		}
		repair()
		h.advance(time.Minute)
		if !call.isDone() || call.err != nil || !h.isRunning(pod) {
			t.Fatalf("got %+v, %v; want an answer and a running container", call.restarted, call.err)
		}
	})
}

// startStopOf lets the container end without the workers' doing, so that they must observe the pod again.
func (h *harness) startStopOf(pod *v1.Pod) {
	h.Helper()
	inspected := h.cache.Get(podid.UID(pod.UID))
	if err := h.runtime.StopContainer(h.Context(), pod, plan.Stop{ID: inspected.Containers[0].ID}); err != nil {
		h.Fatal(err)
	}
}

func TestRestartContainer_TwoCallers(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 3 * time.Second})
		pod := newAPIPod("web")
		h.create(pod)
		first := h.restartContainer(h.Context(), pod, "app")
		canceled, cancel := context.WithCancel(h.Context())
		second := h.restartContainer(canceled, pod, "app")
		third := h.restartContainer(h.Context(), pod, "app")
		cancel()
		synctest.Wait()
		if !errors.Is(second.err, context.Canceled) {
			t.Fatalf("got %v, want the end of the caller's context", second.err)
		}
		h.advance(time.Minute)
		if !first.isDone() || !third.isDone() || first.err != nil || third.err != nil {
			t.Fatalf("got %v and %v, want two answers", first.err, third.err)
		}
		h.wantRunning(pod, true)
	})
}

func TestRestartContainer_Deletion(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 20 * time.Second})
		pod := newAPIPod("web")
		h.create(pod)
		call := h.restartContainer(h.Context(), pod, "app")
		h.delete(pod, 30)
		if !call.isDone() || !errors.Is(call.err, worker.ErrNotRestartable) {
			t.Fatalf("got %v, want a refusal", call.err)
		}
		h.advance(time.Minute)
		h.wantRunning(pod, false)
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "stop web_shop/app", "stop web_shop/app",
			"stop sandbox web_shop #0", "remove web_shop")
	})
}

func TestRestartContainer_Refused(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		pod       *v1.Pod
		container string
		prepare   func(*harness, *v1.Pod)
		want      error
	}{
		"unknown container": {newAPIPod("web"), "other", nil, worker.ErrUnknownContainer},
		"terminating":       {newAPIPod("web"), "app", func(h *harness, pod *v1.Pod) { h.delete(pod, 30) }, worker.ErrNotRestartable},
		"never":             {newAPIPod("web", withRestartPolicy(v1.RestartPolicyNever)), "app", nil, worker.ErrNotRestartable},
		"init container": {newAPIPod("web", func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "setup:1"}}
		}), "setup", nil, worker.ErrNotRestartable},
		"waits for init container": {newAPIPod("web", func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "setup:1"}}
		}), "app", nil, worker.ErrNotRestartable},
		"completed": {newAPIPod("web", withContainers("app", "other"), withRestartPolicy(v1.RestartPolicyOnFailure)), "app",
			func(h *harness, _ *v1.Pod) { h.advance(time.Minute) }, worker.ErrNotRestartable},
		"sidecar": {newAPIPod("web", func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}}
		}), "proxy", nil, nil},
		"on failure": {newAPIPod("web", withContainers("other", "app"), withRestartPolicy(v1.RestartPolicyOnFailure)), "other", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runtime.SetScript("app", fakeruntime.Script{RunDuration: 10 * time.Second, StopDuration: time.Second})
				pod := test.pod.DeepCopy()
				h.create(pod)
				if test.prepare != nil {
					test.prepare(h, pod)
				}
				call := h.restartContainer(h.Context(), pod, test.container)
				h.advance(time.Second)
				if !call.isDone() || !errors.Is(call.err, test.want) || (call.err == nil) != (test.want == nil) {
					t.Fatalf("got %+v, %v; want %v", call.restarted, call.err, test.want)
				}
			})
		})
	}
	run(t, func(h *harness) {
		if _, err := h.RestartContainer(h.Context(), "unknown", "app", ""); !errors.Is(err, worker.ErrUnknownPod) {
			t.Fatalf("got %v, want ErrUnknownPod", err)
		}
	})
}

func TestRestartContainer_Reason(t *testing.T) {
	var stops recordStops
	runWith(t, func(config *worker.Config) { config.OnContainerStop = stops.add }, func(h *harness) {
		pod := newAPIPod("web")
		h.create(pod)
		hostile := "\x1b[31mred\n" + strings.Repeat("é", 300)
		if _, err := h.RestartContainer(h.Context(), podid.UID(pod.UID), "app", hostile); err != nil {
			t.Fatal(err)
		}
		got := stops.taken()[0].Message
		if strings.ContainsAny(got, "\x1b\n") || len(got) > 350 || !strings.Contains(got, "[31mred é") {
			t.Fatalf("got %q, want a bounded text without control characters", got)
		}
	})
}

// An action of an alert rule stops a container like a user, but does not shorten its crash loop.
func TestRestartContainerByAction_Backoff(t *testing.T) {
	var stops recordStops
	runWith(t, func(config *worker.Config) { config.OnContainerStop = stops.add }, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 3})
		pod := newAPIPod("web")
		h.create(pod)
		h.advance(90 * time.Second)
		before := h.countStarts(pod)
		if _, err := h.RestartContainerByAction(h.Context(), podid.UID(pod.UID), "app", "alert Stuck"); !errors.Is(err, worker.ErrNotRestartable) {
			t.Fatalf("got %v, want a refusal: the container waits for its next start", err)
		}
		if got := h.countStarts(pod); got != before {
			t.Fatalf("got %d starts, want %d", got, before)
		}
		for h.countStarts(pod) == before {
			h.advance(100 * time.Millisecond)
		}
		restarted, err := h.RestartContainerByAction(h.Context(), podid.UID(pod.UID), "app", "alert Stuck")
		if err != nil || !restarted.WasRunning {
			t.Fatalf("got %+v, %v, want the end of the instance", restarted, err)
		}
		h.advance(5 * time.Second)
		if next := h.podState(pod).Starts["app"]; h.countStarts(pod) != before+1 || next.At.IsZero() {
			t.Fatalf("got %d starts and %+v, want the crash loop to continue", h.countStarts(pod), next)
		}
		if got := stops.taken(); len(got) != 1 || got[0].Reason != plan.StopAction ||
			got[0].Message != "Container app is stopped by an action (alert Stuck), will be restarted" {
			t.Fatalf("got stops %+v, want one by an action", got)
		}
	})
}
