package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/worker"
)

// outOfMemoryError is a rejection with a reason.
type outOfMemoryError struct{}

func (outOfMemoryError) Error() string { return "Node didn't have enough resource: memory" }

func (outOfMemoryError) RejectionReason() string { return "OutOfmemory" }

func TestPH49_APIPodRejected(t *testing.T) { // BUG-33, SM-77, CFG-43
	reject := func(config *worker.Config) { config.Admit = func(*v1.Pod) error { return outOfMemoryError{} } }
	runWith(t, reject, func(h *harness) {
		web := newAPIPod("web")
		h.create(web)
		h.wantStage(web, "finished")
		status := h.status(web)
		if status.Phase != v1.PodFailed || status.Reason != "OutOfmemory" || len(status.ContainerStatuses) != 0 {
			h.Fatalf("got %+v, want Failed, OutOfmemory without containers", status)
		}
		h.wantTranscript()
		if h.countEvents("OutOfmemory") == 0 || h.count("kubelet_admission_rejections_total") != 1 {
			h.Fatal("got no event or metric, want one each")
		}
		if deleted := h.delete(web, 30); !h.PodResourcesAreReclaimed(deleted, nil) {
			h.Fatal("PodResourcesAreReclaimed: got false, want true")
		}
	})
}

func TestBUG29_StaticPodRejected(t *testing.T) {
	var attempts atomic.Int32
	var admit atomic.Bool
	config := func(config *worker.Config) {
		config.Admit = func(*v1.Pod) error {
			attempts.Add(1)
			if admit.Load() {
				return nil
			}
			return outOfMemoryError{}
		}
	}
	runWith(t, config, func(h *harness) {
		etcd := newStaticPod("etcd", "u1")
		h.create(etcd)
		h.advance(10 * time.Minute)
		status := h.status(etcd)
		if status.Phase != v1.PodPending || status.Reason != "OutOfmemory" {
			h.Fatalf("got %s, %s, want Pending, OutOfmemory", status.Phase, status.Reason)
		}
		if n := attempts.Load(); n < 4 || n > 8 {
			h.Fatalf("got %d admission attempts in 10m, want 4 to 8", n)
		}
		admit.Store(true)
		h.runtime.SetScript("app", fakeruntime.Script{PullDuration: time.Hour})
		h.advance(8 * time.Minute)
		if status := h.status(etcd); status.Phase != v1.PodPending || status.Reason != "" || status.Message != "" {
			h.Fatalf("got %s, %q, %q, want Pending without a reason", status.Phase, status.Reason, status.Message)
		}
		h.advance(time.Hour)
		h.wantPhase(etcd, v1.PodRunning)
	})
}

// runWithCapacity runs a test on a node that admits that many pods.
func runWithCapacity(t *testing.T, capacity int, test func(*harness)) {
	var workers *worker.Workers
	config := func(config *worker.Config) {
		config.Admit = func(pod *v1.Pod) error {
			admitted := 0
			for _, state := range workers.Pods() {
				if state.UID != podid.UID(pod.UID) && state.Admitted && state.Stage < plan.Terminated {
					admitted++
				}
			}
			if admitted >= capacity {
				return outOfMemoryError{}
			}
			return nil
		}
	}
	runWith(t, config, func(h *harness) {
		workers = h.Workers
		test(h)
	})
}

func TestBUG29_ConcurrentStaticPods(t *testing.T) {
	runWithCapacity(t, 3, func(h *harness) {
		h.runtime.SetScript("app", fakeruntime.Script{StopDuration: fakeruntime.Forever})
		var pods []*v1.Pod
		for i := range 20 {
			name := fmt.Sprintf("p%d", i)
			pods = append(pods, newStaticPod(name, name))
			h.pods.AddPod(pods[i])
		}
		for _, pod := range pods {
			h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: pod})
		}
		h.advance(10 * time.Minute)
		running := slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !h.isRunning(pod) })
		if len(running) != 3 {
			h.Fatalf("got %d running pods, want 3", len(running))
		}
		h.delete(running[0], 0)
		h.advance(5 * time.Second)
		running = slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return !h.isRunning(pod) })
		if len(running) != 3 {
			h.Fatalf("after one has ended: got %d running pods, want 3", len(running))
		}
	})
}

func TestBUG29_RetriedWhenPodEnds(t *testing.T) {
	runWithCapacity(t, 1, func(h *harness) {
		web, etcd := newAPIPod("web"), newStaticPod("etcd", "u1")
		h.create(web)
		h.create(etcd)
		h.advance(10 * time.Minute) // the backoff is some minutes by now
		h.wantPhase(etcd, v1.PodPending)
		h.delete(web, 0)
		h.advance(time.Second)
		h.wantPhase(etcd, v1.PodRunning)
	})
}

