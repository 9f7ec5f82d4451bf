package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
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

func TestPLEG1TheFirstListIsMadeAtOnceAndTheNextASecondAfterItEnded(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		if n := w.runtime.count(&w.runtime.lists); n != 1 {
			t.Fatalf("%d lists at the start", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := w.runtime.count(&w.runtime.lists); n != 6 {
			t.Errorf("%d lists after 5 s", n)
		}
	})
}

func TestPLEG2AFailedListChangesNothing(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		w.wantChanges("a")
		w.runtime.set(func() { w.runtime.listErr = errors.New("busy"); clear(w.runtime.pods) })
		w.tick()
		if w.stateOf("a") != observed.Running {
			t.Error("a hiccup of the runtime looks like death")
		}
		w.wantChanges()
	})
}

func TestPLEG3WhatIsAChange(t *testing.T) {
	running := func(r *runtime) { r.has("a", observed.Running) }
	tests := map[string]struct {
		before, after func(*runtime)
		changed       bool
	}{
		"nothing happened":         {running, running, false},
		"PLEG-3 it died":           {running, func(r *runtime) { r.has("a", observed.Exited) }, true},
		"PLEG-3 it is not known":   {running, func(r *runtime) { r.has("a", observed.Unknown) }, true},
		"PLEG-3 created":           {func(*runtime) {}, func(r *runtime) { r.has("a", observed.Created) }, true},
		"PLEG-3 gone while it ran": {running, func(r *runtime) { r.set(func() { delete(r.pods, "a") }) }, true},
		"PLEG-4 the sandbox died": {running, func(r *runtime) {
			r.has("a", observed.Running, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
		}, true},
		"PLEG-17 removed after its end": {
			func(r *runtime) { r.has("a", observed.Exited, func(p *observed.Pod) { p.Sandboxes[0].Ready = false }) },
			func(r *runtime) { r.set(func() { delete(r.pods, "a") }) }, false,
		},
		"PLEG-12 died and replaced within one period": {running, func(r *runtime) {
			r.has("a", observed.Running, func(p *observed.Pod) { p.Containers[0].ID.ID = "its successor" })
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			within(t, newRuntime, func(w *world) {
				test.before(w.runtime)
				w.tick()
				w.changes()
				test.after(w.runtime)
				w.tick()
				if got := len(w.changes()) > 0; got != test.changed {
					t.Errorf("changed: %v, want %v", got, test.changed)
				}
				if got, held := w.Get("a"), w.runtime.pods["a"]; held != nil && !cmp.Equal(got.Containers, held.Containers) {
					t.Errorf("known is %v", got)
				}
			})
		})
	}
}

func TestPLEG5NobodyHearsOfAChangeBeforeItsData(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.takes = 300 * time.Millisecond })
		w.runtime.has("a", observed.Running)
		time.Sleep(1100 * time.Millisecond) // the list is made, the inspection is under way
		w.wantChanges()
		time.Sleep(300 * time.Millisecond)
		w.wantChanges("a")
		if w.stateOf("a") != observed.Running {
			t.Error("told before it was known")
		}
	})
}

func TestPLEG6AFailedInspectionIsRepeatedAndNoDeathIsLost(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		w.changes()
		w.runtime.has("a", observed.Exited)
		w.runtime.set(func() { w.runtime.failing["a"] = errors.New("no answer") })
		w.tick()
		w.wantChanges()
		if w.stateOf("a") != observed.Running {
			t.Error("the last known state does not stand")
		}
		w.runtime.set(func() { delete(w.runtime.failing, "a") })
		w.tick()
		w.wantChanges("a")
	})
}

func TestPLEG7APodThatVanishedIsForgotten(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		w.runtime.set(func() { delete(w.runtime.pods, "a") })
		w.tick()
		if pod := w.Get("a"); len(pod.Containers)+len(pod.Sandboxes) > 0 {
			t.Errorf("still known: %v", pod)
		}
	})
}

