package fakeruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uid podid.UID = "web"

var web = heraldtest.NewPod("web")

// harness is a runtime with one sandbox of the pod web, inside a synctest bubble.
type harness struct {
	*testing.T
	*fakeruntime.Runtime
	sandboxID string
}

func run(t *testing.T, test func(*harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t, Runtime: fakeruntime.New()}
		var err error
		if h.sandboxID, err = h.StartSandbox(h.Context(), web, 0); err != nil {
			h.Fatal(err)
		}
		test(h)
	})
}

func (h *harness) start(ctx context.Context, restartCount int) error {
	return h.StartContainer(ctx, web, h.sandboxID, plan.Start{
		Container: &web.Spec.Containers[0], Kind: derive.RegularContainer, RestartCount: restartCount,
	})
}

func (h *harness) mustStart(restartCount int) observed.Container {
	h.Helper()
	if err := h.start(h.Context(), restartCount); err != nil {
		h.Fatal(err)
	}
	return h.newest()
}

func (h *harness) newest() observed.Container {
	h.Helper()
	pod, err := h.InspectPod(h.Context(), uid)
	if err != nil || len(pod.Containers) == 0 {
		h.Fatalf("got pod %v, err %v, want a container", pod, err)
	}
	return pod.Containers[0]
}

func TestRuntime_Script(t *testing.T) {
	tests := map[string]struct {
		script   fakeruntime.Script
		after    time.Duration
		want     observed.State
		exitCode int
	}{
		"runs until stopped": {fakeruntime.Script{}, time.Hour, observed.Running, 0},
		"exits":              {fakeruntime.Script{RunDuration: time.Minute, ExitCode: 3}, time.Minute, observed.Exited, 3},
		"not before its time": {
			fakeruntime.Script{RunDuration: time.Minute, ExitCode: 3}, 59 * time.Second, observed.Running, 0,
		},
		"pull takes time": {
			fakeruntime.Script{PullDuration: time.Minute, RunDuration: time.Minute}, 59 * time.Second, observed.Running, 0,
		},
		"runs during postStart hook": {
			fakeruntime.Script{PostStartDuration: time.Minute, RunDuration: 90 * time.Second}, 31 * time.Second, observed.Exited, 0,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.SetScript("main", test.script)
				h.mustStart(0)
				time.Sleep(test.after)
				synctest.Wait()
				got := h.newest()
				if got.State != test.want || (got.Exit != nil && got.Exit.Code != test.exitCode) {
					h.Fatalf("got %s, exit %+v, want %s, exit code %d", got.State, got.Exit, test.want, test.exitCode)
				}
			})
		})
	}
}

func TestPW24_StopContainer(t *testing.T) {
	const grace = 30 * time.Second
	tests := map[string]struct {
		script   fakeruntime.Script
		grace    time.Duration
		want     time.Duration
		exitCode int
	}{
		"exits at once":   {fakeruntime.Script{}, grace, 0, 143},
		"exits slowly":    {fakeruntime.Script{StopDuration: 5 * time.Second}, grace, 5 * time.Second, 143},
		"ignores SIGTERM": {fakeruntime.Script{StopDuration: fakeruntime.Forever}, grace, grace, 137},
		"hook deducted from grace": {
			fakeruntime.Script{PreStopDuration: 20 * time.Second, StopDuration: fakeruntime.Forever}, grace, grace, 137,
		},
		"2s left after long hook": {
			fakeruntime.Script{PreStopDuration: time.Hour, StopDuration: fakeruntime.Forever}, grace, 32 * time.Second, 137,
		},
		"2s minimum": {fakeruntime.Script{StopDuration: fakeruntime.Forever}, time.Second, 2 * time.Second, 137},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.SetScript("main", test.script)
				container := h.mustStart(0)
				start := time.Now()
				err := h.StopContainer(h.Context(), web, plan.Stop{ID: container.ID, Grace: test.grace})
				if took, exit := time.Since(start), h.newest().Exit; err != nil || took != test.want || exit.Code != test.exitCode {
					h.Fatalf("got %v after %v, exit %+v, want exit code %d after %v", err, took, exit, test.exitCode, test.want)
				}
			})
		})
	}
}

