package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pleg"
	"github.com/heraldnode/herald/podid"
)

func TestPLEG1_RelistPeriod(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		if n := h.runtime.read(&h.runtime.lists); n != 1 {
			t.Fatalf("at the start: got %d lists, want 1", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := h.runtime.read(&h.runtime.lists); n != 6 {
			t.Errorf("after 5s: got %d lists, want 6", n)
		}
	})
}

func TestPLEG2_ListFails(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		h.wantChanges("a")
		h.runtime.update(func() { h.runtime.listErr = errors.New("busy"); clear(h.runtime.pods) })
		h.relist()
		if h.stateOf("a") != observed.Running {
			t.Errorf("state of a: got %v, want running", h.stateOf("a"))
		}
		h.wantChanges()
	})
}

func TestPLEG3_Changes(t *testing.T) {
	running := func(r *fakeRuntime) { r.setPod("a", observed.Running) }
	tests := map[string]struct {
		before, after func(*fakeRuntime)
		changed       bool
	}{
		"unchanged":                  {running, running, false},
		"PLEG-3 exited":              {running, func(r *fakeRuntime) { r.setPod("a", observed.Exited) }, true},
		"PLEG-3 unknown":             {running, func(r *fakeRuntime) { r.setPod("a", observed.Unknown) }, true},
		"PLEG-3 created":             {func(*fakeRuntime) {}, func(r *fakeRuntime) { r.setPod("a", observed.Created) }, true},
		"PLEG-3 running pod removed": {running, func(r *fakeRuntime) { r.update(func() { delete(r.pods, "a") }) }, true},
		"PLEG-4 sandbox not ready": {running, func(r *fakeRuntime) {
			r.setPod("a", observed.Running, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
		}, true},
		"PLEG-17 exited pod removed": {
			func(r *fakeRuntime) {
				r.setPod("a", observed.Exited, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
			},
			func(r *fakeRuntime) { r.update(func() { delete(r.pods, "a") }) }, false,
		},
		"PLEG-12 replaced within one period": {running, func(r *fakeRuntime) {
			r.setPod("a", observed.Running, func(p *observed.Pod) { p.Containers[0].ID.ID = "its successor" })
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, newFakeRuntime, func(h *harness) {
				test.before(h.runtime)
				h.relist()
				h.changes()
				test.after(h.runtime)
				h.relist()
				if got := len(h.changes()) > 0; got != test.changed {
					t.Errorf("changed: %v, want %v", got, test.changed)
				}
				if got, held := h.Get("a"), h.runtime.pods["a"]; held != nil && !cmp.Equal(got.Containers, held.Containers) {
					t.Errorf("Get: got %v, want %v", got, held)
				}
			})
		})
	}
}

func TestPLEG5_CacheUpdatedFirst(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectDelay = 300 * time.Millisecond })
		h.runtime.setPod("a", observed.Running)
		time.Sleep(1100 * time.Millisecond) // the relist is done, the inspection is running
		h.wantChanges()
		time.Sleep(300 * time.Millisecond)
		h.wantChanges("a")
		if h.stateOf("a") != observed.Running {
			t.Errorf("state of a: got %v, want running", h.stateOf("a"))
		}
	})
}

func TestPLEG6_InspectionFails(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		h.changes()
		h.runtime.setPod("a", observed.Exited)
		h.runtime.update(func() { h.runtime.inspectErrs["a"] = errors.New("no answer") })
		h.relist()
		h.wantChanges()
		if h.stateOf("a") != observed.Running {
			t.Errorf("state of a: got %v, want running", h.stateOf("a"))
		}
		h.runtime.update(func() { delete(h.runtime.inspectErrs, "a") })
		h.relist()
		h.wantChanges("a")
	})
}

func TestPLEG7_PodVanishes(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		h.runtime.update(func() { delete(h.runtime.pods, "a") })
		h.relist()
		if pod := h.Get("a"); len(pod.Containers)+len(pod.Sandboxes) > 0 {
			t.Errorf("Get: got %v, want an empty pod", pod)
		}
	})
}

func TestPLEG8_BUG28_SlowConsumer(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		const pods = 3000
		for _, state := range []observed.State{observed.Running, observed.Exited} {
			for i := range pods {
				h.runtime.setPod(podid.UID(fmt.Sprint(i)), state)
			}
			h.relist()
		}
		if got := h.changes(); len(got) != pods {
			t.Errorf("got %d changes, want %d", len(got), pods)
		}
	})
}

