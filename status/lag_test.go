package status_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// syncOf returns the state of the pod once the bubble is idle.
func (h *harness) syncOf(p *v1.Pod) status.Sync {
	h.t.Helper()
	synctest.Wait()
	sync, found := h.Sync(p.UID)
	if !found {
		h.t.Fatalf("%s: got no Sync", p.Name)
	}
	if other := h.Syncs()[h.pods.TranslatePodUID(p.UID)]; other.State != sync.State || other.Behind != sync.Behind {
		h.t.Fatalf("%s: Syncs has %s, %d behind, Sync has %s, %d behind", p.Name, other.State, other.Behind, sync.State, sync.Behind)
	}
	return sync
}

// wantSync fails the test unless the pod has the state, is that far behind, and the reason contains the text.
func wantSync(t *testing.T, got status.Sync, state status.SyncState, behind int, reason string) {
	t.Helper()
	if got.State != state || got.Behind != behind || !strings.Contains(got.Reason, reason) || (reason == "") != (got.Reason == "") {
		t.Fatalf("got %s, %d behind, reason %q, want %s, %d behind, reason %q", got.State, got.Behind, got.Reason, state, behind, reason)
	}
}

func TestSync_Synced(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		other := h.addPod("other")
		pod := h.addPod("web", func(p *v1.Pod) { p.Finalizers = []string{"example.com/backup"} })
		if _, found := h.Sync(pod.UID); found {
			t.Fatal("got a Sync of a pod without a status")
		}
		h.SetPodStatus(pod, runningStatus())
		h.SetPodStatus(other, runningStatus())
		setAt := time.Now()
		got := h.syncOf(pod)
		wantSync(t, got, status.SyncSynced, 0, "")
		object := h.server.Pod(podid.FullNameOf(pod))
		if got.Synced == nil || heraldtest.DiffOwnedStatus(&object.Status, got.Synced) != "" || got.ResourceVersion != object.ResourceVersion {
			t.Fatalf("got version %s of\n%+v, want %s of\n%+v", got.ResourceVersion, got.Synced, object.ResourceVersion, object.Status)
		}
		if got.Version == 0 || got.SyncedVersion != got.Version || !got.At.Equal(setAt) || got.SyncedAt.Before(got.At) {
			t.Fatalf("got version %d at %v, acknowledged %d at %v", got.Version, got.At, got.SyncedVersion, got.SyncedAt)
		}
		if len(got.Finalizers) != 1 || got.Finalizers[0] != "example.com/backup" {
			t.Fatalf("got finalizers %v", got.Finalizers)
		}
	})
}

func TestSync_Sending(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod, other := h.addPod("web"), h.addPod("other")
		h.SetPodStatus(pod, runningStatus())
		acked := h.syncOf(pod)
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Delay(2 * time.Second))
		since := time.Now()
		h.SetPodStatus(pod, runningWithReason("1"))
		time.Sleep(time.Second)
		wantSync(t, h.syncOf(pod), status.SyncSending, 1, "")
		h.SetPodStatus(other, runningStatus()) // the versions of other pods do not count
		h.SetPodStatus(pod, runningWithReason("2"))
		h.SetPodStatus(pod, runningWithReason("2")) // unchanged
		got := h.syncOf(pod)
		wantSync(t, got, status.SyncSending, 2, "")
		if got.SyncedVersion != acked.Version || !got.Since.Equal(since) || got.Synced.Reason != "" {
			t.Fatalf("got acknowledged version %d, behind since %v, reason %q in the API server, want %d, %v, none",
				got.SyncedVersion, got.Since, got.Synced.Reason, acked.Version, since)
		}
		time.Sleep(time.Minute)
		wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
	})
}

// TestQ3_RevertedDuringRequest sets a status, and the one before it while the request is under way: the API server may have
// either of them.
func TestQ3_RevertedDuringRequest(t *testing.T) {
	for name, rule := range map[string]*fault.Rule{
		"executed":     fault.On("PATCH", "/pods/").Times(1).LoseReply(),
		"not executed": fault.On("PATCH", "/pods/").Times(1).Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.SetPodStatus(pod, runningWithReason("a"))
				wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
				h.skipReconcile.Store(true)
				h.faults.Add(fault.On("watch", "/pods").Stall())
				h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Delay(time.Second))
				h.faults.Add(rule)
				h.SetPodStatus(pod, runningWithReason("b"))
				time.Sleep(500 * time.Millisecond)
				h.SetPodStatus(pod, runningWithReason("a"))
				if got := h.syncOf(pod); got.State != status.SyncSending || got.Behind != 2 {
					t.Fatalf("during the request: got %s, %d behind, want sending, 2", got.State, got.Behind)
				}
				time.Sleep(510 * time.Millisecond)
				if got := h.syncOf(pod); got.State != status.SyncWaiting || got.Behind != 2 {
					t.Fatalf("after the request: got %s, %d behind, want waiting, 2", got.State, got.Behind)
				}
				time.Sleep(time.Minute)
				wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
				h.wantReason(pod, "a")
			})
		})
	}
}

