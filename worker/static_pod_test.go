package worker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

func TestPW14_APIPodRecreated(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: time.Minute})
		old := newPod("db-0", "old", podid.API)
		h.create(old)
		h.delete(old, 100)
		next := newPod("db-0", "new", podid.API)
		h.create(next)
		h.wantPhase(next, v1.PodRunning)
		h.wantStage(old, "terminating")
	})
}

func TestPW16_StartsAfterPredecessor(t *testing.T) { // PW-15, PW-18
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 7 * time.Second})
		old, next := newStaticPod("etcd", "old"), newStaticPod("etcd", "new")
		h.create(old)
		h.remove(old)
		h.create(next)
		if !h.IsTerminating(podid.FullNameOf(old)) { // PW-43
			h.Fatal("IsTerminating of the predecessor: got false, want true")
		}
		h.advance(6 * time.Second)
		for _, state := range h.Pods() { // PW-19
			if state.Started != (state.UID == "old") {
				h.Fatalf("%s started: got %v, want %v", state.UID, state.Started, !state.Started)
			}
		}
		h.advance(time.Second)
		h.wantPhase(next, v1.PodRunning)
		if h.IsTerminating(podid.FullNameOf(old)) {
			h.Fatal("IsTerminating of the successor: got true, want false")
		}
	})
}

func TestPW17_RemovedWhileWaiting(t *testing.T) { // PW-15
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 7 * time.Second})
		first, second, third := newStaticPod("etcd", "u1"), newStaticPod("etcd", "u2"), newStaticPod("etcd", "u3")
		h.create(first)
		if _, err := h.cache.inspect(h.Context(), "u2"); err != nil {
			h.Fatal(err)
		}
		h.remove(first)
		h.create(second)
		h.create(third)
		begin := time.Now()
		h.remove(second)
		if err := h.KillPod(h.Context(), second, plan.KillOptions{}); err != nil || time.Since(begin) > 0 {
			h.Fatalf("got %v after %v, want nil at once", err, time.Since(begin))
		}
		h.wantStage(second, "finished")
		h.advance(10 * time.Second)
		h.wantPhase(third, v1.PodRunning)
		if _, found := h.statuses.GetPodStatus(second.UID); found {
			h.Fatal("got a status of a pod that never started, want none")
		}
	})
}

func TestPW15_Generations(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 3 * time.Second})
		var last *v1.Pod
		for _, uid := range []string{"u1", "u2", "u3", "u4"} {
			if last != nil {
				h.remove(last)
			}
			last = newStaticPod("etcd", uid)
			h.create(last)
		}
		h.advance(time.Minute)
		h.wantPhase(last, v1.PodRunning)
		var starts []string
		for _, line := range h.runtime.Transcript() {
			if strings.HasPrefix(line, "start") {
				starts = append(starts, line)
			}
		}
		if len(starts) != 2 {
			h.Fatalf("got starts %v, want only the first and the last generation", starts)
		}
	})
}

func TestPW18_PredecessorHoldsVolumes(t *testing.T) {
	run(t, func(h *harness) {
		old, next := newStaticPod("etcd", "old"), newStaticPod("etcd", "new")
		h.create(old)
		h.volumes.set(true, nil)
		h.remove(old)
		h.create(next)
		h.advance(time.Minute)
		h.wantStage(old, "terminated")
		h.wantTranscript("sandbox etcd_shop #0", "start etcd_shop/app #0", "stop etcd_shop/app", "stop sandbox etcd_shop #0",
			"remove etcd_shop")
		if _, found := h.statuses.GetPodStatus(next.UID); found {
			h.Fatal("got a status of the successor while the volumes are mounted, want none")
		}
		h.volumes.set(false, nil)
		h.advance(5 * time.Minute)
		h.wantPhase(next, v1.PodRunning)
	})
}

func TestPW15_PredecessorOfEarlierAgent(t *testing.T) { // BUG-11
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		old, next := newStaticPod("etcd", "old"), newStaticPod("etcd", "new")
		h.create(old)
		h.restartAgent()
		h.unready[podid.API] = true
		h.create(next)
		h.advance(20 * time.Second)
		h.wantRunning(next, false)
		h.wantRunning(old, true)
		h.housekeep()
		h.advance(5 * time.Second)
		h.wantRunning(next, true)
		h.wantRunning(old, false)
	})
}

func TestStaticPod_RuntimeNotListed(t *testing.T) {
	run(t, func(h *harness) {
		h.cache.setNeverListed(true)
		etcd := newStaticPod("etcd", "u1")
		h.create(etcd)
		h.advance(time.Minute)
		h.wantRunning(etcd, false)
		h.cache.setNeverListed(false)
		h.advance(2 * time.Second)
		h.wantPhase(etcd, v1.PodRunning)
	})
}