func TestPLEG9_PLEG15_UnknownPod(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		pod, err := h.GetNewerThan(h.t.Context(), "unknown", time.Now().Add(-time.Second))
		if err != nil || pod == nil || len(pod.Containers) > 0 {
			t.Errorf("got %v, %v, want an empty pod", pod, err)
		}
	})
}

func TestPLEG10_IPsOfEndedPod(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running, func(p *observed.Pod) { p.IPs = addresses })
		h.relist()
		h.runtime.setPod("a", observed.Exited, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
		h.relist()
		if got := h.Get("a").IPs; len(got) != 1 || got[0] != addresses[0] {
			t.Errorf("IPs: got %v, want %v", got, addresses)
		}
		h.runtime.setPod("a", observed.Running, func(p *observed.Pod) { p.Sandboxes[0].ID = "new" }) // has no address yet
		h.relist()
		if got := h.Get("a").IPs; len(got) != 0 {
			t.Errorf("IPs of a new sandbox: got %v, want none", got)
		}
	})
}

func TestPLEG11_RuntimeHangs(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		if err := h.Healthy(); err != nil {
			t.Fatal(err)
		}
		h.runtime.update(func() { h.runtime.hangingLists = true })
		time.Sleep(2 * time.Minute)
		if err := h.Healthy(); err != nil {
			t.Errorf("after 2m: got %v, want nil", err)
		}
		time.Sleep(2 * time.Minute)
		if err := h.Healthy(); err == nil || !strings.Contains(err.Error(), "last listed its pods 4m0s ago") {
			t.Errorf("after 4m: got %v, want an error with the age", err)
		}
		h.runtime.update(func() { h.runtime.hangingLists = false })
		h.runtime.setPod("a", observed.Running)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if err := h.Healthy(); err != nil || h.stateOf("a") != observed.Running {
			t.Errorf("after recovery: got %v, %v, want nil, running", err, h.stateOf("a"))
		}
	})
}

func TestPLEG11_BeforeFirstRelist(t *testing.T) {
	p, err := pleg.New(pleg.Config{Runtime: newFakeRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	if p.Healthy() == nil {
		t.Error("Healthy: got nil, want an error")
	}
	if pods, at := p.Pods(); len(pods) > 0 || !at.IsZero() {
		t.Errorf("Pods: got %v, %v, want none", pods, at)
	}
}

func TestPLEG13_RefreshDetails(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		limit := int64(500)
		h.runtime.setPod("a", observed.Running, func(p *observed.Pod) {
			p.Containers[0].Resources = &observed.Resources{MilliCPULimit: &limit}
		})
		h.relist()
		if h.Get("a").Containers[0].Resources != nil {
			t.Fatal("resources: got some from a list, want nil")
		}
		h.Refresh("a")
		synctest.Wait()
		if got := h.Get("a").Containers[0].Resources; got == nil || *got.MilliCPULimit != limit {
			t.Errorf("resources: got %v, want %d", got, limit)
		}
	})
}

func TestPLEG14_BUG27_InspectedAtOnce(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		time.Sleep(100 * time.Millisecond)
		h.runtime.setPod("a", observed.Running)
		requested := time.Now()
		time.Sleep(time.Millisecond)
		pod, err := h.GetNewerThan(h.t.Context(), "a", requested)
		if err != nil || len(pod.Containers) != 1 {
			t.Fatalf("got %v, %v, want one container", pod, err)
		}
		if waited := time.Since(requested); waited > time.Millisecond {
			t.Errorf("got a wait of %v, want at most 1ms", waited)
		}
		h.wantChanges("a")
	})
}

func TestPLEG14_RequestsCoalesce(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectDelay = 10 * time.Millisecond })
		for range 1000 {
			h.Refresh("a")
		}
		time.Sleep(100 * time.Millisecond)
		if n := h.runtime.inspectionsOf("a"); n > 2 {
			t.Errorf("got %d inspections, want at most 2", n)
		}
	})
}