func TestPLEG8AndBUG28ASlowConsumerLosesNothing(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		const pods = 3000
		for _, state := range []observed.State{observed.Running, observed.Exited} {
			for i := range pods {
				w.runtime.has(podid.UID(fmt.Sprint(i)), state)
			}
			w.tick()
		}
		if got := w.changes(); len(got) != pods {
			t.Errorf("%d pods changed, want %d", len(got), pods)
		}
	})
}

func TestPLEG9AndPLEG15WhoWaitsForAPodThatIsNotThereIsAnswered(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		began := time.Now()
		pod, err := w.GetNewerThan(w.t.Context(), "unknown", began.Add(-time.Second))
		if err != nil || pod == nil || len(pod.Containers) > 0 {
			t.Errorf("%v, %v", pod, err)
		}
	})
}

func TestPLEG10APodThatEndedKeepsItsAddresses(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running, func(p *observed.Pod) { p.IPs = addresses })
		w.tick()
		w.runtime.has("a", observed.Exited, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
		w.tick()
		if got := w.Get("a").IPs; len(got) != 1 || got[0] != addresses[0] {
			t.Errorf("addresses: %v", got)
		}
		w.runtime.has("a", observed.Running, func(p *observed.Pod) { p.Sandboxes[0].ID = "new" }) // a new one has none yet
		w.tick()
		if got := w.Get("a").IPs; len(got) != 0 {
			t.Errorf("a new sandbox shows the old one's addresses: %v", got)
		}
	})
}

func TestPLEG11AHungRuntimeIsNoticedAndSurvived(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		if err := w.Healthy(); err != nil {
			t.Fatal(err)
		}
		w.runtime.set(func() { w.runtime.hung = true })
		time.Sleep(2 * time.Minute)
		if err := w.Healthy(); err != nil {
			t.Errorf("after 2 min: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := w.Healthy(); err == nil || !strings.Contains(err.Error(), "last heard of 4m0s ago") {
			t.Errorf("after 4 min: %v", err)
		}
		w.runtime.set(func() { w.runtime.hung = false })
		w.runtime.has("a", observed.Running)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if err := w.Healthy(); err != nil || w.stateOf("a") != observed.Running {
			t.Errorf("it is back: %v, %v", err, w.stateOf("a"))
		}
	})
}

func TestPLEG11BeforeTheFirstListNothingIsHealthy(t *testing.T) {
	p, err := pleg.New(pleg.Config{Runtime: newRuntime()})
	if err != nil {
		t.Fatal(err)
	}
	if p.Healthy() == nil {
		t.Error("healthy before the runtime was heard of")
	}
	if pods, at := p.Pods(); len(pods) > 0 || !at.IsZero() {
		t.Errorf("a list before the first one: %v, %v", pods, at)
	}
}

func TestPLEG13ARefreshShowsWhatNoListTells(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		limit := int64(500)
		w.runtime.has("a", observed.Running, func(p *observed.Pod) {
			p.Containers[0].Resources = &observed.Resources{MilliCPULimit: &limit}
		})
		w.tick()
		if w.Get("a").Containers[0].Resources != nil {
			t.Fatal("a list tells of resources")
		}
		w.Refresh("a")
		synctest.Wait()
		if got := w.Get("a").Containers[0].Resources; got == nil || *got.MilliCPULimit != limit {
			t.Errorf("resources: %v", got)
		}
	})
}

func TestPLEG14AndBUG27NobodyWaitsForTheNextTick(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		time.Sleep(100 * time.Millisecond)
		w.runtime.has("a", observed.Running)
		asked := time.Now()
		time.Sleep(time.Millisecond)
		pod, err := w.GetNewerThan(w.t.Context(), "a", asked)
		if err != nil || len(pod.Containers) != 1 {
			t.Fatalf("%v, %v", pod, err)
		}
		if waited := time.Since(asked); waited > time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		w.wantChanges("a")
	})
}

func TestPLEG14ManyRequestsAreOneLook(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.takes = 10 * time.Millisecond })
		for range 1000 {
			w.Refresh("a")
		}
		time.Sleep(100 * time.Millisecond)
		if n := w.runtime.inspections("a"); n > 2 {
			t.Errorf("%d inspections", n)
		}
	})
}

