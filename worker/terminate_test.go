package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestBUG27_DeletionInterrupts(t *testing.T) { // PW-12
	hang := fakeruntime.Fault{Delay: fakeruntime.Forever}
	tests := map[string]func(h *harness){
		"pull": func(h *harness) { h.runtime.SetScript("app", fakeruntime.Script{PullDuration: fakeruntime.Forever}) },
		"hook": func(h *harness) {
			h.runtime.SetScript("app", fakeruntime.Script{PostStartDuration: fakeruntime.Forever})
		},
		"sandbox":   func(h *harness) { h.runtime.Inject(fakeruntime.Method("StartSandbox"), hang) },
		"container": func(h *harness) { h.runtime.Inject(fakeruntime.Method("StartContainer"), hang) },
		"volume": func(h *harness) {
			h.volumes.set(true, nil)
			time.AfterFunc(time.Minute, func() { h.volumes.set(false, nil) })
		},
		"backoff": func(h *harness) {
			h.runtime.Inject(fakeruntime.Method("StartSandbox"), fakeruntime.Fault{Err: errFake})
		},
		"crash loop": func(h *harness) {
			h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 1})
		},
	}
	for name, inject := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				inject(h)
				web := newAPIPod("web")
				h.create(web)
				h.advance(61 * time.Second)
				h.wantStage(web, "sync")
				h.delete(web, 30)
				h.wantStage(web, "finished")
			})
		})
	}
}

// startBlocker is a runtime whose StartContainer completes a minute after it was interrupted.
type startBlocker struct {
	worker.Runtime
	cause error
}

func (b *startBlocker) StartContainer(ctx context.Context, pod *v1.Pod, sandboxID string, start plan.Start) error {
	<-ctx.Done()
	b.cause = context.Cause(ctx)
	time.Sleep(time.Minute)
	return b.Runtime.StartContainer(context.WithoutCancel(ctx), pod, sandboxID, start)
}

// The start that is under way completes, then the container stops normally.
func TestBUG27_InterruptedStart(t *testing.T) {
	blocker := &startBlocker{}
	runWith(t, func(config *worker.Config) { blocker.Runtime = config.Runtime; config.Runtime = blocker }, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.delete(web, 30)
		h.advance(time.Minute)
		h.wantStage(web, "finished")
		h.wantTranscript("sandbox web_shop #0", "start web_shop/app #0", "stop web_shop/app", "stop sandbox web_shop #0", "remove web_shop")
		status := h.status(web)
		if end := status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 143 {
			h.Errorf("got %+v, want exit code 143", end)
		}
		if !errors.Is(blocker.cause, plan.ErrInterrupted) {
			h.Errorf("cause: got %v, want plan.ErrInterrupted", blocker.cause)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.events) > 0 {
			h.Errorf("got events %v, want none", h.events)
		}
	})
}

func TestPW7_TerminalPhaseIgnoresBackoff(t *testing.T) { // BUG-27
	run(t, func(h *harness) {
		h.volumes.set(false, errFake)
		web := newAPIPod("web")
		h.create(web) // fails and backs off
		h.volumes.set(false, nil)
		h.update(newAPIPod("web", withPhase(v1.PodFailed)), plan.OpSync)
		h.wantStage(web, "finished")
	})
}

func TestPW21_ShorterGracePeriod(t *testing.T) { // PW-20
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		web := newAPIPod("web")
		h.create(web)
		deleted := h.delete(web, 600)
		h.advance(5 * time.Second)
		h.wantStage(web, "terminating")
		short := time.Duration(0)
		h.UpdatePod(worker.Update{Op: plan.OpKill, Pod: deleted, Kill: plan.KillOptions{GracePeriod: &short, Evict: true}})
		h.advance(3 * time.Second)
		h.wantStage(web, "finished")
	})
}

func TestPW20_GracePeriodNeverGrows(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		web := newAPIPod("web")
		h.create(web)
		deleted := h.delete(web, 5)
		long := time.Hour
		h.UpdatePod(worker.Update{Op: plan.OpKill, Pod: deleted, Kill: plan.KillOptions{GracePeriod: &long}})
		h.advance(6 * time.Second)
		h.wantStage(web, "finished")
	})
}

