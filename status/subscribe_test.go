package status_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestSM36_EverySubscriberInOrder(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		fast, slow := collectChanges(t, h), h.Changes(t.Context()) // slow is read later
		var setters sync.WaitGroup
		const pods, updates = 5, 20
		for i := range pods {
			pod := h.addPod(fmt.Sprintf("web-%d", i))
			setters.Go(func() {
				for update := range updates {
					h.SetPodStatus(pod, runningWithMessage(fmt.Sprint(update)))
				}
			})
		}
		setters.Wait()
		synctest.Wait()
		var late []status.Change
		for change := range slow {
			if late = append(late, change); len(late) == pods*updates {
				break
			}
		}
		for name, changes := range map[string][]status.Change{"fast": fast(), "slow": late} {
			next := map[podid.UID]int{}
			for _, change := range changes {
				if want := fmt.Sprint(next[change.UID]); change.Status.Message != want {
					t.Fatalf("%s subscriber: got change %s of a pod, want %s", name, change.Status.Message, want)
				}
				next[change.UID]++
			}
			if len(changes) != pods*updates {
				t.Fatalf("%s subscriber: got %d changes, want %d", name, len(changes), pods*updates)
			}
		}
	})
}

// TestI14_StalledSubscriber checks that the memory of a subscriber that does not read is bounded by the number of pods.
func TestI14_StalledSubscriber(t *testing.T) {
	withHarness(t, func(c *status.Config) { c.API = nil }, func(t *testing.T, h *harness) {
		existing, removed, added := h.addPod("existing"), h.addPod("removed"), h.addPod("added")
		for _, pod := range []*v1.Pod{existing, removed} {
			h.SetPodStatus(pod, runningWithReason("before"))
		}
		changes := h.Changes(t.Context())
		remaining := map[types.UID]bool{existing.UID: true, added.UID: true}
		for i := range 5000 {
			h.SetPodStatus(existing, runningWithReason("%d", i))
			h.SetPodStatus(added, runningWithReason("%d", i))
			shortLived, podStatus := threeContainers(types.UID(fmt.Sprint("short-lived-", i)))
			h.SetPodStatus(shortLived, podStatus)
			h.RemoveOrphanedStatuses(remaining)
		}
		unread := 0
		newest := map[podid.UID]status.Change{}
		for change := range changes {
			if before, found := newest[change.UID]; found {
				change.First = before.First
			}
			unread, newest[change.UID] = unread+1, change
			if last := newest[podid.UID(added.UID)].Status; last != nil && last.Reason == "4999" {
				break
			}
		}
		if unread > 2000 {
			t.Errorf("got %d buffered changes, want at most 2000", unread)
		}
		if change := newest[podid.UID(existing.UID)]; change.First || change.Removed || change.Status.Reason != "4999" {
			t.Errorf("existing pod: got %+v, want the newest change", change)
		}
		if change := newest[podid.UID(removed.UID)]; !change.Removed {
			t.Errorf("removed pod: got %+v, want removed", change)
		}
		if change := newest[podid.UID(added.UID)]; !change.First {
			t.Errorf("added pod: got %+v, want first", change)
		}
	})
}

func TestI14_UnreadSubscription(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		ctx, cancel := context.WithCancel(t.Context())
		h.Changes(ctx)
		cancel()
		synctest.Wait()
		if size := h.Size(); size["subscribers"] != 0 {
			t.Fatalf("got %v, want no subscribers", size)
		}
	})
}
