package status_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
)

func TestSM72_TerminatedPodIsDeleted(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.SetPodStatus(pod, succeededStatus())
		h.wantPhase(pod, v1.PodSucceeded)
		time.Sleep(time.Minute)
		if h.isDeleted(pod) {
			t.Fatal("deleted before TerminatePod")
		}
		if err := h.allocations.SetPodAllocation(pod); err != nil {
			t.Fatal(err)
		}
		h.faults.ClearRequests()
		h.TerminatePod(h.watchedPod(pod))
		if !h.isDeleted(pod) {
			t.Fatal("the object was not deleted")
		}
		if _, found := h.GetPodStatus(pod.UID); found {
			t.Fatal("SM-73: the status was not removed")
		}
		if _, found := h.allocations.GetContainerResourceAllocation(podid.UID(pod.UID), "web"); found {
			t.Fatal("SM-86: the allocation was not removed")
		}
		h.wantRequests("DELETE", 1)
	})
}

// TestSM72_LastRequirement checks that a pod is deleted whichever requirement is met last.
func TestSM72_LastRequirement(t *testing.T) {
	tests := map[string]struct{ terminated, deleted, reclaimed, stopped bool }{
		"TerminatePod":        {deleted: true, reclaimed: true, stopped: true},
		"deletion":            {terminated: true, reclaimed: true, stopped: true},
		"resources reclaimed": {terminated: true, deleted: true, stopped: true},
		"containers stopped":  {terminated: true, deleted: true, reclaimed: true},
	}
	for last, before := range tests {
		t.Run(last, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.SetPodStatus(pod, runningStatus())
				h.deletion.setHoldsResources(pod.UID, !before.reclaimed)
				h.deletion.setCouldRun(pod.UID, !before.stopped)
				terminate := func() { h.TerminatePod(h.watchedPod(pod)) }
				requestDeletion := func() {
					h.server.DeletePod(podid.FullNameOf(pod), 30)
					synctest.Wait()
				}
				if before.deleted {
					requestDeletion()
				}
				if before.terminated {
					terminate()
				}
				time.Sleep(time.Minute)
				if h.isDeleted(pod) {
					t.Fatalf("deleted before %s", last)
				}
				if !before.deleted {
					requestDeletion()
				}
				if !before.terminated {
					terminate()
				}
				h.deletion.setHoldsResources(pod.UID, false)
				h.deletion.setCouldRun(pod.UID, false)
				time.Sleep(10 * time.Second) // clean-up sends no signal: the periodic sync finds it
				if !h.isDeleted(pod) {
					t.Fatal("the object was not deleted")
				}
			})
		})
	}
}

func TestI12_ForeignTerminalPhase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.deletion.setCouldRun(pod.UID, true)
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed })
		synctest.Wait()
		h.TerminatePod(h.watchedPod(pod))
		time.Sleep(time.Minute)
		if h.isDeleted(pod) {
			t.Fatal("deleted while containers could run")
		}
	})
}

func TestSM73_RecreatedPodIsNotDeleted(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.SetPodStatus(pod, succeededStatus())
		synctest.Wait()
		h.faults.Add(fault.On("watch", "/pods").Stall())
		h.server.DeletePod(podid.FullNameOf(pod), 0)
		successor := pod.DeepCopy()
		successor.UID, successor.DeletionTimestamp, successor.DeletionGracePeriodSeconds, successor.Status = "", nil, nil, v1.PodStatus{}
		successor = h.server.AddPod(successor)
		h.faults.ClearRequests()
		h.TerminatePod(pod) // the node has not seen the new pod
		time.Sleep(time.Minute)
		if got := h.server.Pod(podid.FullNameOf(pod)); got == nil || got.UID != successor.UID || got.Status.Phase != v1.PodPending {
			t.Fatalf("got %+v, want the new pod unchanged", got)
		}
		if deletes := h.countRequests("DELETE"); deletes > 1 { // 409: another UID
			t.Fatalf("got %d deletes, want at most 1", deletes)
		}
	})
}

func TestSM73_LateDeleteIsNotRepeated(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.deletion.setHoldsResources(pod.UID, true)
		h.TerminatePod(pod)
		synctest.Wait()
		h.faults.Add(fault.On("watch", "/pods").Stall())
		h.server.DeletePod(podid.FullNameOf(pod), 0)
		successor := h.server.AddPod(recreated(pod))
		h.faults.ClearRequests()
		h.deletion.setHoldsResources(pod.UID, false)
		time.Sleep(10 * time.Minute)
		if requests := h.faults.Requests().Filter("*", "/pods/"); len(requests) != 1 || requests[0].Status != http.StatusConflict {
			t.Fatalf("got %d requests, want one with status 409", len(requests))
		}
		if _, found := h.GetPodStatus(pod.UID); found {
			t.Fatal("the status of the old pod was not removed")
		}
		h.wantPhase(successor, v1.PodPending)
	})
}