func TestPW22_ManifestRemoved(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 20 * time.Second})
		etcd := newStaticPod("etcd", "u1")
		h.create(etcd)
		h.remove(etcd)
		h.advance(19 * time.Second)
		h.wantStage(etcd, "terminating")
		h.advance(2 * time.Second)
		h.wantStage(etcd, "finished")
	})
}

func TestPW23_KillPod(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 3 * time.Second})
		web := newAPIPod("web")
		h.create(web)
		begin := time.Now()
		if err := h.KillPod(h.Context(), web, plan.KillOptions{Evict: true}); err != nil || time.Since(begin) != 3*time.Second {
			h.Fatalf("got %v after %v, want nil after 3s", err, time.Since(begin))
		}

		heal := h.runtime.Inject(fakeruntime.Method("StopContainer"), fakeruntime.Fault{Delay: fakeruntime.Forever})
		db := newAPIPod("db")
		h.create(db)
		begin = time.Now()
		err := h.KillPod(h.Context(), db, plan.KillOptions{Evict: true})
		if err == nil || !strings.Contains(err.Error(), "db_shop (uid-db)") || time.Since(begin) != 45*time.Second {
			h.Fatalf("got %v after %v, want an error after 45s", err, time.Since(begin))
		}
		h.wantReason("ExceededGracePeriod")
		if !h.PodCouldHaveRunningContainers(podid.UID(db.UID)) {
			h.Fatal("PodCouldHaveRunningContainers: got false, want true")
		}
		heal()
		h.advance(5 * time.Minute)
		h.wantStage(db, "finished")

		ctx, cancel := context.WithCancel(h.Context())
		cancel()
		if err := h.KillPod(ctx, newAPIPod("other"), plan.KillOptions{}); err != nil && ctx.Err() == nil {
			h.Fatal(err)
		}
	})
}

func TestPW9_KillPodWaiters(t *testing.T) { // PW-8
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 4 * time.Second})
		web := newAPIPod("web")
		h.create(web)
		begin := time.Now()
		var killers sync.WaitGroup
		for range 5 {
			killers.Go(func() {
				if err := h.KillPod(h.Context(), web, plan.KillOptions{Evict: true}); err != nil {
					h.Error(err)
				}
			})
		}
		killers.Wait()
		if took := time.Since(begin); took != 4*time.Second {
			h.Fatalf("got a wait of %v, want 4s", took)
		}
		synctest.Wait()
		if err := h.KillPod(h.Context(), web, plan.KillOptions{}); err != nil || time.Since(begin) != 4*time.Second {
			h.Fatalf("kill of a stopped pod: got %v after %v, want nil at once", err, time.Since(begin)-4*time.Second)
		}
	})
}

func TestPW28_LastKillSetsStatus(t *testing.T) {
	killOptions := func(reason string) plan.KillOptions {
		return plan.KillOptions{Evict: true, StatusFunc: func(status *v1.PodStatus) { status.Phase, status.Reason = v1.PodFailed, reason }}
	}
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 5 * time.Second})
		heal := h.runtime.Inject(fakeruntime.Method("InspectPod"), fakeruntime.Fault{Delay: fakeruntime.Forever})
		web := newAPIPod("web")
		h.create(web)
		h.UpdatePod(worker.Update{Op: plan.OpKill, Pod: web, Kill: killOptions("Preempting")})
		h.UpdatePod(worker.Update{Op: plan.OpKill, Pod: web, Kill: killOptions("Evicted")})
		heal()
		h.advance(5 * time.Minute)
		h.wantStage(web, "finished")
		if status := h.status(web); status.Phase != v1.PodFailed || status.Reason != "Evicted" {
			h.Fatalf("got %s, %s, want Failed, Evicted", status.Phase, status.Reason)
		}
	})
}

