package status_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// markDeleted adds a deletion timestamp, as a delete does that a finalizer holds up.
func markDeleted(pod *v1.Pod) {
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, new(int64(30))
}

func TestBUG3_OrderOfPriorities(t *testing.T) {
	withHarness(t, withOneWorker, func(t *testing.T, h *harness) {
		names := []string{"busy", "normal", "phase", "readiness", "terminal"}
		pods := map[string]*v1.Pod{}
		for _, name := range names {
			pods[name] = h.addPod(name)
			if name != "phase" {
				h.SetPodStatus(pods[name], runningStatus())
			}
		}
		pods["released"] = h.addDeletedPod("released")
		h.SetPodStatus(pods["released"], succeededStatus())
		pods["finished"] = h.addPod("finished")
		h.TerminatePod(pods["finished"])
		synctest.Wait()
		h.faults.Add(fault.On("*", "/pods/").Delay(50 * time.Millisecond))
		h.faults.ClearRequests()
		h.SetPodStatus(pods["busy"], runningWithReason("busy"))
		time.Sleep(time.Millisecond)
		pending := unreadyStatus()
		pending.Reason = "first"
		for _, change := range []func(){
			func() { h.SetPodStatus(pods["normal"], runningWithReason("normal")) },
			func() { h.SetPodStatus(pods["phase"], pending) },
			func() { h.SetPodStatus(pods["readiness"], unreadyStatus()) },
			func() { h.SetPodStatus(pods["terminal"], succeededStatus()) },
			func() { h.TerminatePod(h.watchedPod(pods["released"])) },
			func() { h.server.UpdatePod(podid.FullNameOf(pods["finished"]), markDeleted) },
		} {
			change()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		want := []string{"busy", "terminal", "released", "readiness", "phase", "normal"}
		if got := h.patchedNames(); !slices.Equal(got, want) {
			t.Fatalf("got order %q, want %q", got, want)
		}
		requests := h.faults.Requests()
		readiness := requests.Filter("PATCH", "/pods/readiness/")[0].Start
		for _, name := range []string{"released", "finished"} {
			if deletions := requests.Filter("DELETE", "/pods/"+name); len(deletions) != 1 || deletions[0].Start.After(readiness) {
				t.Fatalf("%s: got %d deletes, want one before lower priorities", name, len(deletions))
			}
		}
	})
}

func TestBUG3_PriorityRises(t *testing.T) {
	withHarness(t, withOneWorker, func(t *testing.T, h *harness) {
		busy, normal, terminal := h.addPod("busy"), h.addPod("normal"), h.addPod("terminal")
		for _, pod := range []*v1.Pod{busy, normal, terminal} {
			h.SetPodStatus(pod, runningStatus())
		}
		synctest.Wait()
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		h.faults.ClearRequests()
		for _, pod := range []*v1.Pod{busy, normal, terminal} {
			h.SetPodStatus(pod, runningWithReason("normal"))
			time.Sleep(time.Millisecond)
		}
		succeeded := succeededStatus()
		h.SetPodStatus(terminal, succeeded)
		succeeded.Reason = "normal"
		h.SetPodStatus(terminal, succeeded)
		time.Sleep(time.Second)
		if got, want := h.patchedNames(), []string{"busy", "terminal", "normal"}; !slices.Equal(got, want) {
			t.Fatalf("got order %q, want %q", got, want)
		}
	})
}

func TestBUG3_NormalPriorityIsBounded(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pods := h.addPods(200)
		for _, pod := range pods {
			h.SetPodStatus(pod, runningStatus())
		}
		synctest.Wait()
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		for round, change := range []v1.PodStatus{runningWithReason("normal"), unreadyStatus()} {
			h.faults.ClearRequests()
			for _, pod := range pods {
				h.SetPodStatus(pod, change)
			}
			time.Sleep(10 * time.Second)
			if got, want := h.faults.Requests().Filter("PATCH", "/pods/").MaxInFlight(), []int{4, 16}[round]; got != want {
				t.Errorf("round %d: got %d concurrent requests, want %d", round, got, want)
			}
		}
	})
}

func TestBUG3_Aging(t *testing.T) {
	withHarness(t, withOneWorker, func(t *testing.T, h *harness) {
		normal, flapping := h.addPod("normal"), h.addPods(20)
		h.SetPodStatus(normal, runningStatus())
		synctest.Wait()
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		h.SetPodStatus(normal, runningWithReason("changed"))
		changes := 0
		for range 200 { // readiness changes of others, twice as fast as they can be sent
			for range 4 {
				pod := flapping[changes%len(flapping)]
				changes++
				h.SetPodStatus(pod, []v1.PodStatus{runningStatus(), unreadyStatus()}[changes/len(flapping)%2])
			}
			time.Sleep(100 * time.Millisecond)
			if h.apiStatus(normal).Reason == "changed" {
				return
			}
		}
		t.Fatal("the change was not sent within 20s")
	})
}

func TestSM52I14_RemovedPodsLeaveNothing(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		h.faults.Add(fault.On("*", "/pods/").Probability(0.2, 3).Reply(500))
		var uids []podid.UID
		for i := range 100 {
			pod := h.addPod(fmt.Sprintf("web-%d", i))
			uids = append(uids, podid.UID(pod.UID))
			h.SetPodStatus(pod, runningStatus())
			h.SetContainerReadiness(pod.UID, containerID("1"), false)
			if err := h.allocations.SetPodAllocation(pod); err != nil {
				t.Fatal(err)
			}
			switch i % 3 {
			case 0: // graceful deletion
				h.server.DeletePod(podid.FullNameOf(pod), 30)
				synctest.Wait()
				h.TerminatePod(h.watchedPod(pod))
			case 1: // forced deletion with a pending change
				h.server.DeletePod(podid.FullNameOf(pod), 0)
				h.SetPodStatus(pod, succeededStatus())
			case 2: // forced deletion without one
				h.server.DeletePod(podid.FullNameOf(pod), 0)
				synctest.Wait()
				h.Reconcile(pod)
			}
		}
		time.Sleep(time.Minute)
		h.RemoveOrphanedStatuses(nil)
		time.Sleep(15 * time.Minute)
		if size := h.Size(); len(size) > 0 {
			t.Fatalf("got %v, want nothing", size)
		}
		for _, uid := range uids {
			if _, found := h.allocations.GetContainerResourceAllocation(uid, "web"); found {
				t.Fatalf("the allocation of %s was not removed", uid)
			}
		}
	})
}