func TestSM72_DeletionSeenInResponse(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.Add(fault.On("watch", "/pods").Stall())
		h.server.DeletePod(podid.FullNameOf(pod), 30)
		h.TerminatePod(pod) // its copy has no deletion timestamp
		time.Sleep(10 * time.Second)
		if !h.isDeleted(pod) {
			t.Fatal("the object was not deleted")
		}
	})
}

func TestSM52SM74_DeleteIsRetried(t *testing.T) {
	for name, rule := range map[string]*fault.Rule{
		"refused connection": fault.On("DELETE", "/pods/").Times(3).Refuse(),
		"server error":       fault.On("DELETE", "/pods/").Times(3).Reply(http.StatusInternalServerError),
		"lost response":      fault.On("DELETE", "/pods/").Times(1).LoseReply(),
		"foreign response": fault.On("DELETE", "/pods/").Times(1).
			Reply(http.StatusOK, fault.Body("application/json", []byte("{}"))),
		"throttled": fault.On("DELETE", "/pods/").Times(2).Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addDeletedPod("web")
				h.faults.Add(rule)
				h.TerminatePod(pod)
				time.Sleep(5 * time.Second)
				if _, found := h.GetPodStatus(pod.UID); !h.isDeleted(pod) || found {
					t.Fatalf("got deleted %v, cached %v, want true, false", h.isDeleted(pod), found)
				}
			})
		})
	}
}

// TestSM75_MirrorIsNotDeleted also covers I13.
func TestSM75_MirrorIsNotDeleted(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		h.server.DeletePod(podid.FullNameOf(mirror), 30)
		synctest.Wait()
		h.SetPodStatus(static, succeededStatus())
		h.TerminatePod(static)
		time.Sleep(time.Minute)
		h.wantPhase(mirror, v1.PodSucceeded)
		h.wantRequests("DELETE", 0)
	})
}

func TestSM76_ResourcesNotReclaimed(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.deletion.setHoldsResources(pod.UID, true)
		h.TerminatePod(pod)
		time.Sleep(time.Hour)
		if h.isDeleted(pod) || h.apiStatus(pod).Phase != v1.PodFailed {
			t.Fatalf("got deleted %v, want a Failed pod that is not deleted", h.isDeleted(pod))
		}
	})
}

// TestBUG33_RejectedPodIsDeleted also covers SM-77.
func TestBUG33_RejectedPodIsDeleted(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "not enough CPU"})
		synctest.Wait()
		h.server.DeletePod(podid.FullNameOf(pod), 30)
		if h.isDeleted(pod) { // the API server deletes a failed pod without a grace period
			return
		}
		h.TerminatePod(h.watchedPod(pod))
		if !h.isDeleted(pod) {
			t.Fatal("the object was not deleted")
		}
	})
}

func TestSM77_DeletionBeforeRejection(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.server.DeletePod(podid.FullNameOf(pod), 30)
		synctest.Wait()
		start := time.Now()
		h.SetPodStatus(h.watchedPod(pod), v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"})
		h.TerminatePod(h.watchedPod(pod))
		if !h.isDeleted(pod) || time.Since(start) != 0 {
			t.Fatalf("got deleted %v after %v, want true, 0", h.isDeleted(pod), time.Since(start))
		}
	})
}

func TestSM80_StatusAfterDelete(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.TerminatePod(pod)
		if !h.isDeleted(pod) {
			t.Fatal("the object was not deleted")
		}
		h.faults.ClearRequests()
		h.SetPodStatus(pod, succeededStatus())
		h.TerminatePod(pod)
		time.Sleep(time.Minute)
		if sent := len(h.faults.Requests().Filter("*", "/pods/")); sent != 0 {
			t.Fatalf("I8: got %d requests for a deleted pod, want 0", sent)
		}
		h.RemoveOrphanedStatuses(nil)
		if _, found := h.GetPodStatus(pod.UID); found {
			t.Fatal("the status was not removed")
		}
	})
}

func TestSM80_StatusAfterForeignDelete(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.DeletePod(podid.FullNameOf(pod), 0)
		synctest.Wait()
		h.faults.ClearRequests()
		h.SetPodStatus(pod, succeededStatus())
		time.Sleep(time.Minute)
		if _, found := h.GetPodStatus(pod.UID); found || h.countRequests("PATCH") > 1 {
			t.Fatalf("got cached %v after %d patches, want false, at most 1", found, h.countRequests("PATCH"))
		}
	})
}