// A look that had begun before somebody asked may have missed what the question is about.
func TestPLEG15AnAnswerIsNeverOlderThanTheQuestion(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.takes = 400 * time.Millisecond })
		w.Refresh("a")
		time.Sleep(100 * time.Millisecond)
		asked := time.Now()
		pod, err := w.GetNewerThan(w.t.Context(), "a", asked)
		if err != nil || !pod.At.After(asked) {
			t.Errorf("asked at %v, answered with %v, %v", asked, pod.At, err)
		}
	})
}

// A look that began before a list and ends after it may show what the list no longer found.
func TestPLEG15AnAnswerIsNeverOlderThanAListThatDidNotShowThePod(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		w.runtime.set(func() { w.runtime.takes = 2 * time.Second })
		w.runtime.set(func() { w.runtime.looksFirst = true })
		time.Sleep(900 * time.Millisecond)
		w.Refresh("a")
		synctest.Wait()
		w.runtime.set(func() { delete(w.runtime.pods, "a"); w.runtime.takes = 0 })
		gone := time.Now()
		time.Sleep(2 * time.Second) // meanwhile there were lists without it, and now the look ends
		synctest.Wait()
		pod, err := w.GetNewerThan(w.t.Context(), "a", gone)
		if err != nil || len(pod.Containers) > 0 {
			t.Errorf("it is gone since %v, and at %v it has %d containers, %v", gone, pod.At, len(pod.Containers), err)
		}
	})
}

// Every look lasts from one list to the next, and a pod that needed another for each list that it met would never be left alone.
func TestBUG38ARuntimeThatIsSlowToInspectIsNotAskedAgainAndAgain(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.takes = 2500 * time.Millisecond })
		w.runtime.has("stays", observed.Running)
		w.runtime.has("goes", observed.Running)
		time.Sleep(10 * time.Second)
		w.runtime.set(func() { delete(w.runtime.pods, "goes") })
		w.Refresh("goes")
		time.Sleep(time.Minute)
		for _, uid := range []podid.UID{"stays", "goes"} {
			if n := w.runtime.inspections(uid); n > 3 {
				t.Errorf("%s was inspected %d times", uid, n)
			}
		}
		if w.stateOf("stays") != observed.Running || len(w.Get("goes").Containers) != 0 {
			t.Errorf("what stays is %v, and what went has %d containers", w.stateOf("stays"), len(w.Get("goes").Containers))
		}
	})
}

func TestPLEG15WhatNobodyHasLookedAtIsNotSaidToBeEmpty(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.hanging["a"] = true })
		w.runtime.has("a", observed.Running)
		w.tick()
		if pod := w.Get("a"); !pod.At.IsZero() {
			t.Errorf("a list shows it, nobody has inspected it, and at %v it has %d containers", pod.At, len(pod.Containers))
		}
		if pod := w.Get("b"); pod.At.IsZero() {
			t.Error("no list shows it, and nobody is said to have looked")
		}
	})
}

func TestPLEG15WaitingEndsWithItsContext(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.hanging["a"] = true; w.runtime.hung = true })
		ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
		defer cancel()
		if _, err := w.GetNewerThan(ctx, "a", time.Now()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestPLEG15ARuntimeThatCannotTellIsAnError(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.failing["a"] = errors.New("no answer") })
		time.Sleep(time.Millisecond)
		if _, err := w.GetNewerThan(w.t.Context(), "a", time.Now().Add(-time.Microsecond)); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestPLEG16AListThatIsOlderThanAnInspectionChangesNothing(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.has("old", observed.Running)
		w.runtime.set(func() { w.runtime.listTakes = 500 * time.Millisecond })
		time.Sleep(1100 * time.Millisecond) // a list has begun
		w.runtime.has("new", observed.Running)
		w.runtime.has("old", observed.Exited)
		w.Refresh("new")
		w.Refresh("old")
		w.wantChanges("new", "old")
		time.Sleep(500 * time.Millisecond) // the list is there, without them
		synctest.Wait()
		if w.stateOf("new") != observed.Running || w.stateOf("old") != observed.Exited {
			t.Errorf("new is %v, old is %v", w.stateOf("new"), w.stateOf("old"))
		}
		w.wantChanges()
	})
}

