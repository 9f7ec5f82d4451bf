package status_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
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

func TestSM2ChangesOfManyPodsAreSentSideBySideEachPodOnce(t *testing.T) { // BUG-1
	onNode(t, func(c *status.Config) { c.Workers = 8 }, func(t *testing.T, n *node) {
		pods := n.boundMany(40)
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(100 * time.Millisecond))
		n.faults.Forget()
		for _, message := range []string{"once", "and again"} {
			for _, p := range pods {
				s := runningStatus()
				s.Message = message
				n.SetPodStatus(p, s)
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for _, p := range pods {
			if got := n.shown(p); got.Message != "and again" {
				t.Fatalf("%s shows %q", p.Name, got.Message)
			}
		}
		patches := n.faults.Requests().Of("PATCH", "/pods/")
		if most := patches.MaxInFlight(); most != 8 {
			t.Fatalf("%d requests in flight at once, want 8", most)
		}
		for path, ofOne := range patches.ByPath() {
			if ofOne.MaxInFlight() != 1 || len(ofOne) > 2 {
				t.Fatalf("%s: %d requests, %d at once; want at most 2, 1 at once", path, len(ofOne), ofOne.MaxInFlight())
			}
		}
	})
}

// panicky breaks on one pod.
type panicky struct {
	*cleanup
	on atomic.Value // a podid.UID
}

func (p *panicky) PodCouldHaveRunningContainers(uid podid.UID) bool {
	if uid == p.on.Load() {
		panic("broken")
	}
	return p.cleanup.PodCouldHaveRunningContainers(uid)
}

func TestSM3APodThatCannotBeHandledStopsNobodyElse(t *testing.T) {
	safety := &panicky{cleanup: newCleanup()}
	onNode(t, func(c *status.Config) { c.Deletion, c.Workers = safety, 1 }, func(t *testing.T, n *node) {
		bad, good := n.bound("bad"), n.bound("good")
		safety.on.Store(podid.UID(bad.UID))
		n.SetPodStatus(bad, runningStatus())
		n.SetPodStatus(good, runningStatus())
		if got := n.shown(good); got.Phase != v1.PodRunning {
			t.Fatalf("the good pod shows %s", got.Phase)
		}
		safety.on.Store(podid.UID(""))
		time.Sleep(time.Second)
		if got := n.shown(bad); got.Phase != v1.PodRunning {
			t.Fatalf("the bad pod shows %s after it was mended", got.Phase)
		}
	})
}

func TestSM4NoConcurrentChangeWaitsForTheFullPass(t *testing.T) { // BUG-4
	onNode(t, func(c *status.Config) { c.SyncPeriod = time.Hour }, func(t *testing.T, n *node) {
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(2 * time.Millisecond))
		pods := n.boundMany(20)
		var setters sync.WaitGroup
		for _, p := range pods {
			setters.Go(func() {
				for i := range 20 {
					s := runningStatus()
					s.Message = fmt.Sprint(i)
					n.SetPodStatus(p, s)
					time.Sleep(time.Millisecond)
				}
			})
		}
		setters.Wait()
		time.Sleep(10 * time.Millisecond)
		for _, p := range pods {
			if got := n.shown(p); got.Message != "19" {
				t.Fatalf("%s shows change %s, want 19", p.Name, got.Message)
			}
		}
	})
}

func TestSM5AChangeDuringARequestIsSentRightAfterItAndOnlyTheNewest(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.faults.Add(fault.On("PATCH", "/pods/").Delay(time.Second))
		n.faults.Forget()
		for i := range 5 {
			s := runningStatus()
			s.Message = fmt.Sprint(i)
			n.SetPodStatus(p, s)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if got := n.shown(p); got.Message != "4" || n.writes("PATCH") != 2 {
			t.Fatalf("it shows change %s after %d requests; want 4, 2", got.Message, n.writes("PATCH"))
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
		if got.ContainerStatuses[0].Ready || conditionOf(got, v1.PodReady).Status != v1.ConditionFalse ||
			conditionOf(got, v1.ContainersReady).Status != v1.ConditionFalse {
			t.Fatalf("the API server shows %+v", got)
		}
		n.SetPodStatus(n.held(p), runningStatus()) // computed before the result was known
		if got := n.shown(p); got.ContainerStatuses[0].Ready {
			t.Fatal("SM-16, BUG-7: a status computed earlier undid a probe's result")
		}
	})
}

func TestSM37AndSM48ASlowAPIServerHoldsUpNoSetter(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		pods := n.boundMany(40)
		n.faults.Add(fault.On("*", "/pods/").Hang())
		start := time.Now()
		for _, p := range pods {
			n.SetPodStatus(p, runningStatus())
			n.SetContainerReadiness(p.UID, containerID("1"), false)
			n.Reconcile(p)
			n.TerminatePod(p)
			n.GetPodStatus(p.UID)
		}
		if took := time.Since(start); took != 0 {
			t.Fatalf("setters waited for %v", took)
		}
	})
}

