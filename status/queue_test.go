package status_test

import (
	"context"
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

// unreadyStatus is the status of a pod whose one container runs and is not ready.
func unreadyStatus() v1.PodStatus {
	s := runningStatus()
	s.ContainerStatuses[0].Ready = false
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == v1.PodReady || c.Type == v1.ContainersReady {
			c.Status, c.Reason = v1.ConditionFalse, "ContainersNotReady"
		}
	}
	return s
}

// markDeleted is what a deletion does to a pod that has ended, when something else still holds the object.
func markDeleted(p *v1.Pod) {
	now := metav1.Now()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, new(int64(30))
}

func oneWorker(c *status.Config) { c.Workers = 1 }

func TestBUG3TheUrgentOvertakeAndWithinAClassTheFirstComesFirst(t *testing.T) {
	onNode(t, oneWorker, func(t *testing.T, n *node) {
		names := []string{"busy", "noise", "first-run", "readiness", "end"}
		pods := map[string]*v1.Pod{}
		for _, name := range names {
			pods[name] = n.bound(name)
			if name != "first-run" {
				n.SetPodStatus(pods[name], runningStatus())
			}
		}
		pods["released"] = n.dying("released")
		n.SetPodStatus(pods["released"], succeededStatus())
		pods["finished"] = n.bound("finished")
		n.TerminatePod(pods["finished"])
		synctest.Wait()
		n.faults.Add(fault.On("*", "/pods/").Delay(50 * time.Millisecond))
		n.faults.Forget()
		n.SetPodStatus(pods["busy"], withReason("keeps the worker busy"))
		time.Sleep(time.Millisecond)
		pending := unreadyStatus()
		pending.Reason = "first"
		for _, late := range []func(){
			func() { n.SetPodStatus(pods["noise"], withReason("noise")) },
			func() { n.SetPodStatus(pods["first-run"], pending) },
			func() { n.SetPodStatus(pods["readiness"], unreadyStatus()) },
			func() { n.SetPodStatus(pods["end"], succeededStatus()) },
			func() { n.TerminatePod(n.held(pods["released"])) },
			func() { n.server.UpdatePod(podid.FullNameOf(pods["finished"]), markDeleted) },
		} {
			late()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		want := []string{"busy", "end", "released", "readiness", "first-run", "noise"}
		if got := n.patched(); !slices.Equal(got, want) {
			t.Fatalf("sent in the order %q, want %q", got, want)
		}
		requests := n.faults.Requests()
		readiness := requests.Of("PATCH", "/pods/readiness/")[0].Start
		for _, name := range []string{"released", "finished"} {
			if deletions := requests.Of("DELETE", "/pods/"+name); len(deletions) != 1 || deletions[0].Start.After(readiness) {
				t.Fatalf("%s: %d deletions; want one, before less urgent things", name, len(deletions))
			}
		}
	})
}

func TestBUG3APodThatWaitsBecomesUrgentWithItsNewestChange(t *testing.T) {
	onNode(t, oneWorker, func(t *testing.T, n *node) {
		busy, noise, end := n.bound("busy"), n.bound("noise"), n.bound("end")
		for _, p := range []*v1.Pod{busy, noise, end} {
			n.SetPodStatus(p, runningStatus())
		}
		synctest.Wait()
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		n.faults.Forget()
		for _, p := range []*v1.Pod{busy, noise, end} {
			n.SetPodStatus(p, withReason("noise"))
			time.Sleep(time.Millisecond)
		}
		n.SetPodStatus(end, succeededStatus())
		n.SetPodStatus(end, func() v1.PodStatus { s := succeededStatus(); s.Reason = "less urgent news"; return s }())
		time.Sleep(time.Second)
		if got, want := n.patched(), []string{"busy", "end", "noise"}; !slices.Equal(got, want) {
			t.Fatalf("sent in the order %q, want %q", got, want)
		}
	})
}

func TestBUG3WhatNobodyWaitsForLeavesTheServerRoomForWhatIsUrgent(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		pods := n.boundMany(200)
		for _, p := range pods {
			n.SetPodStatus(p, runningStatus())
		}
		synctest.Wait()
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		for round, change := range []v1.PodStatus{withReason("noise"), unreadyStatus()} {
			n.faults.Forget()
			for _, p := range pods {
				n.SetPodStatus(p, change)
			}
			time.Sleep(10 * time.Second)
			if most, want := n.faults.Requests().Of("PATCH", "/pods/").MaxInFlight(), []int{4, 16}[round]; most != want {
				t.Errorf("round %d: %d requests in flight, want %d", round, most, want)
			}
		}
	})
}

