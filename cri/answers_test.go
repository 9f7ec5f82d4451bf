package cri_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

func (w *world) inspect(pod *v1.Pod) *observed.Pod {
	w.Helper()
	seen, err := w.InspectPod(w.Context(), podid.UID(pod.UID))
	if err != nil {
		w.Fatal(err)
	}
	return seen
}

func TestF22ALostAnswerStartsNothingTwice(t *testing.T) {
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.next(call, losesTheAnswer)
				c := w.run(newPod())
				if c.State != observed.Running {
					w.Errorf("the container is %v", c.State)
				}
				if sandboxes := w.inspect(newPod()).Sandboxes; len(sandboxes) != 1 {
					w.Errorf("there are %d sandboxes", len(sandboxes))
				}
			})
		})
	}
}

func TestF15WhatARuntimeIsStillAtIsAskedForSoonAndWithoutAnAlarm(t *testing.T) {
	for name, words := range map[string]string{
		"containerd": `failed to reserve sandbox name "web_0": name "web_0" is reserved for "4f5e"`,
		"CRI-O":      "error reserving pod name web_0 for id 4f5e: name is reserved",
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.next("RunPodSandbox", refuses(codes.Unknown, words))
				_, err := w.StartSandbox(w.Context(), newPod(), 0)
				if again := retryAfter(err); again != time.Second {
					w.Errorf("it is asked for again after %s: %v", again, err)
				}
				if told := w.events(); len(told) > 0 {
					w.Errorf("told was %q", told)
				}
			})
		})
	}
}

func TestF22WhatWasMadeBeforeIsFoundByItsNumber(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		before := w.run(pod)
		after := w.run(pod)
		if before.ID != after.ID {
			w.Errorf("first %v, then %v", before.ID, after.ID)
		}
		w.fake.exit(after.ID.ID, 1)
		if ended := w.run(pod); ended.State != observed.Exited {
			w.Errorf("what has ended was started again under its number: %+v", ended)
		}
	})
}

func TestF22AContainerThatWasMadeAndNotStartedIsMadeAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		w.fake.next("StartContainer", refuses(codes.Internal, "no"))
		w.fake.next("RemoveContainer", refuses(codes.Internal, "no"))
		sandbox := w.sandbox(pod)
		if err := w.StartContainer(w.Context(), pod, sandbox, first(pod)); reasonOf(err) != "RunContainerError" {
			w.Fatalf("the start failed with %v", err)
		}
		before := w.only(pod)
		if before.State != observed.Created {
			w.Fatalf("the container is %v", before.State)
		}
		pod.Spec.Containers[0].Command = []string{"changed"}
		if err := w.StartContainer(w.Context(), pod, sandbox, first(pod)); err != nil {
			w.Fatal(err)
		}
		if c := w.only(pod); c.State != observed.Running || c.RestartCount != 0 || c.ID == before.ID {
			w.Errorf("the container is %+v", c)
		}
		if made := requests[*runtimeapi.CreateContainerRequest](w.fake); made[len(made)-1].Config.Command[0] != "changed" {
			w.Errorf("it runs %v", made[len(made)-1].Config.Command)
		}
	})
}

func TestAContainerThatCannotBeStartedDoesNotStay(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		w.fake.next("StartContainer", refuses(codes.Internal, "exec: no such file"))
		err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod))
		if reasonOf(err) != "RunContainerError" || err.Error() != "exec: no such file" {
			w.Errorf("the start failed with %s: %v", reasonOf(err), err)
		}
		if left := w.inspect(pod).Containers; len(left) != 0 {
			w.Errorf("left: %+v", left)
		}
		if c := w.run(pod); c.State != observed.Running || c.RestartCount != 0 {
			w.Errorf("the next one is %+v", c)
		}
	})
}