func TestPW5_NewestVersionRuns(t *testing.T) { // PW-11
	for name, op := range map[string]plan.Op{"edited": plan.OpUpdate, "synced by its mirror": plan.OpSync} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 5 * time.Second})
				first := newStaticPod("etcd", "u1")
				h.create(first)
				h.remove(first)
				h.create(newStaticPod("etcd", "u1", withImage("app:2")))
				third := newStaticPod("etcd", "u1", withImage("app:3"))
				h.update(third, op)
				h.advance(time.Minute)
				if got := h.runningImage(third); got != "app:3" {
					h.Fatalf("image: got %s, want app:3; transcript:\n%s", got, strings.Join(h.runtime.Transcript(), "\n"))
				}
			})
		})
	}
}

// completeWithFailingRemoval completes the pod and makes its removal fail for 20s.
func (h *harness) completeWithFailingRemoval(pod *v1.Pod) {
	h.Helper()
	h.runtime.ExitContainer(podid.UID(pod.UID), "app", 0)
	synctest.Wait()
	h.wantStage(pod, "finished")
	heal := h.runtime.Inject(fakeruntime.Method("RemovePod"), fakeruntime.Fault{Err: errFake})
	time.AfterFunc(20*time.Second, heal)
}

func TestPW5_RemovedAgain(t *testing.T) {
	tests := map[string]struct {
		prepare, removeAgain func(*harness, *v1.Pod)
	}{
		"while stopping":                {func(*harness, *v1.Pod) {}, (*harness).remove},
		"while stopping, silently":      {func(*harness, *v1.Pod) {}, (*harness).removeSilently},
		"while being removed":           {(*harness).completeWithFailingRemoval, (*harness).remove},
		"while being removed, silently": {(*harness).completeWithFailingRemoval, (*harness).removeSilently},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 5 * time.Second})
				etcd := newStaticPod("etcd", "u1", withRestartPolicy(v1.RestartPolicyOnFailure))
				h.create(etcd)
				test.prepare(h, etcd)
				h.remove(etcd)
				h.create(etcd)
				test.removeAgain(h, etcd)
				h.advance(time.Minute)
				if starts := h.runtime.CallCount("StartContainer"); starts != 1 {
					h.Fatalf("got %d starts, want 1; transcript:\n%s", starts, strings.Join(h.runtime.Transcript(), "\n"))
				}
				h.housekeep()
				h.wantWorkers(0)
			})
		})
	}
}

func TestPW18_HolderRenamed(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: 5 * time.Second})
		etcd, renamed := newStaticPod("etcd", "u1"), newStaticPod("etcd-2", "u1")
		h.create(etcd)
		h.remove(etcd)
		h.create(renamed)
		h.update(renamed, plan.OpSync) // the mirror arrived
		next := newStaticPod("etcd", "u2")
		h.create(next)
		h.advance(time.Minute)
		h.wantRunning(next, true)
		h.wantRunning(renamed, true)
	})
}

func TestPW15_ReAddedPodWaits(t *testing.T) {
	run(t, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		old, next := newStaticPod("etcd", "old"), newStaticPod("etcd", "new")
		h.create(old)
		h.restartAgent()
		h.cache.setNeverListed(true)
		h.create(next)
		h.remove(next)
		h.create(next)
		h.advance(time.Minute)
		h.wantRunning(next, false)
	})
}

func TestPW15_RunningPodFirst(t *testing.T) {
	run(t, func(h *harness) {
		first, second := newStaticPod("etcd", "u1"), newStaticPod("etcd", "u2")
		h.create(first)
		h.restartAgent()
		h.create(second)
		h.create(first)
		h.advance(time.Minute)
		h.housekeep()
		h.wantPhase(first, v1.PodRunning)
		h.wantRunning(second, false)
		h.remove(first)
		h.advance(time.Minute)
		h.wantPhase(second, v1.PodRunning)
	})
}

// slowStatuses delays TerminatePod.
type slowStatuses struct{ worker.Statuses }

func (s slowStatuses) TerminatePod(pod *v1.Pod) {
	time.Sleep(5 * time.Second)
	s.Statuses.TerminatePod(pod)
}

func TestPW5_EndReportedBeforeRestart(t *testing.T) {
	slow := func(config *worker.Config) { config.Statuses = slowStatuses{config.Statuses} }
	runWith(t, slow, func(h *harness) {
		etcd := newStaticPod("etcd", "u1")
		h.create(etcd)
		h.remove(etcd)
		h.wantStage(etcd, "finished")
		h.housekeep()
		h.create(etcd)
		h.advance(10 * time.Second)
		status := h.status(etcd)
		h.wantRunning(etcd, true)
		if len(status.ContainerStatuses) != 1 || status.ContainerStatuses[0].State.Running == nil {
			h.Fatalf("got %+v, want one running container", status.ContainerStatuses)
		}
	})
}