func TestPW25_SidecarsStopLast(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 2 * time.Second})
		web := newAPIPod("web", func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{
				{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}, {Name: "log", Image: "log:1", RestartPolicy: &always},
			}
		})
		h.create(web)
		h.wantPhase(web, v1.PodRunning)
		before := len(h.runtime.Transcript())
		h.delete(web, 30)
		h.advance(10 * time.Second)
		got := strings.Join(h.runtime.Transcript()[before:], ", ")
		want := "stop web_shop/app, stop web_shop/log, stop web_shop/proxy, stop sandbox web_shop #0, remove web_shop"
		if got != want {
			h.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// PreStop hooks start with the termination; only the signal waits for its turn.
func TestPW25_SidecarPreStop(t *testing.T) { // PW-24
	always := v1.ContainerRestartPolicyAlways
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 10 * time.Second})
		h.runtime.SetScript("proxy", fakeruntime.Script{PreStopDuration: 5 * time.Second, StopDuration: time.Second})
		web := newAPIPod("web", func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}}
		})
		h.create(web)
		before := len(h.runtime.Transcript())
		h.delete(web, 30)
		want := []string{"preStop web_shop/proxy", "stop web_shop/app"}
		if got := h.runtime.Transcript()[before:]; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			h.Fatalf("at the beginning: got %v, want %v", got, want)
		}
		h.advance(9 * time.Second)
		if got := h.runtime.Transcript()[before:]; len(got) != 2 {
			h.Fatalf("before the turn of the sidecar: got %v", got)
		}
		h.advance(2 * time.Second)
		h.wantStage(web, "finished")
		if got := h.runtime.Transcript()[before+2:]; got[0] != "stop web_shop/proxy" {
			h.Errorf("got %v, want the stop of the sidecar", got)
		}
	})
}

func TestPW21_PreStopRunsOnce(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{PreStopDuration: time.Hour, StopDuration: fakeruntime.Forever})
		web := newAPIPod("web")
		h.create(web)
		deleted := h.delete(web, 600)
		for _, seconds := range []time.Duration{60, 10} {
			h.advance(5 * time.Second)
			short := seconds * time.Second
			h.UpdatePod(worker.Update{Op: plan.OpKill, Pod: deleted, Kill: plan.KillOptions{GracePeriod: &short}})
		}
		h.advance(11 * time.Second)
		h.wantStage(web, "finished")
		hooks := slices.DeleteFunc(h.runtime.Transcript(), func(line string) bool { return line != "preStop web_shop/app" })
		if len(hooks) != 1 {
			h.Errorf("got %d runs of the preStop hook, want 1; transcript:\n%s", len(hooks), strings.Join(h.runtime.Transcript(), "\n"))
		}
	})
}

func TestPW36_FinalStatus(t *testing.T) { // PW-40
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.delete(web, 30)
		h.wantStage(web, "finished")
		status := h.status(web)
		end := status.ContainerStatuses[0].State.Terminated
		if end == nil || end.ExitCode != 143 || status.PodIP == "" {
			h.Fatalf("got %+v with address %q, want exit code 143 and an address", end, status.PodIP)
		}
		if status.Phase != v1.PodFailed || h.condition(web, v1.PodReady) != v1.ConditionFalse {
			h.Fatalf("got %s, ready %s, want Failed, False", status.Phase, h.condition(web, v1.PodReady))
		}
	})
}

func TestPW36_RuntimeIgnoresStop(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		heal := h.runtime.Inject(func(c fakeruntime.Call) bool { return strings.HasPrefix(c.Method, "Stop") }, fakeruntime.Fault{Skip: true})
		h.delete(web, 1)
		h.advance(time.Minute)
		h.wantStage(web, "terminating")
		heal()
		h.advance(time.Minute)
		h.wantStage(web, "finished")
	})
}

func TestTerminate_FailedStopRestartsGracePeriod(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 20 * time.Second})
		web := newAPIPod("web", withRestartPolicy(v1.RestartPolicyNever))
		h.create(web)
		heal := h.runtime.Inject(fakeruntime.Method("StopContainer"), fakeruntime.Fault{Err: errFake})
		h.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: withDeletion(web, 30)})
		h.advance(time.Minute)
		heal()
		h.advance(time.Minute)
		h.wantStage(web, "finished")
		status := h.status(web)
		if end := status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 143 {
			h.Fatalf("got %+v, want exit code 143", end)
		}
	})
}

