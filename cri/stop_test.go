package cri_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func withPreStopSleep(seconds int64) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}}
	}
}

func TestPW24_GracePeriodAfterHook(t *testing.T) {
	tests := map[string]struct {
		hook  int64
		grace time.Duration
		took  time.Duration
		left  int64
	}{
		"no hook":                       {hook: 0, grace: 30 * time.Second, left: 30},
		"rounded up":                    {hook: 0, grace: 2500 * time.Millisecond, left: 3},
		"hook within the grace period":  {hook: 10, grace: 30 * time.Second, took: 10 * time.Second, left: 20},
		"hook almost to the end":        {hook: 29, grace: 30 * time.Second, took: 29 * time.Second, left: 2},
		"hook exceeds the grace period": {hook: 60, grace: 30 * time.Second, took: 30 * time.Second, left: 2},
		"no grace period":               {hook: 60, grace: 0, left: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod()
				if test.hook > 0 {
					withPreStopSleep(test.hook)(pod)
				}
				c := h.startPod(pod)
				started := time.Now()
				stop := plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: test.grace}
				if err := h.StopContainer(h.Context(), pod, stop); err != nil {
					h.Fatal(err)
				}
				if took := time.Since(started); took != test.took {
					h.Errorf("got duration %v, want %v", took, test.took)
				}
				if left := requests[*runtimeapi.StopContainerRequest](h.fake)[0].Timeout; left != test.left {
					h.Errorf("got %d s left, want %d", left, test.left)
				}
				failed := slices.Contains(h.events(), "Warning FailedPreStopHook spec.containers{web}: PreStopHook failed")
				if failed != (test.took == test.grace && test.grace > 0) {
					h.Errorf("got events %q", h.events())
				}
			})
		})
	}
}

func TestPW24_FailedHook(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
		})
		c := h.startPod(pod)
		h.fake.exitCode = 1
		stop := plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: 30 * time.Second, Message: "because of " + c.ID.ID}
		if err := h.StopContainer(h.Context(), pod, stop); err != nil {
			h.Fatal(err)
		}
		if c := h.onlyContainer(pod); c.State != observed.Exited {
			h.Errorf("got container state %v", c.State)
		}
		want := []string{
			"Normal Killing spec.containers{web}: because of web",
			"Warning FailedPreStopHook spec.containers{web}: PreStopHook failed",
		}
		if got := h.events()[len(h.events())-2:]; !slices.Equal(got, want) {
			h.Errorf("got events %q", got)
		}
		if timeout := requests[*runtimeapi.ExecSyncRequest](h.fake)[0].Timeout; timeout != 30 {
			h.Errorf("got hook timeout %d s, want 30", timeout)
		}
	})
}

func TestStopContainer_WithoutSpec(t *testing.T) {
	inBubble(t, func(h *harness) {
		c := h.startPod(newPod(withPreStopSleep(60)))
		before := len(h.events())
		started := time.Now()
		if err := h.StopContainer(h.Context(), nil, plan.Stop{ID: c.ID, Grace: time.Second}); err != nil {
			h.Fatal(err)
		}
		if time.Since(started) > 0 || len(h.events()) > before {
			h.Errorf("got duration %v, events %q", time.Since(started), h.events()[before:])
		}
	})
}

func TestStop_NotFound(t *testing.T) {
	inBubble(t, func(h *harness) {
		if err := h.StopContainer(h.Context(), nil, plan.Stop{ID: observed.ContainerID{Runtime: "fake", ID: "gone"}}); err != nil {
			h.Error(err)
		}
		if err := h.StopSandbox(h.Context(), "gone"); err != nil {
			h.Error(err)
		}
		h.fake.inject("StopContainer", fails(codes.Internal, "no"))
		if err := h.StopContainer(h.Context(), nil, plan.Stop{}); err == nil {
			h.Error("failed stop: got no error")
		}
	})
}

// The hook does not wait for the container's turn, the signal does, and both count towards the grace period.
func TestPW25_StopWaitsForTurn(t *testing.T) { // PW-24
	tests := map[string]struct {
		turnAfter time.Duration // 0 for never
		skip      bool
		wantAfter time.Duration
		wantGrace int64
	}{
		"after the hook":  {10 * time.Second, false, 10 * time.Second, 20},
		"during the hook": {time.Second, false, 5 * time.Second, 25},
		"never":           {0, false, 30 * time.Second, 2},
		"hook skipped":    {time.Second, true, time.Second, 29},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := newPod(withPreStopSleep(5))
				container := h.startPod(pod)
				turn := make(chan struct{})
				if test.turnAfter > 0 {
					time.AfterFunc(test.turnAfter, func() { close(turn) })
				}
				started := time.Now()
				err := h.StopContainer(h.Context(), pod, plan.Stop{
					ID: container.ID, Container: &pod.Spec.Containers[0], Grace: 30 * time.Second, Turn: turn, SkipPreStop: test.skip,
				})
				if took := time.Since(started); err != nil || took != test.wantAfter {
					h.Errorf("got %v after %v, want nil after %v", err, took, test.wantAfter)
				}
				if got := requests[*runtimeapi.StopContainerRequest](h.fake)[0].Timeout; got != test.wantGrace {
					h.Errorf("got a grace period of %ds, want %ds", got, test.wantGrace)
				}
			})
		})
	}
}

func TestBUG27_StopCancelledInHook(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := newPod(withPreStopSleep(60))
		c := h.startPod(pod)
		ctx, cancel := context.WithCancel(h.Context())
		done := make(chan error)
		go func() {
			done <- h.StopContainer(ctx, pod, plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: time.Hour})
		}()
		synctest.Wait()
		started := time.Now()
		cancel()
		if err := <-done; err == nil || time.Since(started) > 0 {
			h.Errorf("got error %v after %v", err, time.Since(started))
		}
		if c := h.onlyContainer(pod); c.State != observed.Running {
			h.Errorf("got container state %v", c.State)
		}
		if events := h.events(); slices.Contains(events, "Warning FailedPreStopHook spec.containers{web}: PreStopHook failed") {
			h.Errorf("got events %q", events)
		}
	})
}
