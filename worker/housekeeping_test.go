package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestPW44_MissedRemoval(t *testing.T) {
	run(t, func(h *harness) {
		web, done := newAPIPod("web"), newAPIPod("done", withRestartPolicy(v1.RestartPolicyNever))
		h.create(web)
		h.create(done)
		h.runtime.ExitContainer(podid.UID(done.UID), "app", 0)
		synctest.Wait()
		h.wantStage(done, "finished")
		h.pods.RemovePod(web)
		h.pods.RemovePod(done)
		h.housekeep()
		h.advance(time.Second)
		h.wantStage(web, "finished")
		h.housekeep()
		h.wantWorkers(0)
		h.wantRuntimePods(0)
	})
}

func TestBUG11_SourceNotReady(t *testing.T) { // PW-52
	run(t, func(h *harness) {
		web, etcd := newAPIPod("web"), newStaticPod("etcd", "u1")
		h.create(web)
		h.create(etcd)
		h.pods.RemovePod(web)
		h.pods.RemovePod(etcd)
		h.unready[podid.API] = true
		h.housekeep()
		h.advance(time.Second)
		if !h.isRunning(web) || h.isRunning(etcd) {
			h.Fatalf("running: got web %v, etcd %v, want true, false", h.isRunning(web), h.isRunning(etcd))
		}
		h.unready[podid.API] = false
		h.housekeep()
		h.advance(time.Second)
		h.wantRunning(web, false)
	})
}

func TestPW41_BeforeFirstHousekeeping(t *testing.T) {
	run(t, func(h *harness) {
		unknown := newAPIPod("unknown")
		uid := podid.UID(unknown.UID)
		if !h.PodCouldHaveRunningContainers(uid) || h.IsFinished(uid) || h.PodResourcesAreReclaimed(unknown, nil) {
			h.Fatal("before housekeeping: got a finished pod, want one that could run")
		}
		h.unready[podid.HTTP] = true
		h.housekeep()
		if !h.PodCouldHaveRunningContainers(uid) {
			h.Fatal("with a source that is not ready: got a finished pod, want one that could run")
		}
		h.unready[podid.HTTP] = false
		h.housekeep()
		if h.PodCouldHaveRunningContainers(uid) || !h.IsFinished(uid) || !h.PodResourcesAreReclaimed(unknown, nil) {
			h.Fatal("with all sources ready: got a pod that could run, want a finished one")
		}
	})
}

func TestPW48_MissedPod(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.pods.AddPod(web)
		ended := newAPIPod("ended", withPhase(v1.PodSucceeded))
		h.pods.AddPod(ended)
		h.startLateContainer(ended)
		h.runtime.ExitContainer(podid.UID(ended.UID), "app", 0)
		h.housekeep()
		h.wantPhase(web, v1.PodRunning)
		h.wantRuntimePods(2)
		h.wantWorkers(1)
		if got := h.count("kubelet_restarted_pods_total"); got != 1 {
			h.Fatalf("kubelet_restarted_pods_total: got %d, want 1", got)
		}
	})
}

func TestPW49_TerminalPodDeleted(t *testing.T) { // SM-77
	run(t, func(h *harness) {
		web := withDeletion(newAPIPod("web", withPhase(v1.PodFailed)), 1)
		h.pods.AddPod(web)
		h.housekeep()
		h.wantStage(web, "finished")
		if !h.PodResourcesAreReclaimed(web, nil) {
			h.Fatal("PodResourcesAreReclaimed: got false, want true")
		}
	})
}

func TestPW50_OrphansRemoved(t *testing.T) { // PW-39
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		h.create(newAPIPod("web"))
		h.create(newAPIPod("db"))
		h.runtime.ExitContainer("uid-db", "app", 0)
		h.restartAgent()
		h.unready[podid.API] = true
		h.housekeep()
		h.advance(time.Minute)
		h.wantRuntimePods(2)
		h.unready[podid.API] = false
		h.housekeep()
		h.advance(3 * time.Second)
		h.wantRuntimePods(0)
		h.wantWorkers(0)
		if got := h.count("kubelet_orphaned_runtime_pods_total"); got != 2 {
			h.Fatalf("kubelet_orphaned_runtime_pods_total: got %d, want 2", got)
		}
	})
}

func TestPW51_RuntimeNotListed(t *testing.T) {
	run(t, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.pods.RemovePod(web)
		h.pods.AddPod(newAPIPod("missed"))
		h.cache.setNeverListed(true)
		h.housekeep()
		h.wantStage(web, "finished")
		h.wantWorkers(1)
		if !h.PodCouldHaveRunningContainers("unknown") {
			h.Fatal("PodCouldHaveRunningContainers: got false, want true")
		}
	})
}

func TestBUG34_StartDuration(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{PullDuration: 7 * time.Second})
		web := newAPIPod("web")
		h.create(web)
		h.advance(10 * time.Second)
		h.runtime.ExitContainer(podid.UID(web.UID), "app", 1)
		h.advance(5 * time.Minute)
		if got := h.count("kubelet_pod_start_duration_seconds"); got != 1 {
			h.Fatalf("got %d samples, want 1", got)
		}
		h.restartAgent()
		h.create(newAPIPod("web", withPhase(v1.PodRunning)))
		h.advance(5 * time.Minute)
		if got := h.count("kubelet_pod_start_duration_seconds"); got != 0 {
			h.Fatalf("after an agent restart: got %d samples, want 0", got)
		}
		if h.count("kubelet_pod_worker_start_duration_seconds") != 1 || h.count("kubelet_pod_worker_duration_seconds") < 2 {
			h.Fatal("got no samples of sync iterations")
		}
	})
}

func TestMetrics_WorkingPods(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		web, etcd := newAPIPod("web"), newStaticPod("etcd", "u1")
		h.create(web)
		h.create(etcd)
		h.pods.RemovePod(etcd)
		h.housekeep()
		runtimePods, _ := h.cache.Pods()
		orphan := runtimePods[0]
		orphan.UID = podid.UID(newAPIPod("orphan").UID)
		h.runtime.Inject(func(c fakeruntime.Call) bool { return c.PodUID == orphan.UID }, fakeruntime.Fault{Delay: fakeruntime.Forever})
		h.UpdatePod(worker.Update{Op: plan.OpKill, RunningPod: orphan})
		synctest.Wait()
		want := `
			# HELP kubelet_working_pods Number of pods with a worker, by lifecycle stage, whether a source wants them, and whether they are static.
			# TYPE kubelet_working_pods gauge
			kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1
			kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1
			kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1
		`
		if err := testutil.GatherAndCompare(h.metrics, strings.NewReader(want), "kubelet_working_pods"); err != nil {
			h.Fatal(err)
		}
	})
}