func TestPW37_StopFails(t *testing.T) { // PW-42
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		heal := h.runtime.Inject(fakeruntime.Method("StopContainer"), fakeruntime.Fault{Err: errFake})
		deleted := h.delete(web, 1)
		uid := podid.UID(web.UID)
		for range 60 {
			h.Wake(uid)
			h.advance(time.Second)
		}
		h.wantStage(web, "terminating")
		if got := h.runtime.CallCount("StopContainer"); got < 9 || got > 14 {
			h.Fatalf("got %d attempts in a minute, want 9 to 14", got)
		}
		if !h.PodCouldHaveRunningContainers(uid) || h.PodResourcesAreReclaimed(deleted, nil) || h.countEvents("FailedKillPod") == 0 {
			h.Fatal("got a stopped pod or no FailedKillPod event, want a running pod and an event")
		}
		heal()
		h.advance(20 * time.Second)
		h.wantStage(web, "finished")
		if h.PodCouldHaveRunningContainers(uid) || !h.PodResourcesAreReclaimed(deleted, nil) {
			h.Fatal("got a running pod, want a stopped and reclaimed one")
		}
	})
}

func TestPW38_ContainersGone(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.runtime.ExitContainer(podid.UID(web.UID), "app", 0)
		h.runtime.SetScript("app", fakeruntime.Script{PullDuration: fakeruntime.Forever})
		if err := h.runtime.RemovePod(h.Context(), podid.UID(web.UID)); err != nil {
			h.Fatal(err)
		}
		h.delete(web, 30)
		h.wantStage(web, "finished")
	})
}

func TestBUG31_UnmountHangs(t *testing.T) { // PW-40
	run(t, func(h *harness) {
		web, db := newAPIPod("web"), newAPIPod("db")
		h.create(web)
		h.volumes.set(true, nil)
		deleted := h.delete(web, 1)
		h.advance(3 * time.Minute)
		h.wantStage(web, "terminated")
		if h.countEvents("FailedKillPod") == 0 || h.Pods()[0].Err == nil || !h.Pods()[0].StartedTerminating || h.PodResourcesAreReclaimed(deleted, nil) {
			h.Fatalf("got no error or event: %+v", h.Pods())
		}
		h.volumes.set(false, nil)
		h.create(db)
		h.wantPhase(db, v1.PodRunning)
		h.advance(3 * time.Minute)
		h.wantStage(web, "finished")
		status := h.status(web)
		if end := status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 143 {
			h.Fatalf("got %+v, want exit code 143", end)
		}
	})
}

// statusChecker calls isReclaimed when a pod is reported as terminated.
type statusChecker struct {
	worker.Statuses
	isReclaimed func(*v1.Pod) bool

	mu      sync.Mutex // guards results
	results []bool
}

func (c *statusChecker) TerminatePod(pod *v1.Pod) {
	c.mu.Lock()
	c.results = append(c.results, c.isReclaimed(pod))
	c.mu.Unlock()
	c.Statuses.TerminatePod(pod)
}

func TestSM72_ReclaimedBeforeTerminatePod(t *testing.T) {
	checker := &statusChecker{}
	runWith(t, func(config *worker.Config) { checker.Statuses = config.Statuses; config.Statuses = checker }, func(h *harness) {
		checker.isReclaimed = func(pod *v1.Pod) bool { return h.PodResourcesAreReclaimed(pod, nil) }
		web := newAPIPod("web")
		h.create(web)
		h.delete(web, 1)
		h.wantStage(web, "finished")
		checker.mu.Lock()
		defer checker.mu.Unlock()
		if len(checker.results) != 1 || !checker.results[0] {
			h.Fatalf("PodResourcesAreReclaimed: got %v, want [true]", checker.results)
		}
	})
}