func TestBUG29_RejectedByEarlierAgent(t *testing.T) {
	run(t, func(h *harness) {
		etcd := newStaticPod("etcd", "u1")
		mirror := newStaticPod("etcd", "mirror")
		mirror.Status = derive.RejectedStatus(etcd, "OutOfmemory", "no resources")
		mirror.Status.Phase = v1.PodPending
		h.pods.AddPod(etcd)
		h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: etcd, Mirror: mirror})
		h.advance(10 * time.Minute) // several syncs with that mirror
		status := h.status(etcd)
		if status.Phase != v1.PodRunning || status.Reason != "" || status.Message != "" {
			h.Fatalf("got %s, %q, %q, want Running without a reason", status.Phase, status.Reason, status.Message)
		}
	})
}

func TestCFG43_AdmissionOrder(t *testing.T) {
	var order []string
	config := func(config *worker.Config) {
		config.Admit = func(pod *v1.Pod) error { order = append(order, pod.Name); return nil }
	}
	runWith(t, config, func(h *harness) {
		names := []string{"e", "a", "d", "b", "c"}
		for _, name := range names {
			h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: newAPIPod(name)})
		}
		h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: newAPIPod("ended", withPhase(v1.PodFailed))})
		h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: withDeletion(newAPIPod("deleted"), 1)})
		synctest.Wait()
		if strings.Join(order, "") != strings.Join(names, "") {
			h.Fatalf("got %v, want %v", order, names)
		}
	})
}

func TestPW53_RunningStaticPodAdmitted(t *testing.T) {
	var isFull atomic.Bool
	config := func(config *worker.Config) {
		config.Admit = func(*v1.Pod) error {
			if isFull.Load() {
				return errFake
			}
			return nil
		}
	}
	runWith(t, config, func(h *harness) {
		etcd := newStaticPod("etcd", "u1")
		h.create(etcd)
		h.restartAgent()
		isFull.Store(true)
		h.create(etcd)
		h.wantPhase(etcd, v1.PodRunning)
		if h.count("kubelet_admission_rejections_total") != 0 {
			h.Fatal("got a rejection of a running pod, want none")
		}
	})
}

// An agent that starts does not kill what runs.
func TestAdmission_RunningAPIPod(t *testing.T) { // PW-53
	for name, neverListed := range map[string]bool{"listed": false, "not listed yet": true} {
		t.Run(name, func(t *testing.T) {
			var rejects atomic.Bool
			config := func(config *worker.Config) {
				config.Admit = func(*v1.Pod) error {
					if rejects.Load() {
						return outOfMemoryError{}
					}
					return nil
				}
			}
			runWith(t, config, func(h *harness) {
				web, other := newAPIPod("web"), newAPIPod("other")
				h.create(web)
				h.restartAgent()
				h.cache.setNeverListed(neverListed)
				rejects.Store(true)
				h.create(web)
				h.create(other)
				h.wantPhase(web, v1.PodRunning)
				h.wantRunning(web, true)
				h.wantPhase(other, v1.PodFailed)
			})
		})
	}
}

func TestPH20_TerminalMirror(t *testing.T) {
	mirror := func(phase v1.PodPhase) *v1.Pod { return newStaticPod("etcd", "mirror", withPhase(phase)) }
	tests := map[string]struct {
		pod  *v1.Pod
		act  func(*harness, *v1.Pod)
		want bool // the pod runs in the end
	}{
		"running": {newStaticPod("etcd", "u1"), func(h *harness, etcd *v1.Pod) {
			h.create(etcd)
			h.UpdatePod(worker.Update{Op: plan.OpSync, Pod: etcd, Mirror: mirror(v1.PodFailed)})
		}, true},
		"crash loop": {newStaticPod("etcd", "u1"), func(h *harness, etcd *v1.Pod) {
			h.runtime.SetScript("app", fakeruntime.Script{RunDuration: time.Second, ExitCode: 1})
			h.create(etcd)
			h.advance(5 * time.Second)
			h.UpdatePod(worker.Update{Op: plan.OpSync, Pod: etcd, Mirror: mirror(v1.PodFailed)})
			h.advance(5 * time.Second)
			h.runtime.SetScript("app", fakeruntime.Script{})
		}, true},
		"running before the agent": {newStaticPod("etcd", "u1"), func(h *harness, etcd *v1.Pod) {
			h.create(etcd)
			h.restartAgent()
			h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: etcd, Mirror: mirror(v1.PodFailed)})
		}, true},
		"completed before the agent": {newStaticPod("etcd", "u1", withRestartPolicy(v1.RestartPolicyNever)), func(h *harness, etcd *v1.Pod) {
			h.UpdatePod(worker.Update{Op: plan.OpCreate, Pod: etcd, Mirror: mirror(v1.PodSucceeded)})
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				test.act(h, test.pod)
				h.advance(5 * time.Minute)
				if got := h.isRunning(test.pod); got != test.want {
					h.Fatalf("running: got %v, want %v; phase %s", got, test.want, h.status(test.pod).Phase)
				}
			})
		})
	}
}