func TestSync_Waiting(t *testing.T) {
	tests := map[string]struct {
		rule   *fault.Rule
		reason string
	}{
		"refused":   {fault.On("*", "/pods/").Refuse(), "API server does not answer: connection refused"},
		"reset":     {fault.On("*", "/pods/").Reset(), "API server does not answer: connection reset by peer"},
		"hanging":   {fault.On("*", "/pods/").Hang(), "API server does not answer: timeout"},
		"throttled": {fault.On("*", "/pods/").Reply(http.StatusTooManyRequests, fault.RetryAfter(7*time.Second)), "limited: "},
		"failing":   {fault.On("*", "/pods/").Reply(http.StatusInternalServerError), "API server fails: "},
		"conflicts": {fault.On("PATCH", "/pods/").Reply(http.StatusConflict), "limited: other writers change the object too often"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.SetPodStatus(pod, runningStatus())
				wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
				heal := h.faults.Add(test.rule)
				since := time.Now()
				h.SetPodStatus(pod, runningWithReason("1"))
				h.SetPodStatus(pod, runningWithReason("2"))
				h.SetPodStatus(pod, runningWithReason("3"))
				time.Sleep(time.Minute)
				got := h.syncOf(pod)
				wantSync(t, got, status.SyncWaiting, 3, test.reason)
				if got.Failures < 2 || !got.Since.Equal(since) {
					t.Fatalf("got %d failures, behind since %v, want several, %v", got.Failures, got.Since, since)
				}
				if !got.NextTry.IsZero() && !got.NextTry.After(time.Now()) {
					t.Fatalf("next try at %v is not in the future", got.NextTry)
				}
				h.SetPodStatus(pod, runningStatus()) // equal to the API object
				if got := h.syncOf(pod); got.State == status.SyncSynced && (got.Behind != 0 || got.Failures != 0 || got.SyncedVersion != got.Version) {
					t.Fatalf("got %+v, want nothing behind", got)
				}
				h.SetPodStatus(pod, runningWithReason("4"))
				heal()
				time.Sleep(time.Minute)
				wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
			})
		})
	}
}

func TestSync_NextTry(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Times(3).Reply(http.StatusServiceUnavailable))
		h.SetPodStatus(pod, runningStatus())
		for range 3 {
			next := h.syncOf(pod).NextTry
			h.faults.ClearRequests()
			time.Sleep(time.Until(next))
			synctest.Wait()
			if patches := h.faults.Requests().Filter("PATCH", "/pods/"); len(patches) != 1 || !patches[0].Start.Equal(next) {
				t.Fatalf("got %d patches, want one at %v", len(patches), next)
			}
		}
		wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
	})
}

func TestSync_RepairLimited(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		for i := range 4 {
			if got := h.syncOf(pod); got.Repairs != i {
				t.Fatalf("got %d repairs, want %d", got.Repairs, i)
			}
			h.server.UpdatePod(podid.FullNameOf(pod), func(p *v1.Pod) { setCondition(p, v1.PodReady, v1.ConditionFalse) })
		}
		got := h.syncOf(pod)
		wantSync(t, got, status.SyncWaiting, 1, "limited: another writer keeps changing the status")
		if wait := time.Until(got.NextTry); wait <= 0 || wait > time.Minute {
			t.Fatalf("got next try in %v, want within a minute", wait)
		}
		time.Sleep(2 * time.Minute)
		got = h.syncOf(pod)
		wantSync(t, got, status.SyncSynced, 0, "")
		time.Sleep(2 * time.Minute)
		if got := h.syncOf(pod); got.Repairs != 0 {
			t.Fatalf("got %d repairs in the last minute, want 0", got.Repairs)
		}
	})
}

func TestSync_Withheld(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("job", withRestartPolicyNever)
		h.deletion.setCouldRun(pod.UID, true)
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		since := time.Now()
		h.SetPodStatus(pod, succeededStatus())
		got := h.syncOf(pod)
		wantSync(t, got, status.SyncWithheld, 1, "withheld until all containers have stopped")
		if !got.Since.Equal(since) {
			t.Fatalf("got since %v, want %v", got.Since, since)
		}
		h.deletion.setCouldRun(pod.UID, false)
		time.Sleep(time.Minute)
		wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
	})
}

