package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// count sums a metric over its labels; a histogram counts its samples.
func (w *world) count(name string) int {
	w.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.Fatal(err)
	}
	total := 0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			total += int(m.GetCounter().GetValue()) + int(m.GetGauge().GetValue()) + int(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

func TestPW44APodWhoseRemovalNobodyHeardOfIsEndedAndForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		web, done := apiPod("web"), apiPod("done", policy(v1.RestartPolicyNever))
		w.create(web)
		w.create(done)
		w.engine.Exit(podid.UID(done.UID), "app", 0)
		synctest.Wait()
		w.wantStage(done, "finished")
		w.book.RemovePod(web)
		w.book.RemovePod(done)
		w.housekeep()
		w.after(time.Second)
		w.wantStage(web, "finished")
		w.housekeep()
		if len(w.Pods()) != 0 {
			w.Fatalf("the workers still know %v", w.Pods())
		}
		if held, _ := w.sight.Pods(); len(held) != 0 {
			w.Fatalf("the runtime still holds %v", held)
		}
	})
}

func TestBUG11ASourceThatIsNotReadyHoldsUpOnlyItsOwnPods(t *testing.T) { // PW-52
	inWorld(t, func(w *world) {
		web, etcd := apiPod("web"), staticPod("etcd", "u1")
		w.create(web)
		w.create(etcd)
		w.book.RemovePod(web)
		w.book.RemovePod(etcd)
		w.unready[podid.API] = true
		w.housekeep()
		w.after(time.Second)
		if !w.runs(web) || w.runs(etcd) {
			w.Fatalf("web runs %v, etcd runs %v", w.runs(web), w.runs(etcd))
		}
		w.unready[podid.API] = false
		w.housekeep()
		w.after(time.Second)
		if w.runs(web) {
			w.Fatal("it runs although its source does not want it")
		}
	})
}

func TestPW41BeforeTheFirstHousekeepingAnyPodMayRun(t *testing.T) {
	inWorld(t, func(w *world) {
		unknown := apiPod("unknown")
		uid := podid.UID(unknown.UID)
		if !w.PodCouldHaveRunningContainers(uid) || w.IsFinished(uid) || w.PodResourcesAreReclaimed(unknown, nil) {
			w.Fatal("nobody can know that yet")
		}
		w.unready[podid.HTTP] = true
		w.housekeep()
		if !w.PodCouldHaveRunningContainers(uid) {
			w.Fatal("a source has not spoken yet")
		}
		w.unready[podid.HTTP] = false
		w.housekeep()
		if w.PodCouldHaveRunningContainers(uid) || !w.IsFinished(uid) || !w.PodResourcesAreReclaimed(unknown, nil) {
			w.Fatal("a pod that nobody knows is none")
		}
	})
}

func TestPW48AWantedPodThatTheWorkersMissedIsCreated(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.book.AddPod(web)
		ended := apiPod("ended", inPhase(v1.PodSucceeded))
		w.book.AddPod(ended)
		w.startLate(ended)
		w.engine.Exit(podid.UID(ended.UID), "app", 0)
		w.housekeep()
		w.wantPhase(web, v1.PodRunning)
		if held, _ := w.sight.Pods(); len(held) != 2 {
			w.Fatal("a completed pod that is still wanted lost its logs")
		}
		if w.count("kubelet_restarted_pods_total") != 1 || len(w.Pods()) != 1 {
			w.Fatalf("the workers know %v", w.Pods())
		}
	})
}

func TestPW49AnEndedPodThatIsBeingDeletedIsFinished(t *testing.T) { // SM-77
	inWorld(t, func(w *world) {
		web := deletedAt(apiPod("web", inPhase(v1.PodFailed)))
		w.book.AddPod(web)
		w.housekeep()
		w.wantStage(web, "finished")
		if !w.PodResourcesAreReclaimed(web, nil) {
			w.Fatal("its API object cannot go")
		}
	})
}

func TestPW50WhatTheRuntimeHoldsAndNobodyWantsIsEndedAndRemoved(t *testing.T) { // PW-39
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		w.create(apiPod("web"))
		w.create(apiPod("db"))
		w.engine.Exit("uid-db", "app", 0)
		w.restartAgent()
		w.unready[podid.API] = true
		w.housekeep()
		w.after(time.Minute)
		if held, _ := w.sight.Pods(); len(held) != 2 {
			w.Fatalf("a source has not spoken yet, and the runtime holds only %v", held)
		}
		w.unready[podid.API] = false
		w.housekeep()
		w.after(3 * time.Second)
		if held, _ := w.sight.Pods(); len(held) != 0 {
			w.Fatalf("the runtime still holds %v", held)
		}
		if w.count("kubelet_orphaned_runtime_pods_total") != 2 || len(w.Pods()) != 0 {
			w.Fatalf("counted %d, known %v", w.count("kubelet_orphaned_runtime_pods_total"), w.Pods())
		}
	})
}

func TestPW51WithoutAListOnlyTheWorkersArePruned(t *testing.T) {
	inWorld(t, func(w *world) {
		web := apiPod("web")
		w.create(web)
		w.book.RemovePod(web)
		w.book.AddPod(apiPod("missed"))
		w.sight.setBlind(true)
		w.housekeep()
		w.wantStage(web, "finished")
		if len(w.Pods()) != 1 || !w.PodCouldHaveRunningContainers("unknown") {
			w.Fatalf("the workers know %v", w.Pods())
		}
	})
}

func TestBUG34AStartIsMeasuredOnceAndNotOfWhatRanBefore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Pull: 7 * time.Second})
		web := apiPod("web")
		w.create(web)
		w.after(10 * time.Second)
		w.engine.Exit(podid.UID(web.UID), "app", 1)
		w.after(5 * time.Minute)
		if got := w.count("kubelet_pod_start_duration_seconds"); got != 1 {
			w.Fatalf("%d samples", got)
		}
		w.restartAgent()
		w.create(apiPod("web", inPhase(v1.PodRunning)))
		w.after(5 * time.Minute)
		if got := w.count("kubelet_pod_start_duration_seconds"); got != 0 {
			w.Fatalf("%d samples after a restart of the agent", got)
		}
		if w.count("kubelet_pod_worker_start_duration_seconds") != 1 || w.count("kubelet_pod_worker_duration_seconds") < 2 {
			w.Fatal("steps are not measured")
		}
	})
}

func TestWorkingPodsAreCountedByWhereTheyStand(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.Script("app", engine.Script{Ending: engine.Forever})
		web, etcd := apiPod("web"), staticPod("etcd", "u1")
		w.create(web)
		w.create(etcd)
		w.book.RemovePod(etcd)
		w.housekeep()
		left := apiPod("left")
		held, _ := w.sight.Pods()
		held[0].UID = podid.UID(left.UID)
		w.engine.Break(func(c engine.Call) bool { return c.Pod == held[0].UID }, engine.Fault{Delay: engine.Forever})
		w.UpdatePod(worker.Update{Op: plan.OpKill, RunningPod: held[0]})
		synctest.Wait()
		want := `
			# HELP kubelet_working_pods Pods that the workers know, by where they stand, whether a source wants them, and whether they are static.
			# TYPE kubelet_working_pods gauge
			kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1
			kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1
			kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1
		`
		if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(want), "kubelet_working_pods"); err != nil {
			w.Fatal(err)
		}
	})
}