// calls are all that can be asked of a runtime, with the CRI call that each waits for.
func calls(w *world, pod *v1.Pod, c observed.Container) map[string]func(context.Context) error {
	again := func(ctx context.Context) error {
		return w.StartContainer(ctx, pod, c.SandboxID, plan.Start{Container: &pod.Spec.Containers[0], RestartCount: 1})
	}
	return map[string]func(context.Context) error{
		"Version": func(ctx context.Context) error { _, _, err := w.Version(ctx); return err },
		"Status": func(ctx context.Context) error {
			runtime, _ := w.Ready(ctx)
			return runtime
		},
		"ListPodSandbox": func(ctx context.Context) error { _, err := w.ListPods(ctx); return err },
		"ListContainers": func(ctx context.Context) error { _, err := w.ListPods(ctx); return err },
		"ContainerStatus": func(ctx context.Context) error {
			_, err := w.InspectPod(ctx, podid.UID(pod.UID))
			return err
		},
		"StopContainer": func(ctx context.Context) error {
			return w.StopContainer(ctx, pod, plan.Stop{ID: c.ID, Container: &pod.Spec.Containers[0], Grace: 10 * time.Second})
		},
		"ExecSync": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, _, err := w.Exec(ctx, c.ID, []string{"true"})
			return err
		},
		"StopPodSandbox": func(ctx context.Context) error { return w.StopSandbox(ctx, c.SandboxID) },
		"RunPodSandbox": func(ctx context.Context) error {
			_, err := w.StartSandbox(ctx, pod, 1)
			return err
		},
		"CreateContainer": again,
		"StartContainer":  again,
		"ImageStatus":     again,
		"RemoveContainer": func(ctx context.Context) error {
			w.fake.hold(w, "old uid-9/web/0 s exited 1h")
			return w.CollectGarbage(ctx, keeping())
		},
		"ReopenContainerLog": func(ctx context.Context) error { return w.RotateLogs(ctx) }, // the log is missing
	}
}

func TestF22ARuntimeThatHangsHoldsNobodyForEver(t *testing.T) {
	for call := range calls(&world{}, newPod(), observed.Container{}) {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := newPod()
				do := calls(w, pod, w.run(pod))[call]
				w.fake.next(call, hangs)
				begun := time.Now()
				if err := do(w.Context()); err == nil {
					w.Error("no error")
				}
				if took := time.Since(begun); took > 5*time.Minute {
					w.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestBUG27EveryCallEndsWithItsContext(t *testing.T) {
	for call := range calls(&world{}, newPod(), observed.Container{}) {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := newPod()
				do := calls(w, pod, w.run(pod))[call]
				w.fake.next(call, hangs)
				ctx, cancel := context.WithCancel(w.Context())
				ended := make(chan error, 1)
				begun := time.Now()
				go func() { ended <- do(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(begun) > 0 {
					w.Errorf("it ended with %v, %v later", err, time.Since(begun))
				}
			})
		})
	}
}

func TestF22ARuntimeThatRestartsIsFoundAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod()
		before := w.run(pod)
		w.down()
		if _, err := w.InspectPod(w.Context(), podid.UID(pod.UID)); err == nil {
			w.Error("a runtime that is down answers")
		}
		w.up()
		time.Sleep(4 * time.Second) // the longest pause between attempts to connect
		if after := w.only(pod); after.ID != before.ID {
			w.Errorf("first %v, then %v", before.ID, after.ID)
		}
	})
}

func TestARuntimeWithoutEventsIsAskedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 3 {
			if err := w.WatchPods(w.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
				w.Errorf("the watch ended with %v", err)
			}
			w.fake.mu.Lock()
			w.fake.events = []*runtimeapi.ContainerEventResponse{} // whoever asks again would wait
			w.fake.mu.Unlock()
		}
	})
}

func TestEventsTellWhichPodChanged(t *testing.T) {
	inWorld(t, func(w *world) {
		labels := map[string]string{"io.kubernetes.pod.uid": "uid-2", "io.kubernetes.pod.name": "b"}
		w.fake.events = []*runtimeapi.ContainerEventResponse{
			{PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "uid-1"}}},
			{ContainersStatuses: []*runtimeapi.ContainerStatus{{Labels: labels}}},
			{ContainerId: "nobody's"},
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		heard := make(chan podid.UID, 3)
		ended := make(chan error)
		go func() { ended <- w.WatchPods(ctx, func(uid podid.UID) { heard <- uid }) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil {
			w.Error("a watch that was cancelled has no error")
		}
		close(heard)
		var uids []podid.UID
		for uid := range heard {
			uids = append(uids, uid)
		}
		if len(uids) != 2 || uids[0] != "uid-1" || uids[1] != "uid-2" {
			w.Errorf("heard of %v", uids)
		}
	})
}
