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

func sleepsBeforeTheEnd(seconds int64) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}}
	}
}

func TestPW24TheHooksTimeIsDeductedAndTwoSecondsAreLeft(t *testing.T) {
	cases := map[string]struct {
		hook  int64
		grace time.Duration
		took  time.Duration
		left  int64
	}{
		"no hook":                        {hook: 0, grace: 30 * time.Second, left: 30},
		"a part of a second counts":      {hook: 0, grace: 2500 * time.Millisecond, left: 3},
		"a hook within the grace":        {hook: 10, grace: 30 * time.Second, took: 10 * time.Second, left: 20},
		"a hook up to the end":           {hook: 29, grace: 30 * time.Second, took: 29 * time.Second, left: 2},
		"a hook that exceeds the grace":  {hook: 60, grace: 30 * time.Second, took: 30 * time.Second, left: 2},
		"no grace is no time for a hook": {hook: 60, grace: 0, left: 2},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := newPod()
				if test.hook > 0 {
					sleepsBeforeTheEnd(test.hook)(pod)
				}
				c := w.run(pod)
				begun := time.Now()
				stop := plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: test.grace}
				if err := w.StopContainer(w.Context(), pod, stop); err != nil {
					w.Fatal(err)
				}
				if took := time.Since(begun); took != test.took {
					w.Errorf("it took %v, want %v", took, test.took)
				}
				if left := requests[*runtimeapi.StopContainerRequest](w.fake)[0].Timeout; left != test.left {
					w.Errorf("%d s were left, want %d", left, test.left)
				}
				exceeded := slices.Contains(w.events(), "Warning FailedPreStopHook spec.containers{web}: PreStopHook failed")
				if exceeded != (test.took == test.grace && test.grace > 0) {
					w.Errorf("events: %q", w.events())
				}
			})
		})
	}
}

func TestPW24AFailedHookKeepsNoContainerFromEnding(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}
		})
		c := w.run(pod)
		w.fake.exitCode = 1
		stop := plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: 30 * time.Second, Message: "because of " + c.ID.ID}
		if err := w.StopContainer(w.Context(), pod, stop); err != nil {
			w.Fatal(err)
		}
		if c := w.only(pod); c.State != observed.Exited {
			w.Errorf("the container is %v", c.State)
		}
		want := []string{
			"Normal Killing spec.containers{web}: because of web",
			"Warning FailedPreStopHook spec.containers{web}: PreStopHook failed",
		}
		if got := w.events()[len(w.events())-2:]; !slices.Equal(got, want) {
			w.Errorf("events: %q", got)
		}
		if timeout := requests[*runtimeapi.ExecSyncRequest](w.fake)[0].Timeout; timeout != 30 {
			w.Errorf("the hook had %d s", timeout)
		}
	})
}

func TestAContainerWithoutASpecIsStoppedWithoutAHook(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.run(newPod(sleepsBeforeTheEnd(60)))
		told := len(w.events())
		begun := time.Now()
		if err := w.StopContainer(w.Context(), nil, plan.Stop{ID: c.ID, Grace: time.Second}); err != nil {
			w.Fatal(err)
		}
		if time.Since(begun) > 0 || len(w.events()) > told {
			w.Errorf("it took %v; events: %q", time.Since(begun), w.events()[told:])
		}
	})
}

func TestWhatIsGoneIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.StopContainer(w.Context(), nil, plan.Stop{ID: observed.ContainerID{Runtime: "fake", ID: "gone"}}); err != nil {
			w.Error(err)
		}
		if err := w.StopSandbox(w.Context(), "gone"); err != nil {
			w.Error(err)
		}
		w.fake.next("StopContainer", refuses(codes.Internal, "no"))
		if err := w.StopContainer(w.Context(), nil, plan.Stop{}); err == nil {
			w.Error("a stop that failed has no error")
		}
	})
}

func TestBUG27AStopThatIsCancelledInItsHookStopsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(sleepsBeforeTheEnd(60))
		c := w.run(pod)
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error)
		go func() {
			ended <- w.StopContainer(ctx, pod, plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: time.Hour})
		}()
		synctest.Wait()
		begun := time.Now()
		cancel()
		if err := <-ended; err == nil || time.Since(begun) > 0 {
			w.Errorf("it ended with %v, %v later", err, time.Since(begun))
		}
		if c := w.only(pod); c.State != observed.Running {
			w.Errorf("the container is %v", c.State)
		}
		if story := w.events(); slices.Contains(story, "Warning FailedPreStopHook spec.containers{web}: PreStopHook failed") {
			w.Errorf("events: %q", story)
		}
	})
}
