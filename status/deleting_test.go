package status_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/podid"
)

func (n *node) isGone(p *v1.Pod) bool {
	synctest.Wait()
	object := n.server.Pod(podid.FullNameOf(p))
	return object == nil || object.UID != p.UID
}

// dying is a pod that ran, and whose deletion somebody asked for.
func (n *node) dying(name string) *v1.Pod {
	n.t.Helper()
	p := n.bound(name)
	n.SetPodStatus(p, runningStatus())
	synctest.Wait()
	n.server.DeletePod(podid.FullNameOf(p), 30)
	synctest.Wait()
	return n.held(p)
}

func TestSM72APodThatHasEndedIsDeletedOnceItIsFinished(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.SetPodStatus(p, succeededStatus())
		if n.shown(p).Phase != v1.PodSucceeded {
			t.Fatal("the end is not shown")
		}
		time.Sleep(time.Minute)
		if n.isGone(p) {
			t.Fatal("deleted before it was finished")
		}
		if err := n.allocations.SetPodAllocation(p); err != nil {
			t.Fatal(err)
		}
		n.faults.Forget()
		n.TerminatePod(n.held(p))
		if !n.isGone(p) {
			t.Fatal("the object is still there")
		}
		if _, known := n.GetPodStatus(p.UID); known {
			t.Fatal("SM-73: the status is still cached")
		}
		if _, granted := n.allocations.GetContainerResourceAllocation(podid.UID(p.UID), "web"); granted {
			t.Fatal("SM-86: its allocation is still there")
		}
		if deletes := n.writes("DELETE"); deletes != 1 {
			t.Fatalf("%d deletions", deletes)
		}
	})
}

func TestSM72APodIsDeletedWhateverComesLast(t *testing.T) {
	steps := map[string]struct{ finishes, isDeleted, isReleased, stopped bool }{
		"its end":                 {isDeleted: true, isReleased: true, stopped: true},
		"its deletion":            {finishes: true, isReleased: true, stopped: true},
		"the clean-up":            {finishes: true, isDeleted: true, stopped: true},
		"its containers stopping": {finishes: true, isDeleted: true, isReleased: true},
	}
	for last, before := range steps {
		t.Run(last, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.bound("web")
				n.SetPodStatus(p, runningStatus())
				n.cleanup.setHeld(p.UID, !before.isReleased)
				n.cleanup.setRunning(p.UID, !before.stopped)
				finish := func() { n.TerminatePod(n.held(p)) }
				remove := func() { n.server.DeletePod(podid.FullNameOf(p), 30); synctest.Wait() }
				if before.isDeleted {
					remove()
				}
				if before.finishes {
					finish()
				}
				time.Sleep(time.Minute)
				if n.isGone(p) {
					t.Fatalf("deleted before %s", last)
				}
				if !before.isDeleted {
					remove()
				}
				if !before.finishes {
					finish()
				}
				n.cleanup.setHeld(p.UID, false)
				n.cleanup.setRunning(p.UID, false)
				time.Sleep(10 * time.Second) // clean-up tells nobody: a full pass finds it
				if !n.isGone(p) {
					t.Fatal("the object is still there")
				}
			})
		})
	}
}

func TestI12APhaseThatSomebodyElseSetDoesNotReleaseAPodThatCouldRun(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.cleanup.setRunning(p.UID, true)
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
		synctest.Wait()
		n.TerminatePod(n.held(p))
		time.Sleep(time.Minute)
		if n.isGone(p) {
			t.Fatal("deleted while containers could run")
		}
	})
}

func TestSM73APodOfTheSameNameIsNotDeletedForTheOldOne(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.SetPodStatus(p, succeededStatus())
		synctest.Wait()
		n.faults.Add(fault.On("watch", "/pods").Stall())
		n.server.DeletePod(podid.FullNameOf(p), 0)
		successor := p.DeepCopy()
		successor.UID, successor.DeletionTimestamp, successor.DeletionGracePeriodSeconds, successor.Status = "", nil, nil, v1.PodStatus{}
		successor = n.server.AddPod(successor)
		n.faults.Forget()
		n.TerminatePod(p) // the node still believes in the old one
		time.Sleep(time.Minute)
		if got := n.server.Pod(podid.FullNameOf(p)); got == nil || got.UID != successor.UID || got.Status.Phase != v1.PodPending {
			t.Fatalf("the successor is %+v", got)
		}
		if tries := n.writes("DELETE"); tries > 1 { // 409: the UID is another
			t.Fatalf("%d deletions were tried", tries)
		}
	})
}

func TestSM73ADeletionThatComesTooLateIsNotRepeated(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.cleanup.setHeld(p.UID, true)
		n.TerminatePod(p)
		synctest.Wait()
		n.faults.Add(fault.On("watch", "/pods").Stall())
		n.server.DeletePod(podid.FullNameOf(p), 0)
		successor := n.server.AddPod(successorOf(p))
		n.faults.Forget()
		n.cleanup.setHeld(p.UID, false)
		time.Sleep(10 * time.Minute)
		if requests := n.faults.Requests().Of("*", "/pods/"); len(requests) != 1 || requests[0].Status != http.StatusConflict {
			t.Fatalf("%d requests, want one that is answered with 409", len(requests))
		}
		if _, known := n.GetPodStatus(p.UID); known || n.shown(successor).Phase != v1.PodPending {
			t.Fatalf("the old pod is known: %v; the new one shows %s", known, n.shown(successor).Phase)
		}
	})
}