// An inspection that began before the request may have missed the change that the caller is interested in.
func TestPLEG15_InspectionBeforeRequest(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectDelay = 400 * time.Millisecond })
		h.Refresh("a")
		time.Sleep(100 * time.Millisecond)
		requested := time.Now()
		pod, err := h.GetNewerThan(h.t.Context(), "a", requested)
		if err != nil || !pod.At.After(requested) {
			t.Errorf("got state of %v, %v, want newer than %v", pod.At, err, requested)
		}
	})
}

// An inspection that began before a relist and ends after it may show what the list no longer contains.
func TestPLEG15_InspectionBeforeRelist(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		h.runtime.update(func() { h.runtime.inspectDelay = 2 * time.Second })
		h.runtime.update(func() { h.runtime.readsFirst = true })
		time.Sleep(900 * time.Millisecond)
		h.Refresh("a")
		synctest.Wait()
		h.runtime.update(func() { delete(h.runtime.pods, "a"); h.runtime.inspectDelay = 0 })
		removed := time.Now()
		time.Sleep(2 * time.Second) // relists without the pod, then the inspection ends
		synctest.Wait()
		pod, err := h.GetNewerThan(h.t.Context(), "a", removed)
		if err != nil || len(pod.Containers) > 0 {
			t.Errorf("removed at %v: got %d containers at %v, %v, want none", removed, len(pod.Containers), pod.At, err)
		}
	})
}

// Each inspection spans several relists. If every relist requested another one, inspections would never end.
func TestBUG38_SlowInspections(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectDelay = 2500 * time.Millisecond })
		h.runtime.setPod("stays", observed.Running)
		h.runtime.setPod("goes", observed.Running)
		time.Sleep(10 * time.Second)
		h.runtime.update(func() { delete(h.runtime.pods, "goes") })
		h.Refresh("goes")
		time.Sleep(time.Minute)
		for _, uid := range []podid.UID{"stays", "goes"} {
			if n := h.runtime.inspectionsOf(uid); n > 3 {
				t.Errorf("inspections of %s: got %d, want at most 3", uid, n)
			}
		}
		if h.stateOf("stays") != observed.Running || len(h.Get("goes").Containers) != 0 {
			t.Errorf("got stays %v, goes with %d containers, want running, 0", h.stateOf("stays"), len(h.Get("goes").Containers))
		}
	})
}

func TestPLEG15_ListedButNotInspected(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.hangingPods["a"] = true })
		h.runtime.setPod("a", observed.Running)
		h.relist()
		if pod := h.Get("a"); !pod.At.IsZero() {
			t.Errorf("listed pod: got %d containers at %v, want zero time", len(pod.Containers), pod.At)
		}
		if pod := h.Get("b"); pod.At.IsZero() {
			t.Error("unlisted pod: got zero time, want the time of the list")
		}
	})
}

func TestPLEG15_ContextEnds(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.hangingPods["a"] = true; h.runtime.hangingLists = true })
		ctx, cancel := context.WithTimeout(h.t.Context(), 3*time.Second)
		defer cancel()
		if _, err := h.GetNewerThan(ctx, "a", time.Now()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestPLEG15_InspectionError(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectErrs["a"] = errors.New("no answer") })
		time.Sleep(time.Millisecond)
		if _, err := h.GetNewerThan(h.t.Context(), "a", time.Now().Add(-time.Microsecond)); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("got %v, want the error of the inspection", err)
		}
	})
}

func TestPLEG16_OlderList(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("old", observed.Running)
		h.runtime.update(func() { h.runtime.listDelay = 500 * time.Millisecond })
		time.Sleep(1100 * time.Millisecond) // a relist has begun
		h.runtime.setPod("new", observed.Running)
		h.runtime.setPod("old", observed.Exited)
		h.Refresh("new")
		h.Refresh("old")
		h.wantChanges("new", "old")
		time.Sleep(500 * time.Millisecond) // the relist ends with the old state
		synctest.Wait()
		if h.stateOf("new") != observed.Running || h.stateOf("old") != observed.Exited {
			t.Errorf("got new %v, old %v, want running, exited", h.stateOf("new"), h.stateOf("old"))
		}
		h.wantChanges()
	})
}

func TestPLEG19_BUG39_EventsAreHints(t *testing.T) {
	run(t, newEventRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.runtime.events <- "a"
		h.wantChanges("a")
		h.runtime.events <- "a" // an event without a change
		h.wantChanges()
		for range 20 {
			h.runtime.streamFailures <- struct{}{}
			time.Sleep(2 * time.Minute)
		}
		h.runtime.setPod("a", observed.Exited)
		h.runtime.events <- "a"
		h.wantChanges("a")
	})
}