func TestBUG3NothingStarves(t *testing.T) {
	onNode(t, oneWorker, func(t *testing.T, n *node) {
		quiet, flappers := n.bound("quiet"), n.boundMany(20)
		n.SetPodStatus(quiet, runningStatus())
		synctest.Wait()
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(50 * time.Millisecond))
		n.SetPodStatus(quiet, withReason("a word"))
		flap := 0
		for range 200 { // readiness flips of others, twice as fast as they can be sent
			for range 4 {
				p := flappers[flap%len(flappers)]
				flap++
				n.SetPodStatus(p, []v1.PodStatus{runningStatus(), unreadyStatus()}[flap/len(flappers)%2])
			}
			time.Sleep(100 * time.Millisecond)
			if n.shown(quiet).Reason == "a word" {
				return
			}
		}
		t.Fatal("a word was not told in 20 s")
	})
}

func TestSM52AndI14NothingIsRememberedOfPodsThatAreGone(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		n.faults.Add(fault.On("*", "/pods/").Chance(0.2, 3).Reply(500))
		for i := range 100 {
			p := n.bound(fmt.Sprintf("web-%d", i))
			n.SetPodStatus(p, runningStatus())
			n.SetContainerReadiness(p.UID, containerID("1"), false)
			if err := n.allocations.SetPodAllocation(p); err != nil {
				t.Fatal(err)
			}
			switch i % 3 {
			case 0: // an ordinary end
				n.server.DeletePod(podid.FullNameOf(p), 30)
				synctest.Wait()
				n.TerminatePod(n.held(p))
			case 1: // by force, while there is something to say
				n.server.DeletePod(podid.FullNameOf(p), 0)
				n.SetPodStatus(p, succeededStatus())
			case 2: // a stranger's
				n.server.DeletePod(podid.FullNameOf(p), 0)
				synctest.Wait()
				n.Reconcile(p)
			}
		}
		time.Sleep(time.Minute)
		n.RemoveOrphanedStatuses(nil)
		time.Sleep(15 * time.Minute)
		if left := n.Size(); len(left) > 0 {
			t.Fatalf("still remembered: %v", left)
		}
	})
}

func TestI14APodWithoutAStatusIsNotRememberedForBeingSeen(t *testing.T) {
	m, err := status.New(status.Config{API: &guard{}, Pods: pod.NewManager(), Deletion: newCleanup()}) // never run
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		p, _ := threeContainers(types.UID(fmt.Sprint(i)))
		m.Reconcile(p)
	}
	if left := m.Size(); len(left) > 0 {
		t.Fatalf("remembered: %v", left)
	}
}

func TestI14AManagerThatHasEndedCollectsNoWishes(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		n.stop()
		n.SetPodStatus(p, succeededStatus())
		n.Reconcile(p)
		if got, _ := n.GetPodStatus(p.UID); got.Phase != v1.PodSucceeded {
			t.Fatalf("after its end the manager says %s", got.Phase)
		}
		if size := n.Size(); size["wanted"] != 0 || size["waiting"] != 0 {
			t.Fatalf("remembered: %v", size)
		}
	})
}

func TestI14ASubscriberThatStopsReadingCostsNoMoreThanThePodsThereAre(t *testing.T) {
	onNode(t, func(c *status.Config) { c.API = nil }, func(t *testing.T, n *node) {
		known, gone, comes := n.bound("known"), n.bound("gone"), n.bound("comes")
		n.SetPodStatus(known, withReason("before"))
		n.SetPodStatus(gone, withReason("before"))
		changes := n.Changes(t.Context())
		keep := map[types.UID]bool{known.UID: true, comes.UID: true}
		for i := range 5000 {
			n.SetPodStatus(known, withReason("%d", i))
			n.SetPodStatus(comes, withReason("%d", i))
			passing, s := threeContainers(types.UID(fmt.Sprint("passing-", i)))
			n.SetPodStatus(passing, s)
			n.RemoveOrphanedStatuses(keep)
		}
		var unread int
		told := map[podid.UID]status.Change{}
		for c := range changes {
			if before, again := told[c.UID]; again {
				c.First = before.First
			}
			unread, told[c.UID] = unread+1, c
			if newest := told[podid.UID(comes.UID)].Status; newest != nil && newest.Reason == "4999" {
				break
			}
		}
		if unread > 2000 {
			t.Errorf("%d changes were kept for it", unread)
		}
		if c := told[podid.UID(known.UID)]; c.First || c.Removed || c.Status.Reason != "4999" {
			t.Errorf("it heard of the pod that it knew: %+v", c)
		}
		if c := told[podid.UID(gone.UID)]; !c.Removed {
			t.Errorf("it heard of the pod that went: %+v", c)
		}
		if c := told[podid.UID(comes.UID)]; !c.First {
			t.Errorf("it heard of the pod that came: %+v", c)
		}
	})
}

func TestI14ASubscriberThatNeverReadsIsForgottenWithItsContext(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		ctx, cancel := context.WithCancel(t.Context())
		n.Changes(ctx)
		cancel()
		synctest.Wait()
		if size := n.Size(); size["subscribers"] != 0 {
			t.Fatalf("remembered: %v", size)
		}
	})
}