func TestI14_ReconcileWithoutStatus(t *testing.T) {
	manager, err := status.New(status.Config{API: &checkedAPI{}, Pods: pod.NewManager(), Deletion: newFakeDeletionSafety()}) // Run is not called
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		pod, _ := threeContainers(types.UID(fmt.Sprint(i)))
		manager.Reconcile(pod)
	}
	if size := manager.Size(); len(size) > 0 {
		t.Fatalf("got %v, want nothing", size)
	}
}

func TestI14_StatusAfterRun(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		h.stop()
		h.SetPodStatus(pod, succeededStatus())
		h.Reconcile(pod)
		if got, _ := h.GetPodStatus(pod.UID); got.Phase != v1.PodSucceeded {
			t.Fatalf("got phase %s, want Succeeded", got.Phase)
		}
		if size := h.Size(); size["waitingByUID"] != 0 || size["waiting"] != 0 {
			t.Fatalf("got %v, want an empty queue", size)
		}
	})
}

func withCoalesceDelay(c *status.Config) { c.CoalesceDelay = 50 * time.Millisecond }

// Changes that follow each other take one request. It is sent when the delay of the first ends.
func TestSM4_CoalesceDelay(t *testing.T) {
	withHarness(t, withCoalesceDelay, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		for i := range 4 {
			h.SetPodStatus(pod, runningWithReason("change %d", i))
			time.Sleep(10 * time.Millisecond)
			h.Reconcile(h.watchedPod(pod)) // a new version in the watch is no reason to send earlier
		}
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		h.wantRequests("PATCH", 0)
		time.Sleep(time.Millisecond)
		h.wantReason(pod, "change 3")
		time.Sleep(time.Minute)
		h.wantRequests("PATCH", 1)
	})
}

// A change of readiness and a terminal phase do not wait, and take along what waits.
func TestSM4_CoalesceDelay_Urgent(t *testing.T) {
	for name, urgent := range map[string]struct {
		change func(h *harness, pod *v1.Pod)
		phase  v1.PodPhase
	}{
		"readiness result":  {func(h *harness, pod *v1.Pod) { h.SetContainerReadiness(pod.UID, containerID("1"), false) }, v1.PodRunning},
		"status with Ready": {func(h *harness, pod *v1.Pod) { h.SetPodStatus(pod, unreadyStatus()) }, v1.PodRunning},
		"terminal phase":    {func(h *harness, pod *v1.Pod) { h.SetPodStatus(pod, succeededStatus()) }, v1.PodSucceeded},
		"end":               {func(h *harness, pod *v1.Pod) { h.TerminatePod(pod) }, v1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, withCoalesceDelay, func(t *testing.T, h *harness) {
				pod := h.addPod("web", withReadinessProbe)
				h.SetPodStatus(pod, runningStatus())
				synctest.Wait()
				h.faults.ClearRequests()
				h.SetPodStatus(pod, runningWithReason("waits"))
				synctest.Wait()
				h.wantRequests("PATCH", 0)
				urgent.change(h, pod)
				h.wantPhase(pod, urgent.phase)
				if got := conditionOf(h.apiStatus(pod), v1.PodReady).Status; got != v1.ConditionFalse {
					t.Errorf("got Ready %s at once, want False", got)
				}
				h.wantRequests("PATCH", 1)
				time.Sleep(time.Minute)
				h.wantRequests("PATCH", 1)
			})
		})
	}
}

// The confirmation of a deletion waits for the pod's end, but not forever.
func TestSM38_CoalesceDelay_Deletion(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "does not end": false} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, withCoalesceDelay, func(t *testing.T, h *harness) {
				pod := h.addDeletedPod("web")
				pod = h.watchedPod(pod)
				h.faults.ClearRequests()
				confirmed := *pod
				confirmed.Generation++
				seen := runningStatus()
				for i := range seen.Conditions {
					seen.Conditions[i].ObservedGeneration = confirmed.Generation
				}
				h.Reconcile(pod) // may still wait when the status is set
				h.SetPodStatus(&confirmed, seen)
				time.Sleep(time.Second)
				h.SetPodStatus(&confirmed, seen)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				h.wantRequests("PATCH", 0)
				if ends {
					h.SetPodStatus(&confirmed, succeededStatus())
					h.wantPhase(pod, v1.PodSucceeded)
				}
				time.Sleep(time.Minute)
				if got := h.apiStatus(pod).ObservedGeneration; got != confirmed.Generation {
					t.Errorf("got observed generation %d, want %d", got, confirmed.Generation)
				}
				h.wantRequests("PATCH", 1)
			})
		})
	}
}

func TestBUG10_CoalesceDelay_Shutdown(t *testing.T) {
	withHarness(t, withCoalesceDelay, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.SetPodStatus(pod, runningWithReason("last"))
		start := time.Now()
		h.stop()
		if waited := time.Since(start); waited > 0 {
			t.Errorf("got a shutdown of %v, want one that does not wait for other changes", waited)
		}
		h.wantReason(pod, "last")
	})
}
