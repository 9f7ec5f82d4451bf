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

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestPW2APodThatEndedBeforeTheRestartIsOnlyCleanedUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Runs: time.Second})
		job := apiPod("job", policy(v1.RestartPolicyNever))
		w.create(job)
		w.after(2 * time.Second)
		before := len(w.engine.Transcript())

		w.restartAgent()
		w.create(apiPod("job", policy(v1.RestartPolicyNever), inPhase(v1.PodSucceeded)))
		w.wantStage(job, "finished")
		w.wantPhase(job, v1.PodSucceeded)
		for _, line := range w.engine.Transcript()[before:] {
			if strings.HasPrefix(line, "start") || strings.HasPrefix(line, "sandbox") {
				w.Fatalf("a pod that had ended was begun again: %s", line)
			}
		}
	})
}

func TestPW2APodThatIsSaidToHaveEndedButRunsIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.restartAgent()
		w.create(apiPod("web", inPhase(v1.PodFailed)))
		if w.runs(web) {
			w.Fatal("it runs although the API server says that it failed")
		}
		w.wantStage(web, "finished")
	})
}

func TestPW3AnUpdateWithoutASpecIsOnlyAcceptedAsAKill(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(apiPod("web"))
		w.restartAgent()
		held, _ := w.sight.Pods()
		for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync} {
			w.UpdatePod(worker.Update{Op: op, RunningPod: held[0]})
		}
		w.UpdatePod(worker.Update{Op: plan.OpKill})
		synctest.Wait()
		if len(w.Pods()) != 0 {
			w.Fatalf("the workers know %v", w.Pods())
		}
		w.UpdatePod(worker.Update{Op: plan.OpKill, RunningPod: held[0]}) // PW-39
		synctest.Wait()
		if left, _ := w.sight.Pods(); len(left) != 0 {
			w.Fatalf("the runtime still holds %v", left)
		}
		if len(w.Pods()) != 0 { // PW-30
			w.Fatalf("the workers still know %v", w.Pods())
		}
	})
}

func TestPW5AStaticPodThatIsRemovedAndComesBackIsRestartedWhenItHasEnded(t *testing.T) { // PW-45
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: 5 * time.Second})
		etcd := staticPod("etcd", "u1")
		w.create(etcd)
		w.remove(etcd)
		w.create(etcd)
		w.after(time.Second)
		w.wantStage(etcd, "terminating")
		w.after(5 * time.Second)
		w.wantStage(etcd, "sync")
		w.wantTranscript("sandbox etcd_shop #0", "start etcd_shop/app #0",
			"stop etcd_shop/app", "stop sandbox etcd_shop #0", "remove etcd_shop",
			"sandbox etcd_shop #0", "start etcd_shop/app #1")
	})
}

func TestPW6AFinishedPodIsNotStartedByALateUpdate(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		gone := w.delete(web, 5)
		w.wantStage(web, "finished")
		starts := w.engine.Calls("StartContainer")
		for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync, plan.OpKill} {
			w.UpdatePod(worker.Update{Op: op, Pod: web})
			w.UpdatePod(worker.Update{Op: op, Pod: gone})
		}
		w.after(5 * time.Minute)
		w.wantStage(web, "finished")
		if got := w.engine.Calls("StartContainer"); got != starts {
			w.Fatalf("%d starts after it finished", got-starts)
		}
	})
}

func TestPW29APodsGoroutineEndsWithThePod(t *testing.T) {
	inWorld(t, func(w *world) {
		before := runtime.NumGoroutine()
		var pods []*v1.Pod
		for i := range 20 {
			pods = append(pods, apiPod(fmt.Sprintf("web%d", i)))
			w.create(pods[i])
		}
		live := runtime.NumGoroutine()
		for _, p := range pods {
			w.delete(p, 1)
			w.wantStage(p, "finished")
		}
		// The runtime counts a goroutine for a moment after it has ended, so neither number is exact.
		if left := runtime.NumGoroutine(); live < before+15 || left > before+5 {
			w.Fatalf("%d goroutines for 20 live pods, %d for 20 finished ones", live-before, left-before)
		}
	})
}

func TestPW11OfManyUpdatesTheNewestCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.volumes.set(true, nil)
		web := apiPod("web")
		w.create(web)
		for i := range 100 {
			newer := web.DeepCopy()
			newer.Spec.Containers[0].Image = fmt.Sprintf("app:%d", i)
			w.UpdatePod(worker.Update{Op: plan.OpUpdate, Pod: newer})
		}
		w.volumes.set(false, nil)
		w.after(5 * time.Minute)
		seen := w.sight.Get(podid.UID(web.UID))
		if len(seen.Containers) != 1 || seen.Containers[0].Image.Name != "app:99" {
			w.Fatalf("it runs %+v", seen.Containers)
		}
	})
}

func TestPW13WhatRunsIsWhatWasAllocated(t *testing.T) {
	allocate := func(c *worker.Config) {
		c.Allocated = func(p *v1.Pod) *v1.Pod {
			p = p.DeepCopy()
			p.Spec.Containers[0].Image = "allocated:1"
			return p
		}
	}
	inWorldWith(t, allocate, func(w *world) {
		web := apiPod("web")
		w.create(web)
		if got := w.sight.Get(podid.UID(web.UID)).Containers[0].Image.Name; got != "allocated:1" {
			w.Fatalf("it runs %s", got)
		}
	})
}

func TestUpdatesMayComeFromAnywhereAndBeforeRun(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pause()
		var callers sync.WaitGroup
		for i := range 50 {
			p := apiPod(fmt.Sprintf("web%d", i))
			w.book.AddPod(p)
			for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpSync} {
				callers.Go(func() { w.UpdatePod(worker.Update{Op: op, Pod: p}) })
			}
		}
		callers.Wait()
		w.run()
		for _, state := range w.Pods() {
			w.wantPhase(state.Pod, v1.PodRunning)
		}
		w.pause()
		w.run()
		w.engine.Exit("uid-web7", "app", 1)
		w.after(time.Minute)
		if !w.runs(apiPod("web7")) {
			w.Fatal("a second Run does not go on from where the first ended")
		}
		if err := w.Workers.Run(w.Context()); err == nil {
			w.Fatal("a second Run beside the first")
		}
	})
}

func TestTheConfigIsCheckedByFieldName(t *testing.T) {
	_, err := worker.New(worker.Config{Resync: -1})
	for _, field := range []string{"Runtime", "PodCache", "Statuses", "Resync"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}
