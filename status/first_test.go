package status_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

func TestBUG2OneChangeIsOneRequest(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Forget()
		n.SetPodStatus(p, runningStatus())
		if got := n.shown(p); got.Phase != v1.PodRunning || conditionOf(got, v1.PodReady).Status != v1.ConditionTrue {
			t.Fatalf("the API server shows %+v", got)
		}
		time.Sleep(time.Minute)
		if patches, gets := n.writes("PATCH"), n.writes("get"); patches != 1 || gets != 0 {
			t.Fatalf("%d patches, %d gets; want 1, 0", patches, gets)
		}
	})
}

func TestSM13AReadinessResultReachesTheAPIServerAtOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web", func(p *v1.Pod) { p.Spec.Containers[0].ReadinessProbe = &v1.Probe{} })
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.SetContainerReadiness(p.UID, observed.ContainerID{Runtime: "test", ID: "1"}, false)
		got := n.shown(p)
		if got.ContainerStatuses[0].Ready || conditionOf(got, v1.PodReady).Status != v1.ConditionFalse {
			t.Fatalf("the API server shows %+v", got)
		}
		n.SetPodStatus(n.held(p), runningStatus()) // computed before the result was known
		if got := n.shown(p); got.ContainerStatuses[0].Ready {
			t.Fatal("SM-16, BUG-7: a status computed earlier undid a probe's result")
		}
	})
}

func TestSM72APodThatHasEndedIsDeletedOnceItIsFinished(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.DeletePod(podid.FullNameOf(p), 30)
		synctest.Wait()
		n.SetPodStatus(n.held(p), succeededStatus())
		if n.shown(p).Phase != v1.PodSucceeded {
			t.Fatal("the end is not shown")
		}
		n.TerminatePod(n.held(p))
		synctest.Wait()
		if n.server.Pod(podid.FullNameOf(p)) != nil {
			t.Fatal("the object is still there")
		}
		if _, known := n.GetPodStatus(p.UID); known {
			t.Fatal("SM-73: the status is still cached")
		}
	})
}

func TestF31DriftIsRepairedAtOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("phase is %s", got.Phase)
		}
	})
}

func TestF1AnOutageLosesNothingAndTheNewestIsSentOnce(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.server.SetDown(true)
		n.faults.Forget()
		for range 5 {
			s := runningStatus()
			n.SetPodStatus(p, s)
			time.Sleep(time.Minute)
		}
		if tries := n.writes("PATCH"); tries > 100 {
			t.Fatalf("the outage was met with %d requests", tries)
		}
		n.server.SetDown(false)
		time.Sleep(30 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("phase is %s", got.Phase)
		}
	})
}

func TestF9ARequestThatLandsLateDoesNotUndoALaterOne(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		release := make(chan struct{})
		n.faults.Add(fault.On("PATCH", "/pods/web/status").Times(1).HoldUntil(release))
		n.SetPodStatus(p, runningStatus())
		time.Sleep(20 * time.Second) // the client has given up by now
		n.SetPodStatus(p, succeededStatus())
		time.Sleep(20 * time.Second)
		close(release)
		n.faults.Wait()
		synctest.Wait()
		if got := n.shown(p); got.Phase != v1.PodSucceeded {
			t.Fatalf("phase is %s", got.Phase)
		}
	})
}

func TestBUG8ANewMirrorGetsTheStatusAtOnceAndTheStaticPodKeepsIt(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static, mirror := n.mirrored("etcd-n1")
		n.SetPodStatus(static, runningStatus())
		if got := n.shown(mirror); got.Phase != v1.PodRunning {
			t.Fatalf("the first mirror shows %q", got.Phase)
		}
		n.server.DeletePod(podid.FullNameOf(static), 0)
		synctest.Wait()
		if got := n.shown(n.mirror(static)); got.Phase != v1.PodRunning { // SM-50
			t.Fatalf("the second mirror shows %q", got.Phase)
		}
		if _, known := n.GetPodStatus(static.UID); !known {
			t.Fatal("the static pod's status was dropped")
		}
	})
}