func TestSM76_CompletedPodKeepsContainers(t *testing.T) { // PW-42
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second})
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.advance(2 * time.Second)
		h.wantStage(job, "finished")
		if h.PodResourcesAreReclaimed(job, nil) || len(h.cache.Get(podid.UID(job.UID)).Containers) != 1 {
			h.Fatal("got no container of a completed pod, want one with its log")
		}
		deleted := h.delete(job, 30)
		if !h.PodResourcesAreReclaimed(deleted, nil) {
			h.Fatal("PodResourcesAreReclaimed: got false, want true")
		}
		h.wantStage(job, "finished")
	})
}

func TestTerminate_ContainerStartsAfterFinish(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second})
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.advance(2 * time.Second)
		h.wantStage(job, "finished")
		stale, _ := h.cache.Pods()
		h.startLateContainer(job)
		h.advance(time.Second)
		h.housekeep()
		h.advance(time.Second)
		h.wantRunning(job, false)
		h.wantStage(job, "finished")

		stale[0].Containers[0].State = observed.Running
		before := h.runtime.CallCount("RemovePod") + h.count("kubelet_pod_worker_duration_seconds")
		h.Housekeep(h.pods.GetPods(), stale, func(podid.Source) bool { return true })
		h.advance(time.Second)
		if h.runtime.CallCount("RemovePod")+h.count("kubelet_pod_worker_duration_seconds") != before {
			h.Fatal("a list from before the finish woke the pod")
		}
	})
}

func TestTerminate_ContainerStartsDuringCleanUp(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.volumes.set(true, nil)
		h.delete(web, 1)
		h.wantStage(web, "terminated")
		h.startLateContainer(web)
		h.volumes.set(false, nil)
		h.advance(5 * time.Minute)
		h.wantRunning(web, false)
		h.wantStage(web, "finished")
	})
}

// recordsLeftError is a removal error of a pod that holds nothing but records of stopped containers.
type recordsLeftError struct{ error }

func (recordsLeftError) OnlyRecordsLeft() bool { return true }

// A container that cannot be removed does not hold the API object; its removal is retried.
func TestSM76_RemovalFails(t *testing.T) { // PW-40
	script := map[string]fakeruntime.Script{"running": {}, "completed": {RunDuration: time.Second}}
	for name := range script {
		t.Run(name, func(t *testing.T) {
			checker := &statusChecker{}
			runWith(t, func(config *worker.Config) { checker.Statuses = config.Statuses; config.Statuses = checker }, func(h *harness) {
				checker.isReclaimed = func(pod *v1.Pod) bool { return h.PodResourcesAreReclaimed(pod, nil) }
				h.runtime.SetScript("app", script[name])
				web := newAPIPod("web", withRestartPolicy(v1.RestartPolicyNever))
				h.create(web)
				h.advance(2 * time.Second)
				heal := h.runtime.Inject(fakeruntime.Method("RemovePod"),
					fakeruntime.Fault{Err: recordsLeftError{errors.New("device or resource busy")}})
				deleted := h.delete(web, 1)
				h.wantStage(web, "finished")
				checker.mu.Lock()
				last := len(checker.results) > 0 && checker.results[len(checker.results)-1]
				checker.mu.Unlock()
				if !h.PodResourcesAreReclaimed(deleted, nil) || !last || h.volumes.has(web.UID) {
					h.Fatal("PodResourcesAreReclaimed: got false or a mounted volume, want a deletable pod")
				}
				h.pods.RemovePod(deleted)
				h.housekeep()
				h.advance(5 * time.Minute)
				if got := h.runtime.CallCount("RemovePod"); got < 20 || got > 50 {
					h.Errorf("got %d attempts in 5m, want 20 to 50", got)
				}
				heal()
				h.advance(20 * time.Second)
				h.housekeep()
				h.wantRuntimePods(0)
				h.wantWorkers(0)
			})
		})
	}
}

func TestSM76_RemovalFailsWithResourcesHeld(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.runtime.Inject(fakeruntime.Method("RemovePod"), fakeruntime.Fault{Err: errFake})
		deleted := h.delete(web, 1)
		h.advance(time.Minute)
		h.wantStage(web, "terminated")
		if h.PodResourcesAreReclaimed(deleted, nil) {
			h.Error("PodResourcesAreReclaimed: got true, want false")
		}
	})
}
