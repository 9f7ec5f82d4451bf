package fault_test

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heraldnode/herald/heraldtest/fault"
)

func TestTheTraceTellsWhatWasAskedAndWhatCameOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults.Add(fault.On("GET", "").Delay(time.Second))
		w.faults.Add(fault.On("PATCH", "").Reply(http.StatusConflict))
		w.faults.Add(fault.On("DELETE", "").LoseReply())
		start := time.Now()
		w.try(http.MethodGet, pods+"?limit=5")
		w.try(http.MethodPatch, status)
		w.try(http.MethodDelete, pod)

		later := start.Add(time.Second)
		want := fault.Trace{
			{
				Method: "GET", Verb: "list", Path: pods, Query: "limit=5", Start: start, End: later, Status: 200,
				Forwarded: []fault.Forwarded{{Start: later, End: later, Status: 200}},
			},
			{Method: "PATCH", Verb: "patch", Path: status, Start: later, End: later, Status: 409},
			{
				Method: "DELETE", Verb: "delete", Path: pod, Start: later, End: later, Err: syscall.ECONNRESET,
				Forwarded: []fault.Forwarded{{Start: later, End: later, Status: 200}},
			},
		}
		if diff := cmp.Diff(want, w.faults.Requests(), cmpopts.IgnoreUnexported(fault.Request{}), cmpopts.EquateErrors()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestI8TheTraceShowsHowManyRequestsWereOpenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults.Add(fault.On("PATCH", "/pods/slow/").Delay(time.Second))
		patch := func(name string) { w.try(http.MethodPatch, pods+"/"+name+"/status") }

		var clients sync.WaitGroup
		clients.Go(func() { patch("slow") })
		clients.Go(func() { patch("slow") })
		synctest.Wait()
		for range 3 {
			patch("quick")
		}
		clients.Wait()
		w.try(http.MethodGet, pod)

		patches := w.faults.Requests().Filter("patch", "/status$")
		if len(patches) != 5 || patches.MaxInFlight() != 3 {
			t.Fatalf("%d patches, %d at once; want 5 and 3", len(patches), patches.MaxInFlight())
		}
		most := map[string]int{}
		for path, requests := range patches.ByPath() {
			most[path] = requests.MaxInFlight()
		}
		want := map[string]int{pods + "/slow/status": 2, pods + "/quick/status": 1}
		if diff := cmp.Diff(want, most); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestAnOpenWatchIsARequestWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stream := w.watch(t.Context(), pods)
		watch := w.faults.Requests().Filter("watch", "")
		if len(watch) != 1 || !watch[0].End.IsZero() || watch[0].Status != http.StatusOK || watch.MaxInFlight() != 1 {
			t.Fatalf("open: %+v", watch)
		}
		stream.Close()
		if watch := w.faults.Requests(); watch[0].End.IsZero() || watch[0].Err != nil {
			t.Fatalf("closed: %+v", watch)
		}
	})
}

func TestTheTraceIsBoundedAndCanBeForgotten(t *testing.T) {
	w := newWorld(t)
	w.faults.Add(fault.On("*", "").Reset())
	for i := range 1<<16 + 3 {
		if _, err := w.get(fmt.Sprintf("/%d", i)); err == nil {
			t.Fatal("not reset")
		}
	}
	requests := w.faults.Requests()
	if len(requests) != 1<<16 || requests[0].Path != "/3" {
		t.Fatalf("%d requests, the oldest %s", len(requests), requests[0].Path)
	}
	w.faults.ClearRequests()
	if requests := w.faults.Requests(); len(requests) != 0 {
		t.Fatalf("%d requests after forgetting", len(requests))
	}
}

func TestRulesComeAndGoWhileRequestsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var clients sync.WaitGroup
		for i := range 10 {
			clients.Go(func() {
				for range 20 {
					w.try(http.MethodGet, fmt.Sprintf("%s/%d", pods, i))
				}
			})
			clients.Go(func() {
				for range 20 {
					w.watch(t.Context(), pods).Close()
				}
			})
		}
		for range 50 {
			remove := w.faults.Add(fault.On("GET", "").Probability(0.5, 1).Delay(time.Millisecond))
			heal := w.faults.Add(fault.On("GET", "").Probability(0.5, 1).Stall())
			w.faults.Add(fault.On("watch", "").Times(1).Cut())
			time.Sleep(time.Millisecond)
			remove()
			heal()
		}
		clients.Wait()
		for _, request := range w.faults.Requests() {
			if request.End.IsZero() {
				t.Fatalf("still open: %+v", request)
			}
		}
	})
}
