package status_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
)

func TestF1_Outage(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pods := h.addPods(300)
		h.server.SetDown(true)
		h.faults.ClearRequests()
		start := time.Now()
		for flip := range 5 {
			for _, pod := range pods {
				h.SetPodStatus(pod, runningWithReason("%d", flip))
			}
			time.Sleep(20 * time.Second)
		}
		// Each pod is retried after 0.1s, 0.2s, 0.4s, ..., then every 10s, however often it changes.
		if got, limit := h.countRequests("PATCH"), len(pods)*(8+int(time.Since(start)/(10*time.Second))); got > limit {
			t.Fatalf("got %d requests in an outage of %v, want at most %d", got, time.Since(start), limit)
		}
		h.server.SetDown(false)
		h.faults.ClearRequests()
		back := time.Now()
		for h.countRequests("PATCH") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(back); took > 2*time.Second {
			t.Fatalf("got the first request after %v, want at most 2s", took)
		}
		time.Sleep(time.Second)
		for _, pod := range pods {
			h.wantReason(pod, "4")
		}
		time.Sleep(time.Minute)
		h.wantRequests("PATCH", len(pods))
	})
}

func TestF1_PriorityAfterOutage(t *testing.T) {
	withHarness(t, withOneWorker, func(t *testing.T, h *harness) {
		pods := h.addPods(30)
		for _, pod := range pods {
			h.SetPodStatus(pod, runningStatus())
		}
		synctest.Wait()
		h.server.SetDown(true)
		for _, pod := range pods {
			h.SetPodStatus(pod, runningWithReason("noise"))
		}
		last, unready := pods[29], unreadyStatus()
		h.SetPodStatus(last, unready)
		unready.Reason = "normal priority"
		h.SetPodStatus(last, unready)
		time.Sleep(time.Minute)
		h.server.SetDown(false)
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(100 * time.Millisecond))
		h.faults.ClearRequests()
		time.Sleep(30 * time.Second)
		// The pod that ended the outage is first, and another may be in flight.
		if position := slices.Index(h.patchedNames(), last.Name); position < 0 || position > 2 {
			t.Fatalf("got the readiness change at position %d, want 0 to 2", position)
		}
	})
}

// TestBUG6_OneFailingPod also covers SM-57 and F5: it backs off and delays no other pod.
func TestBUG6_OneFailingPod(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		bad, good := h.addPod("bad"), h.addPod("good")
		heal := h.faults.Add(fault.On("PATCH", "/pods/bad/").Reply(http.StatusInternalServerError))
		h.SetPodStatus(bad, runningStatus())
		for i := range 100 {
			h.SetPodStatus(good, runningWithReason("%d", i))
			h.wantReason(good, fmt.Sprint(i))
			h.SetPodStatus(bad, runningWithReason("%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		patches := h.faults.Requests().Filter("PATCH", "/pods/bad/")
		if len(patches) < 5 || len(patches) > 8 {
			t.Fatalf("got %d patches in 10s, want 5 to 8", len(patches))
		}
		for i := 2; i < len(patches); i++ {
			if before, after := patches[i-1].Start.Sub(patches[i-2].Start), patches[i].Start.Sub(patches[i-1].Start); after < before {
				t.Fatalf("got a delay of %v after one of %v", after, before)
			}
		}
		heal()
		time.Sleep(13 * time.Second)
		h.wantReason(bad, "99")
	})
}

func TestF5_RandomServerErrors(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		pods := h.addPods(30)
		for i, code := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
			h.faults.Add(fault.On("*", "/pods/").Probability(0.1, uint64(i)).Reply(code, fault.Message("etcdserver: request timed out")))
		}
		for i := range 20 {
			for _, pod := range pods {
				h.SetPodStatus(pod, runningWithReason("%d", i))
			}
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, pod := range pods {
			h.wantReason(pod, "19")
		}
		recorder.check(t)
	})
}

func TestSM55F2_OneSlowPod(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pods := h.addPods(100)
		h.faults.Add(fault.On("PATCH", "/pods/web-000/").Delay(9 * time.Second))
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(20 * time.Millisecond))
		for _, pod := range pods {
			h.SetPodStatus(pod, runningStatus())
		}
		time.Sleep(time.Second)
		for _, pod := range pods[1:] {
			h.wantPhase(pod, v1.PodRunning)
		}
		time.Sleep(9 * time.Second)
		h.wantPhase(pods[0], v1.PodRunning)
	})
}

func TestF3_HangingRequest(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Hang())
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(11 * time.Second)
		h.wantPhase(pod, v1.PodRunning)
	})
}

func TestF4_RetryAfter(t *testing.T) {
	tests := map[string]struct {
		options  []fault.ReplyOption
		minDelay time.Duration
		max      int
	}{
		"with Retry-After":    {[]fault.ReplyOption{fault.RetryAfter(7 * time.Second)}, 7 * time.Second, 6},
		"without Retry-After": {nil, 100 * time.Millisecond, 10},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				heal := h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusTooManyRequests, test.options...))
				h.faults.ClearRequests()
				for i := range 300 {
					h.SetPodStatus(pod, runningWithReason("%d", i))
					time.Sleep(100 * time.Millisecond)
				}
				patches := h.faults.Requests().Filter("PATCH", "/pods/")
				if len(patches) < 2 || len(patches) > test.max {
					t.Fatalf("got %d patches in 30s, want 2 to %d", len(patches), test.max)
				}
				for i := 1; i < len(patches); i++ {
					if delay := patches[i].Start.Sub(patches[i-1].Start); delay < test.minDelay {
						t.Fatalf("got a retry after %v, want at least %v", delay, test.minDelay)
					}
				}
				heal()
				time.Sleep(13 * time.Second)
				h.wantReason(pod, "299")
			})
		})
	}
}