func TestSM72ADeletionThatOnlyTheAnswerTellsOfCounts(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Add(fault.On("watch", "/pods").Stall())
		n.server.DeletePod(podid.FullNameOf(p), 30)
		n.TerminatePod(p) // its copy says nothing of a deletion
		time.Sleep(10 * time.Second)
		if !n.isGone(p) {
			t.Fatal("the object is still there")
		}
	})
}

func TestSM52AndSM74AFailedDeletionIsTriedAgain(t *testing.T) {
	for name, broken := range map[string]*fault.Rule{
		"refused connection": fault.On("DELETE", "/pods/").Times(3).Refuse(),
		"server error":       fault.On("DELETE", "/pods/").Times(3).Reply(http.StatusInternalServerError),
		"lost answer":        fault.On("DELETE", "/pods/").Times(1).LoseReply(),
		"an answer that is no API server's": fault.On("DELETE", "/pods/").Times(1).
			Reply(http.StatusOK, fault.Body("application/json", []byte("{}"))),
		"throttled": fault.On("DELETE", "/pods/").Times(2).Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, nil, func(t *testing.T, n *node) {
				p := n.dying("web")
				n.faults.Add(broken)
				n.TerminatePod(p)
				time.Sleep(5 * time.Second)
				if _, known := n.GetPodStatus(p.UID); !n.isGone(p) || known {
					t.Fatalf("gone from the API server %v, from the cache %v", n.isGone(p), !known)
				}
			})
		})
	}
}

func TestSM75AMirrorIsToldEverythingAndNeverDeleted(t *testing.T) { // I13
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		n.server.DeletePod(podid.FullNameOf(mirror), 30)
		synctest.Wait()
		n.SetPodStatus(static, succeededStatus())
		n.TerminatePod(static)
		time.Sleep(time.Minute)
		if got := n.shown(mirror); got.Phase != v1.PodSucceeded {
			t.Fatalf("the mirror shows %s", got.Phase)
		}
		if n.writes("DELETE") != 0 {
			t.Fatal("the status manager deleted a mirror")
		}
	})
}

func TestSM76NothingIsDeletedWhileTheNodeHoldsSomethingOfIt(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.cleanup.setHeld(p.UID, true)
		n.TerminatePod(p)
		time.Sleep(time.Hour)
		if n.isGone(p) || n.shown(p).Phase != v1.PodFailed {
			t.Fatalf("gone %v; its end must be shown and its object stay", n.isGone(p))
		}
	})
}

func TestBUG33ARejectedPodIsDeletedWithoutWaitingForAPass(t *testing.T) { // SM-77
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "no room"})
		synctest.Wait()
		n.server.DeletePod(podid.FullNameOf(p), 30)
		if n.isGone(p) { // the API server gives no grace to a pod that has failed
			return
		}
		n.TerminatePod(n.held(p))
		if !n.isGone(p) {
			t.Fatal("the object is still there")
		}
	})
}

func TestSM77ARejectedPodWhoseDeletionCameFirstIsDeletedAtOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.server.DeletePod(podid.FullNameOf(p), 30)
		synctest.Wait()
		start := time.Now()
		n.SetPodStatus(n.held(p), v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"})
		n.TerminatePod(n.held(p))
		if !n.isGone(p) || time.Since(start) != 0 {
			t.Fatalf("gone %v after %v", n.isGone(p), time.Since(start))
		}
	})
}

func TestSM80AStatusForAPodThatIsGoneIsHarmless(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.dying("web")
		n.TerminatePod(p)
		if !n.isGone(p) {
			t.Fatal("the object is still there")
		}
		n.faults.Forget()
		n.SetPodStatus(p, succeededStatus())
		n.TerminatePod(p)
		time.Sleep(time.Minute)
		if sent := len(n.faults.Requests().Of("*", "/pods/")); sent != 0 {
			t.Fatalf("I8: %d requests for a pod that we deleted", sent)
		}
		n.RemoveOrphanedStatuses(nil)
		if _, known := n.GetPodStatus(p.UID); known {
			t.Fatal("it is still cached")
		}
	})
}

func TestSM80AStatusForAPodThatOthersDeletedIsForgotten(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.DeletePod(podid.FullNameOf(p), 0)
		synctest.Wait()
		n.faults.Forget()
		n.SetPodStatus(p, succeededStatus())
		time.Sleep(time.Minute)
		if _, known := n.GetPodStatus(p.UID); known || n.writes("PATCH") > 1 {
			t.Fatalf("cached %v after %d patches; want false, at most 1", known, n.writes("PATCH"))
		}
	})
}

// TestSM93_ResizeConditions checks that a resize condition is sent with the next status, and not before.
func TestSM93_ResizeConditions(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Forget()
		uid := podid.UID(p.UID)
		n.allocations.SetPodResizeInProgressCondition(uid, derive.ResizeCondition{Generation: 1})
		n.allocations.SetPodResizePendingCondition(uid, derive.ResizeCondition{Reason: v1.PodReasonDeferred, Message: "no room", Generation: 1})
		time.Sleep(time.Minute)
		if n.writes("PATCH") != 0 {
			t.Fatal("setting a resize condition sent something")
		}
		s := runningStatus()
		s.Conditions = append(s.Conditions, n.allocations.ResizeState(uid).Conditions()...)
		n.SetPodStatus(p, s)
		got := n.shown(p)
		if conditionOf(got, v1.PodResizePending).Message != "no room" || conditionOf(got, v1.PodResizeInProgress).Status != v1.ConditionTrue {
			t.Fatalf("the API server shows %+v", got.Conditions)
		}
	})
}
