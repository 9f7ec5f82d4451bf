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