func TestPLEG19AndBUG39EventsAreHints(t *testing.T) {
	within(t, func() *runtime {
		r := newRuntime()
		r.events, r.broken = make(chan podid.UID), make(chan struct{})
		return r
	}, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.runtime.events <- "a"
		w.wantChanges("a")
		w.runtime.events <- "a" // again, and nothing happened
		w.wantChanges()
		for range 20 {
			w.runtime.broken <- struct{}{}
			time.Sleep(2 * time.Minute)
		}
		w.runtime.has("a", observed.Exited)
		w.runtime.events <- "a"
		w.wantChanges("a")
	})
}

func TestPLEG19AStreamThatKeepsBreakingIsOpenedLessOften(t *testing.T) {
	within(t, func() *runtime {
		r := newRuntime()
		r.events, r.broken = make(chan podid.UID), make(chan struct{})
		close(r.broken)
		return r
	}, func(w *world) {
		time.Sleep(time.Hour)
		if n := w.runtime.count(&w.runtime.streams); n > 100 {
			t.Errorf("%d streams in an hour", n)
		}
		if err := w.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestPLEG20AndF23EventsThatAreLostAreMadeUpForByTheNextList(t *testing.T) {
	within(t, func() *runtime {
		r := newRuntime()
		r.events = make(chan podid.UID)
		return r
	}, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		w.runtime.has("a", observed.Exited)
		w.changes()
		w.tick()
		w.wantChanges("a")
	})
}

func TestPLEG21NumbersFollowWhatThereIs(t *testing.T) {
	registry := prometheus.NewRegistry()
	within(t, newRuntime, func(w *world) {
		w.runtime.has("a", observed.Running)
		w.tick()
		w.runtime.has("a", observed.Exited, func(p *observed.Pod) { p.Sandboxes[0].Ready = false })
		w.tick()
		want := `
# HELP kubelet_running_containers Containers by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} 1
kubelet_running_containers{container_state="running"} 0
kubelet_running_containers{container_state="unknown"} 0
# HELP kubelet_running_pods Pods with a ready sandbox.
# TYPE kubelet_running_pods gauge
kubelet_running_pods 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_running_containers", "kubelet_running_pods"); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"kubelet_pleg_relist_duration_seconds", "kubelet_pleg_relist_interval_seconds", "kubelet_pleg_last_seen_seconds"} {
			if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
	}, func(c *pleg.Config) { c.Metrics = registry })
}

func TestPLEG22AndBUG38InspectionsAreParallelAndBoundedAndOneThatHangsHoldsUpNobody(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.takes = 100 * time.Millisecond; w.runtime.hanging["stuck"] = true })
		w.runtime.has("stuck", observed.Running)
		w.tick()
		for i := range 70 {
			w.runtime.has(podid.UID(fmt.Sprint(i)), observed.Running)
		}
		time.Sleep(2 * time.Second)
		if got := len(w.changes()); got != 70 {
			t.Errorf("%d pods are known", got)
		}
		if n := w.runtime.count(&w.runtime.busiest); n != 8 {
			t.Errorf("%d inspections at a time", n)
		}
		if err := w.Healthy(); err != nil {
			t.Errorf("one slow pod: %v", err)
		}
	})
}

func TestManyWaitersAreEachWokenByTheirPod(t *testing.T) {
	within(t, newRuntime, func(w *world) {
		w.runtime.set(func() { w.runtime.takes = 10 * time.Millisecond })
		var waiting sync.WaitGroup
		for i := range 500 {
			uid := podid.UID(fmt.Sprint(i))
			w.runtime.has(uid, observed.Running)
			waiting.Go(func() {
				if pod, err := w.GetNewerThan(w.t.Context(), uid, time.Now()); err != nil || pod.UID != uid {
					t.Errorf("%v, %v", pod, err)
				}
			})
		}
		waiting.Wait()
	})
}

func TestTheConfigErrorNamesTheField(t *testing.T) {
	if _, err := pleg.New(pleg.Config{RelistPeriod: -1}); err == nil ||
		!strings.Contains(err.Error(), "Runtime is required") || !strings.Contains(err.Error(), "must not be negative") {
		t.Errorf("the error is %v", err)
	}
}