func TestPLEG19_StreamBackoff(t *testing.T) {
	run(t, func() *fakeRuntime {
		r := newEventRuntime()
		close(r.streamFailures)
		return r
	}, func(h *harness) {
		time.Sleep(time.Hour)
		if n := h.runtime.read(&h.runtime.streams); n > 100 {
			t.Errorf("got %d streams in an hour, want at most 100", n)
		}
		if err := h.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestPLEG20_F23_LostEvents(t *testing.T) {
	run(t, newEventRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		h.runtime.setPod("a", observed.Exited)
		h.changes()
		h.relist()
		h.wantChanges("a")
	})
}

func TestPLEG21_Metrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.setPod("a", observed.Running)
		h.relist()
		h.runtime.setPod("a", observed.Exited, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
		h.relist()
		want := `
# HELP kubelet_running_containers Number of containers by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} 1
kubelet_running_containers{container_state="running"} 0
kubelet_running_containers{container_state="unknown"} 0
# HELP kubelet_running_pods Number of pods with a ready sandbox.
# TYPE kubelet_running_pods gauge
kubelet_running_pods 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_running_containers", "kubelet_running_pods"); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"kubelet_pleg_relist_duration_seconds", "kubelet_pleg_relist_interval_seconds", "kubelet_pleg_last_seen_seconds"} {
			if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
				t.Errorf("%s: got %d, %v, want 1", name, n, err)
			}
		}
	}, func(c *pleg.Config) { c.Metrics = registry })
}

func TestPLEG22_BUG38_ConcurrentInspections(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectDelay = 100 * time.Millisecond; h.runtime.hangingPods["stuck"] = true })
		h.runtime.setPod("stuck", observed.Running)
		h.relist()
		for i := range 70 {
			h.runtime.setPod(podid.UID(fmt.Sprint(i)), observed.Running)
		}
		time.Sleep(2 * time.Second)
		if got := len(h.changes()); got != 70 {
			t.Errorf("got %d changes, want 70", got)
		}
		if n := h.runtime.read(&h.runtime.maxConcurrent); n != 8 {
			t.Errorf("got %d concurrent inspections, want 8", n)
		}
		if err := h.Healthy(); err != nil {
			t.Errorf("Healthy with one hanging pod: got %v, want nil", err)
		}
	})
}

func TestPLEG_ManyWaiters(t *testing.T) {
	run(t, newFakeRuntime, func(h *harness) {
		h.runtime.update(func() { h.runtime.inspectDelay = 10 * time.Millisecond })
		var waiting sync.WaitGroup
		for i := range 500 {
			uid := podid.UID(fmt.Sprint(i))
			h.runtime.setPod(uid, observed.Running)
			waiting.Go(func() {
				if pod, err := h.GetNewerThan(h.t.Context(), uid, time.Now()); err != nil || pod.UID != uid {
					t.Errorf("got %v, %v, want pod %s", pod, err, uid)
				}
			})
		}
		waiting.Wait()
	})
}

func TestConfig_Invalid(t *testing.T) {
	_, err := pleg.New(pleg.Config{RelistPeriod: -1})
	want := "pleg.Config: Runtime is required\npleg.Config: RelistPeriod must not be negative"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestStale(t *testing.T) {
	var calls atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		runtime := newFakeRuntime()
		p, err := pleg.New(pleg.Config{Runtime: runtime, OnFresh: func() { calls.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		if !p.Stale() {
			t.Error("fresh before the first relist")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = p.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		time.Sleep(time.Minute)
		if p.Stale() || calls.Load() != 1 {
			t.Errorf("got stale %t, %d calls, want one after the first relist", p.Stale(), calls.Load())
		}
		runtime.update(func() { runtime.listErr = errors.New("busy") })
		time.Sleep(20 * time.Second)
		if p.Stale() {
			t.Error("stale after 20s")
		}
		time.Sleep(20 * time.Second)
		if !p.Stale() {
			t.Error("fresh after 40s")
		}
		runtime.update(func() { runtime.listErr = nil })
		time.Sleep(2 * time.Second)
		if p.Stale() || calls.Load() != 2 {
			t.Errorf("got stale %t, %d calls, want another call", p.Stale(), calls.Load())
		}
	})
}