func TestSync_ForeignTerminalPhase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.UpdatePod(podid.FullNameOf(pod), func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
		wantSync(t, h.syncOf(pod), status.SyncWithheld, 1, "another writer has set the phase Failed")
	})
}

func TestSync_Refused(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		heal := h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusUnprocessableEntity, fault.Message("status.podIPs: no more than one")))
		h.SetPodStatus(pod, runningStatus())
		for range 5 {
			got := h.syncOf(pod)
			wantSync(t, got, status.SyncRefused, 1, "status.podIPs: no more than one")
			if !got.NextTry.After(time.Now()) {
				t.Fatalf("got next try %v, want a time in the future", got.NextTry)
			}
			time.Sleep(30 * time.Second)
		}
		heal()
		time.Sleep(2 * time.Minute)
		wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
	})
}

func TestSync_Gone(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.DeletePod(podid.FullNameOf(pod), 0)
		if got := h.syncOf(pod); got.State != status.SyncGone || got.Reason == "" {
			t.Fatalf("after a forced deletion: got %s, reason %q, want gone", got.State, got.Reason)
		}
		static := newStaticPod("etcd")
		h.pods.AddPod(static)
		h.SetPodStatus(static, runningStatus())
		wantSync(t, h.syncOf(static), status.SyncGone, 1, "the mirror pod does not exist")
		mirror := h.addMirror(static)
		wantSync(t, h.syncOf(static), status.SyncSynced, 0, "")
		wantSync(t, h.syncOf(mirror), status.SyncSynced, 0, "") // SM-6
	})
}

// unrelated is the API server's answer to a node that reads a pod that does not exist.
var unrelated = fault.Message(`pods "web" is forbidden: no relationship found between node 'n1' and this object`)

// A node that may not read a pod does not conclude that the pod's status is rejected.
func TestSync_ReadForbidden(t *testing.T) {
	for name, message := range map[string]fault.ReplyOption{"unrelated": unrelated, "not authorized": fault.Message("RBAC")} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				heal := h.faults.Add(fault.On("GET", "/pods/").Reply(http.StatusForbidden, message))
				h.faults.Add(fault.On("PATCH", "/pods/").Times(1).LoseReply()) // so that the object must be read
				h.faults.Add(fault.On("watch", "/pods").Stall())
				h.SetPodStatus(pod, runningStatus())
				for range 5 {
					time.Sleep(10 * time.Second)
					wantSync(t, h.syncOf(pod), status.SyncWaiting, 1, "rejected: ")
				}
				heal()
				time.Sleep(2 * time.Minute)
				wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
			})
		})
	}
}

// The API server answers 403 to a node that reads a pod that is gone. SM-58: its status is removed.
func TestSM58_UnrelatedAfterDeletion(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("GET", "/pods/").Reply(http.StatusForbidden, unrelated))
		release := make(chan struct{})
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).HoldUntil(release))
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.DeletePod(podid.FullNameOf(pod), 0)
		time.Sleep(5 * time.Minute) // the request timed out: whether it was executed is not known
		close(release)
		if sync, found := h.Sync(pod.UID); found {
			t.Fatalf("got %s, %q for a pod that does not exist", sync.State, sync.Reason)
		}
	})
}

func TestSync_DeleteFails(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addDeletedPod("web")
		h.faults.Add(fault.On("DELETE", "/pods/").Reply(http.StatusForbidden))
		h.TerminatePod(pod)
		got := h.syncOf(pod)
		wantSync(t, got, status.SyncSynced, 0, "rejected: ")
		if got.Failures == 0 || got.NextTry.IsZero() {
			t.Fatalf("got %d failures, next try %v", got.Failures, got.NextTry)
		}
	})
}

func TestSync_NoServer(t *testing.T) {
	withHarness(t, withoutAPI, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		got := h.syncOf(pod)
		wantSync(t, got, status.SyncNoServer, 0, "")
		if got.Version == 0 || got.At.IsZero() || got.Synced != nil {
			t.Fatalf("got %+v, want the local version only", got)
		}
	})
}

func TestSync_Restored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := newHarness(t, heraldtest.NewAPIServer(), withState(t, dir))
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.SetDown(true)
		h.SetPodStatus(pod, runningWithReason("1"))
		time.Sleep(5 * time.Second)
		dir = copyState(t, dir)
		h.stop()
		h.server.SetDown(false)
		h = newHarness(t, h.server, withState(t, dir))
		defer h.stop()
		wantSync(t, h.syncOf(pod), status.SyncWaiting, 1, "earlier run")
		h.SetPodStatus(h.watchedPod(pod), runningWithReason("2"))
		wantSync(t, h.syncOf(pod), status.SyncSynced, 0, "")
	})
}
