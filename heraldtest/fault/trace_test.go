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

func TestInjector_Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.faults.Add(fault.On("GET", "").Delay(time.Second))
		h.faults.Add(fault.On("PATCH", "").Reply(http.StatusConflict))
		h.faults.Add(fault.On("DELETE", "").LoseReply())
		start := time.Now()
		h.try(http.MethodGet, pods+"?limit=5")
		h.try(http.MethodPatch, status)
		h.try(http.MethodDelete, pod)

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
		if diff := cmp.Diff(want, h.faults.Requests(), cmpopts.IgnoreUnexported(fault.Request{}), cmpopts.EquateErrors()); diff != "" {
			t.Fatalf("requests (-want +got):\n%s", diff)
		}
	})
}

func TestI8_MaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.faults.Add(fault.On("PATCH", "/pods/slow/").Delay(time.Second))
		patch := func(name string) { h.try(http.MethodPatch, pods+"/"+name+"/status") }

		var clients sync.WaitGroup
		clients.Go(func() { patch("slow") })
		clients.Go(func() { patch("slow") })
		synctest.Wait()
		for range 3 {
			patch("quick")
		}
		clients.Wait()
		h.try(http.MethodGet, pod)

		patches := h.faults.Requests().Filter("patch", "/status$")
		if len(patches) != 5 || patches.MaxInFlight() != 3 {
			t.Fatalf("got %d patches, %d in flight, want 5, 3", len(patches), patches.MaxInFlight())
		}
		most := map[string]int{}
		for path, requests := range patches.ByPath() {
			most[path] = requests.MaxInFlight()
		}
		want := map[string]int{pods + "/slow/status": 2, pods + "/quick/status": 1}
		if diff := cmp.Diff(want, most); diff != "" {
			t.Fatalf("in flight by path (-want +got):\n%s", diff)
		}
	})
}

func TestTrace_OpenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stream := h.watch(t.Context(), pods)
		watch := h.faults.Requests().Filter("watch", "")
		if len(watch) != 1 || !watch[0].End.IsZero() || watch[0].Status != http.StatusOK || watch.MaxInFlight() != 1 {
			t.Fatalf("open watch: got %+v", watch)
		}
		stream.Close()
		if watch := h.faults.Requests(); watch[0].End.IsZero() || watch[0].Err != nil {
			t.Fatalf("closed watch: got %+v", watch)
		}
	})
}

func TestInjector_ClearRequests(t *testing.T) {
	h := newHarness(t)
	h.faults.Add(fault.On("*", "").Reset())
	for i := range 1<<16 + 3 {
		if _, err := h.get(fmt.Sprintf("/%d", i)); err == nil {
			t.Fatal("request was not reset")
		}
	}
	requests := h.faults.Requests()
	if len(requests) != 1<<16 || requests[0].Path != "/3" {
		t.Fatalf("got %d requests, the oldest %s", len(requests), requests[0].Path)
	}
	h.faults.ClearRequests()
	if requests := h.faults.Requests(); len(requests) != 0 {
		t.Fatalf("got %d requests after ClearRequests, want 0", len(requests))
	}
}

func TestInjector_ConcurrentRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		var clients sync.WaitGroup
		for i := range 10 {
			clients.Go(func() {
				for range 20 {
					h.try(http.MethodGet, fmt.Sprintf("%s/%d", pods, i))
				}
			})
			clients.Go(func() {
				for range 20 {
					h.watch(t.Context(), pods).Close()
				}
			})
		}
		for range 50 {
			removeDelay := h.faults.Add(fault.On("GET", "").Probability(0.5, 1).Delay(time.Millisecond))
			removeStall := h.faults.Add(fault.On("GET", "").Probability(0.5, 1).Stall())
			h.faults.Add(fault.On("watch", "").Times(1).Cut())
			time.Sleep(time.Millisecond)
			removeDelay()
			removeStall()
		}
		clients.Wait()
		for _, request := range h.faults.Requests() {
			if request.End.IsZero() {
				t.Fatalf("request is still open: %+v", request)
			}
		}
	})
}