func TestRuntime_ContextDeadline(t *testing.T) {
	run(t, func(h *harness) {
		container := h.mustStart(0)
		h.Inject(func(fakeruntime.Call) bool { return true }, fakeruntime.Fault{Delay: fakeruntime.Forever})
		calls := map[string]func(context.Context) error{
			"StartSandbox":   func(ctx context.Context) error { _, err := h.StartSandbox(ctx, web, 1); return err },
			"StartContainer": func(ctx context.Context) error { return h.start(ctx, 1) },
			"StopContainer":  func(ctx context.Context) error { return h.StopContainer(ctx, web, plan.Stop{ID: container.ID}) },
			"StopSandbox":    func(ctx context.Context) error { return h.StopSandbox(ctx, h.sandboxID) },
			"RemovePod":      func(ctx context.Context) error { return h.RemovePod(ctx, uid) },
			"ListPods":       func(ctx context.Context) error { _, err := h.ListPods(ctx); return err },
			"InspectPod":     func(ctx context.Context) error { _, err := h.InspectPod(ctx, uid); return err },
		}
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(h.Context(), time.Second)
			start := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				h.Errorf("%s: got %v after %v, want deadline exceeded after 1s", name, err, time.Since(start))
			}
			cancel()
		}
	})
}

func TestFault_LostResponse(t *testing.T) {
	errLost := errors.New("connection lost")
	run(t, func(h *harness) {
		remove := h.Inject(fakeruntime.Method("StartContainer"), fakeruntime.Fault{LostResponse: true, Err: errLost})
		if err := h.start(h.Context(), 0); !errors.Is(err, errLost) {
			h.Fatalf("got %v, want %v", err, errLost)
		}
		remove()
		h.mustStart(0)
		if again, err := h.StartSandbox(h.Context(), web, 0); err != nil || again != h.sandboxID {
			h.Fatalf("got sandbox %s, err %v, want %s", again, err, h.sandboxID)
		}
		if diff := cmp.Diff([]string{"sandbox web_default #0", "start web_default/main #0"}, h.Transcript()); diff != "" {
			h.Fatalf("transcript (-want +got):\n%s", diff)
		}
	})
}

func TestFault_Skip(t *testing.T) {
	run(t, func(h *harness) {
		container := h.mustStart(0)
		h.Inject(fakeruntime.Method("StopContainer"), fakeruntime.Fault{Skip: true})
		err := h.StopContainer(h.Context(), web, plan.Stop{ID: container.ID})
		if got := h.newest().State; err != nil || got != observed.Running {
			h.Fatalf("got %v, container %s, want a running container", err, got)
		}
	})
}

func TestFault_Remove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakeruntime.New()
		remove := r.Inject(func(fakeruntime.Call) bool { return true }, fakeruntime.Fault{Delay: fakeruntime.Forever})
		results := make(chan error, 1)
		go func() {
			runtime, network := r.Ready(t.Context())
			results <- errors.Join(runtime, network)
		}()
		time.Sleep(time.Hour)
		if len(results) > 0 {
			t.Fatal("call returned while the fault was in effect")
		}
		remove()
		remove() // has no effect
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	})
}

func TestRuntime_ReadyFails(t *testing.T) {
	r, errBroken := fakeruntime.New(), errors.New("out of order")
	r.Inject(fakeruntime.Method("Ready"), fakeruntime.Fault{Err: errBroken})
	if runtime, network := r.Ready(t.Context()); !errors.Is(runtime, errBroken) || !errors.Is(network, errBroken) {
		t.Fatalf("got %v and %v, want %v", runtime, network, errBroken)
	}
}

func TestRuntime_Violations(t *testing.T) {
	run(t, func(h *harness) {
		h.mustStart(0)
		h.mustStart(1)
		if err := h.RemovePod(h.Context(), uid); err == nil {
			h.Error("a running pod was removed")
		}
		h.Reboot()
		h.mustStart(2)
		got := strings.Join(h.Violations(), "\n")
		for _, want := range []string{"while it was running", "while main was running", "not ready"} {
			if !strings.Contains(got, want) {
				h.Errorf("got violations:\n%s\nwant %q", got, want)
			}
		}
	})
}

func TestRuntime_WatchPods(t *testing.T) {
	run(t, func(h *harness) {
		changed := make(chan podid.UID, 10)
		ctx, cancel := context.WithCancel(h.Context())
		done := make(chan error, 1)
		go func() { done <- h.WatchPods(ctx, func(uid podid.UID) { changed <- uid }) }()
		synctest.Wait()
		h.mustStart(0)
		if got := <-changed; got != uid {
			h.Fatalf("start: got a change of %s, want %s", got, uid)
		}
		h.ExitContainer(uid, "main", 1)
		if got := <-changed; got != uid {
			h.Fatalf("exit: got a change of %s, want %s", got, uid)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			h.Fatalf("got %v, want %v", err, context.Canceled)
		}
	})
}