func TestF4_RetryAfterOfOneDay(t *testing.T) {
	for name, code := range map[string]int{
		"too many requests": http.StatusTooManyRequests, "gateway maintenance": http.StatusServiceUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, h *harness) {
				pod := h.addPod("web")
				h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(code, fault.RetryAfter(24*time.Hour)))
				h.SetPodStatus(pod, runningStatus())
				time.Sleep(7 * time.Minute)
				h.wantPhase(pod, v1.PodRunning)
			})
		})
	}
}

func TestF4_ConcurrencyUnderThrottling(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pods := h.addPods(200)
		for _, pod := range pods {
			h.SetPodStatus(pod, runningStatus())
		}
		synctest.Wait()
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		heal := h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)))
		maxInFlight := func(during time.Duration) int {
			h.faults.ClearRequests()
			time.Sleep(during)
			return h.faults.Requests().Filter("PATCH", "/pods/").MaxInFlight()
		}
		for _, pod := range pods {
			h.SetPodStatus(pod, unreadyStatus())
		}
		time.Sleep(time.Second)
		if got := maxInFlight(500 * time.Millisecond); got > 8 || got < 4 {
			t.Errorf("after the first second: got %d concurrent requests, want 4 to 8: throttled requests halve the limit once per second", got)
		}
		time.Sleep(5 * time.Second)
		if got := maxInFlight(5 * time.Second); got > 2 {
			t.Errorf("after ten seconds: got %d concurrent requests, want at most 2", got)
		}
		h.SetPodStatus(pods[199], succeededStatus())
		time.Sleep(10 * time.Second)
		heal()
		time.Sleep(13 * time.Second) // its own last delay, and none of the others
		if got := h.apiStatus(pods[199]); got.Phase != v1.PodSucceeded {
			t.Errorf("got phase %s, want Succeeded", got.Phase)
		}
		time.Sleep(time.Minute)
		for _, pod := range pods[:199] {
			h.SetPodStatus(pod, runningStatus())
		}
		if got := maxInFlight(10 * time.Second); got < 9 {
			t.Errorf("after recovery: got %d concurrent requests, want at least 9", got)
		}
	})
}

func TestBUG6_SuccessResetsBackoff(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		heal := h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusInternalServerError))
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(time.Minute)
		heal()
		time.Sleep(time.Minute)
		h.faults.Add(fault.On("PATCH", "/pods/").Times(1).Reply(http.StatusInternalServerError))
		h.SetPodStatus(pod, runningWithReason("later"))
		time.Sleep(125 * time.Millisecond)
		h.wantReason(pod, "later")
	})
}

func TestF11_BrokenWatch(t *testing.T) {
	tests := map[string]func(h *harness){
		"cut":       func(h *harness) { h.server.CutWatches() },
		"compacted": func(h *harness) { h.server.SetDown(true); h.server.Compact(); h.server.SetDown(false) },
		"stalled": func(h *harness) {
			unstall := h.faults.Add(fault.On("watch", "/pods").Stall())
			time.AfterFunc(5*time.Minute, unstall)
		},
	}
	for name, breakWatch := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := h.addPod("web")
				h.SetPodStatus(pod, runningStatus())
				synctest.Wait()
				breakWatch(h)
				h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase = v1.PodPending })
				h.SetPodStatus(pod, runningWithReason("after"))
				time.Sleep(6 * time.Minute)
				if got := h.apiStatus(pod); got.Phase != v1.PodRunning || got.Reason != "after" {
					t.Fatalf("got %s, %q, want Running, after", got.Phase, got.Reason)
				}
				if _, found := h.GetPodStatus(pod.UID); !found {
					t.Fatal("the status was removed")
				}
			})
		})
	}
}

func TestF11_RestoredAPIServer(t *testing.T) {
	for name, changesBefore := range map[string]int{"old backup": 0, "current backup": 10} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(_ *testing.T, h *harness) {
				pod := h.addPod("web")
				var backup *v1.Pod
				for i := range 11 {
					if i == changesBefore {
						backup = h.server.Pod(podid.FullNameOf(pod))
					}
					h.SetPodStatus(pod, runningWithReason("%d", min(i, 9)))
					synctest.Wait()
				}
				restored := heraldtest.NewAPIServer()
				restored.AddPod(backup)
				h.transport.Store(restored)
				h.faults.Add(fault.On("watch", "/pods").Times(1).Reply(http.StatusGone)) // it does not have that version
				h.server.CutWatches()
				h.server = restored
				time.Sleep(time.Minute)
				h.wantReason(pod, "9")
				restored.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Reason = "foreign" })
				h.wantReason(pod, "9")
			})
		})
	}
}