func TestSM49AStaticPodWithoutAMirrorCausesNoRequest(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		static := staticPod("etcd-n1")
		n.book.AddPod(static)
		n.faults.Forget()
		n.SetPodStatus(static, runningStatus())
		time.Sleep(time.Minute)
		if sent := len(n.faults.Requests().Of("*", "/pods/")); sent != 0 {
			t.Fatalf("%d requests", sent)
		}
		if got, known := n.GetPodStatus(static.UID); !known || got.Phase != v1.PodRunning {
			t.Fatalf("the node says %v, %v", got.Phase, known)
		}
	})
}

func TestBUG8ANewMirrorGetsTheStatusAtOnceAndTheStaticPodKeepsIt(t *testing.T) {
	registry := prometheus.NewRegistry()
	onNode(t, countIn(registry), func(t *testing.T, n *node) {
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
		none := strings.NewReader(`
			# HELP herald_status_repairs_total Status writes that restored what another writer had changed.
			# TYPE herald_status_repairs_total counter
			herald_status_repairs_total 0
		`)
		if err := testutil.GatherAndCompare(registry, none, "herald_status_repairs_total"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSM59AMirrorThatTheWatchHasNotShownYetDoesNotCostTheStaticPodItsStatus(t *testing.T) { // BUG-8
	onNode(t, nil, func(t *testing.T, n *node) {
		static, _ := n.mirrored("etcd-n1")
		n.SetPodStatus(static, runningStatus())
		synctest.Wait()
		unstall := n.faults.Add(fault.On("watch", "/pods").Stall())
		n.server.DeletePod(podid.FullNameOf(static), 0)
		mirror := n.server.AddPod(mirrorOf(static))
		n.SetPodStatus(static, succeededStatus())
		time.Sleep(time.Minute)
		if got := n.shown(mirror); got.Phase != v1.PodPending {
			t.Fatalf("I9: the new mirror, which nobody has shown us, says %s", got.Phase)
		}
		unstall()
		if got := n.shown(mirror); got.Phase != v1.PodSucceeded {
			t.Fatalf("the new mirror shows %s", got.Phase)
		}
	})
}

func TestPM21TheMirrorOfAnEarlierManifestIsNotWrittenTo(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		old, mirror := n.mirrored("etcd-n1")
		n.SetPodStatus(old, runningStatus())
		synctest.Wait()
		edited := staticPod("etcd-n1")
		edited.UID, edited.Annotations[podid.HashAnnotation] = "static-edited", "h2"
		n.book.AddPod(edited)
		n.SetPodStatus(edited, succeededStatus())
		time.Sleep(time.Minute)
		if got := n.shown(mirror); got.Phase != v1.PodRunning {
			t.Fatalf("the old manifest's mirror shows the new pod's phase %s", got.Phase)
		}
		n.server.DeletePod(podid.FullNameOf(edited), 0)
		synctest.Wait()
		if got := n.shown(n.mirror(edited)); got.Phase != v1.PodSucceeded {
			t.Fatalf("the new manifest's mirror shows %s", got.Phase)
		}
	})
}

func TestSM53AFullPassFindsWhatNobodyToldOf(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.muted.Store(true)
		n.server.UpdatePod(podid.FullNameOf(p), func(p *v1.Pod) { p.Status.Phase = v1.PodPending })
		time.Sleep(5 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodPending {
			t.Fatal("somebody told")
		}
		time.Sleep(5 * time.Second)
		if got := n.shown(p); got.Phase != v1.PodRunning {
			t.Fatalf("phase is %s after a full pass", got.Phase)
		}
	})
}

func TestSM54AWatchThatLagsIsNotReadAsInterference(t *testing.T) { // BUG-9
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		unstall := n.faults.Add(fault.On("watch", "/pods").Stall())
		n.faults.Forget()
		for i := range 3 {
			s := runningStatus()
			s.Message = fmt.Sprint(i)
			n.SetPodStatus(p, s)
			n.Reconcile(n.held(p)) // an old copy
			time.Sleep(time.Minute)
		}
		if n.held(p).Status.Phase != v1.PodPending {
			t.Fatal("the watch does not lag")
		}
		unstall()
		time.Sleep(time.Minute)
		patches, gets := n.writes("PATCH"), n.writes("get")
		if got := n.shown(p); got.Message != "2" || patches != 3 || gets != 0 {
			t.Fatalf("it shows change %s after %d patches and %d gets; want 2, 3, 0", got.Message, patches, gets)
		}
	})
}

func TestSM61AStatusThatTheAPIServerShowsAlreadyIsNotSent(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		n.SetPodStatus(n.bound("web"), runningStatus())
		synctest.Wait()
		n = n.restarted(nil)
		defer n.stop()
		n.faults.Forget()
		p, _ := n.book.GetPodByName("shop", "web")
		if _, isNew := n.SetPodStatus(p, runningStatus()); !isNew { // SM-33
			t.Fatal("a first status is never ignored")
		}
		time.Sleep(time.Minute)
		if sent := len(n.faults.Requests().Of("*", "/pods/")); sent != 0 {
			t.Fatalf("%d requests after a restart that changed nothing", sent)
		}
	})
}
