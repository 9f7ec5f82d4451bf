package worker_test

import (
	"fmt"
	"runtime"
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

func TestPW2_CompletedBeforeRestart(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second})
		job := newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever))
		h.create(job)
		h.advance(2 * time.Second)
		before := len(h.runtime.Transcript())

		h.restartAgent()
		h.create(newAPIPod("job", withRestartPolicy(v1.RestartPolicyNever), withPhase(v1.PodSucceeded)))
		h.wantStage(job, "finished")
		h.wantPhase(job, v1.PodSucceeded)
		for _, line := range h.runtime.Transcript()[before:] {
			if strings.HasPrefix(line, "start") || strings.HasPrefix(line, "sandbox") {
				h.Fatalf("completed pod was started again: %s", line)
			}
		}
	})
}

func TestPW2_FailedButRunning(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.restartAgent()
		h.create(newAPIPod("web", withPhase(v1.PodFailed)))
		h.wantRunning(web, false)
		h.wantStage(web, "finished")
	})
}

func TestPW3_UpdateWithoutSpec(t *testing.T) {
	run(t, func(h *harness) {
		h.create(newAPIPod("web"))
		h.restartAgent()
		runtimePods, _ := h.cache.Pods()
		for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync} {
			h.UpdatePod(worker.Update{Op: op, RunningPod: runtimePods[0]})
		}
		h.UpdatePod(worker.Update{Op: plan.OpKill})
		synctest.Wait()
		h.wantWorkers(0)
		h.UpdatePod(worker.Update{Op: plan.OpKill, RunningPod: runtimePods[0]}) // PW-39
		synctest.Wait()
		h.wantRuntimePods(0)
		h.wantWorkers(0) // PW-30
	})
}

func TestPW5_StaticPodReAdded(t *testing.T) { // PW-45
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 5 * time.Second})
		etcd := newStaticPod("etcd", "u1")
		h.create(etcd)
		h.remove(etcd)
		h.create(etcd)
		h.advance(time.Second)
		h.wantStage(etcd, "terminating")
		h.advance(5 * time.Second)
		h.wantStage(etcd, "sync")
		h.wantTranscript("sandbox etcd_shop #0", "start etcd_shop/app #0",
			"stop etcd_shop/app", "stop sandbox etcd_shop #0", "remove etcd_shop",
			"sandbox etcd_shop #0", "start etcd_shop/app #1")
	})
}

func TestPW6_LateUpdate(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		deleted := h.delete(web, 5)
		h.wantStage(web, "finished")
		starts := h.runtime.CallCount("StartContainer")
		for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync, plan.OpKill} {
			h.UpdatePod(worker.Update{Op: op, Pod: web})
			h.UpdatePod(worker.Update{Op: op, Pod: deleted})
		}
		h.advance(5 * time.Minute)
		h.wantStage(web, "finished")
		if got := h.runtime.CallCount("StartContainer"); got != starts {
			h.Fatalf("got %d starts of a finished pod, want 0", got-starts)
		}
	})
}

func TestPW29_GoroutineEnds(t *testing.T) {
	run(t, func(h *harness) {
		before := runtime.NumGoroutine()
		var pods []*v1.Pod
		for i := range 20 {
			pods = append(pods, newAPIPod(fmt.Sprintf("web%d", i)))
			h.create(pods[i])
		}
		active := runtime.NumGoroutine()
		for _, pod := range pods {
			h.delete(pod, 1)
			h.wantStage(pod, "finished")
		}
		// The Go runtime counts a goroutine for a moment after its end, so neither number is exact.
		if left := runtime.NumGoroutine(); active < before+15 || left > before+5 {
			h.Fatalf("got %d goroutines for 20 active pods and %d for 20 finished pods, want about 20 and 0", active-before, left-before)
		}
	})
}

func TestPW11_NewestUpdateWins(t *testing.T) {
	run(t, func(h *harness) {
		h.volumes.set(true, nil)
		web := newAPIPod("web")
		h.create(web)
		for i := range 100 {
			newer := web.DeepCopy()
			newer.Spec.Containers[0].Image = fmt.Sprintf("app:%d", i)
			h.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: newer})
		}
		h.volumes.set(false, nil)
		h.advance(5 * time.Minute)
		containers := h.cache.Get(podid.UID(web.UID)).Containers
		if len(containers) != 1 || containers[0].Image.Name != "app:99" {
			h.Fatalf("got %+v, want one container of image app:99", containers)
		}
	})
}

func TestPW13_AllocatedPod(t *testing.T) {
	allocate := func(config *worker.Config) {
		config.Allocated = func(pod *v1.Pod) *v1.Pod {
			pod = pod.DeepCopy()
			pod.Spec.Containers[0].Image = "allocated:1"
			return pod
		}
	}
	runWith(t, allocate, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		if got := h.cache.Get(podid.UID(web.UID)).Containers[0].Image.Name; got != "allocated:1" {
			h.Fatalf("image: got %s, want allocated:1", got)
		}
	})
}

func TestWorkers_ConcurrentUpdatesBeforeRun(t *testing.T) {
	run(t, func(h *harness) {
		h.stopWorkers()
		var callers sync.WaitGroup
		for i := range 50 {
			pod := newAPIPod(fmt.Sprintf("web%d", i))
			h.pods.AddPod(pod)
			for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync} {
				callers.Go(func() { h.UpdatePod(worker.Update{Op: op, Pod: pod}) })
			}
		}
		callers.Wait()
		h.startWorkers()
		for _, state := range h.Pods() {
			h.wantPhase(state.Pod, v1.PodRunning)
		}
		h.stopWorkers()
		h.startWorkers()
		h.runtime.ExitContainer("uid-web7", "app", 1)
		h.advance(time.Minute)
		h.wantRunning(newAPIPod("web7"), true)
		if err := h.Workers.Run(h.Context()); err == nil {
			h.Fatal("second Run: got nil, want an error")
		}
	})
}

func TestConfig_Invalid(t *testing.T) {
	_, err := worker.New(worker.Config{Resync: -1})
	for _, field := range []string{"Runtime", "PodCache", "Statuses", "Resync"} {
		if err == nil || !strings.Contains(err.Error(), "worker.Config: "+field) {
			t.Errorf("got %v, want an error that names %s", err, field)
		}
	}
}
