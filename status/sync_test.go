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
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestBUG2_OneRequestPerChange(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.ClearRequests()
		h.SetPodStatus(pod, runningStatus())
		if got := h.apiStatus(pod); got.Phase != v1.PodRunning || conditionOf(got, v1.PodReady).Status != v1.ConditionTrue {
			t.Fatalf("got %+v, want a running pod that is ready", got)
		}
		time.Sleep(time.Minute)
		if patches, gets := h.countRequests("PATCH"), h.countRequests("get"); patches != 1 || gets != 0 {
			t.Fatalf("got %d patches, %d gets, want 1, 0", patches, gets)
		}
	})
}

// TestSM2_ConcurrentPods also covers BUG-1.
func TestSM2_ConcurrentPods(t *testing.T) {
	withHarness(t, func(c *status.Config) { c.Workers = 8 }, func(t *testing.T, h *harness) {
		pods := h.addPods(40)
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(100 * time.Millisecond))
		h.faults.ClearRequests()
		for _, message := range []string{"once", "and again"} {
			for _, pod := range pods {
				h.SetPodStatus(pod, runningWithMessage(message))
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for _, pod := range pods {
			if got := h.apiStatus(pod); got.Message != "and again" {
				t.Fatalf("%s: got message %q, want %q", pod.Name, got.Message, "and again")
			}
		}
		patches := h.faults.Requests().Filter("PATCH", "/pods/")
		if most := patches.MaxInFlight(); most != 8 {
			t.Fatalf("got %d concurrent requests, want 8", most)
		}
		for path, ofPod := range patches.ByPath() {
			if ofPod.MaxInFlight() != 1 || len(ofPod) > 2 {
				t.Fatalf("%s: got %d requests, %d concurrent, want at most 2, 1", path, len(ofPod), ofPod.MaxInFlight())
			}
		}
	})
}

// panickingDeletionSafety panics for one pod.
type panickingDeletionSafety struct {
	*fakeDeletionSafety
	panicsOn atomic.Value // podid.UID
}

func (f *panickingDeletionSafety) PodCouldHaveRunningContainers(uid podid.UID) bool {
	if uid == f.panicsOn.Load() {
		panic("broken")
	}
	return f.fakeDeletionSafety.PodCouldHaveRunningContainers(uid)
}

func TestSM3_PanicOnOnePod(t *testing.T) {
	deletion := &panickingDeletionSafety{fakeDeletionSafety: newFakeDeletionSafety()}
	withHarness(t, func(c *status.Config) { c.Deletion, c.Workers = deletion, 1 }, func(_ *testing.T, h *harness) {
		bad, good := h.addPod("bad"), h.addPod("good")
		deletion.panicsOn.Store(podid.UID(bad.UID))
		h.SetPodStatus(bad, runningStatus())
		h.SetPodStatus(good, runningStatus())
		h.wantPhase(good, v1.PodRunning)
		deletion.panicsOn.Store(podid.UID(""))
		time.Sleep(time.Second)
		h.wantPhase(bad, v1.PodRunning)
	})
}

// TestSM4_ConcurrentChanges also covers BUG-4: no change waits for the periodic sync.
func TestSM4_ConcurrentChanges(t *testing.T) {
	withHarness(t, func(c *status.Config) { c.SyncPeriod = time.Hour }, func(t *testing.T, h *harness) {
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(2 * time.Millisecond))
		pods := h.addPods(20)
		var setters sync.WaitGroup
		for _, pod := range pods {
			setters.Go(func() {
				for i := range 20 {
					h.SetPodStatus(pod, runningWithMessage(fmt.Sprint(i)))
					time.Sleep(time.Millisecond)
				}
			})
		}
		setters.Wait()
		time.Sleep(10 * time.Millisecond)
		for _, pod := range pods {
			if got := h.apiStatus(pod); got.Message != "19" {
				t.Fatalf("%s: got message %s, want 19", pod.Name, got.Message)
			}
		}
	})
}

// TestSM5_ChangeDuringRequest checks that only the newest change is sent after the request.
func TestSM5_ChangeDuringRequest(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.faults.Add(fault.On("PATCH", "/pods/").Delay(time.Second))
		h.faults.ClearRequests()
		for i := range 5 {
			h.SetPodStatus(pod, runningWithMessage(fmt.Sprint(i)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if got := h.apiStatus(pod); got.Message != "4" || h.countRequests("PATCH") != 2 {
			t.Fatalf("got message %s after %d requests, want 4, 2", got.Message, h.countRequests("PATCH"))
		}
	})
}

func TestSM13_ReadinessResult(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web", withReadinessProbe)
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.SetContainerReadiness(pod.UID, containerID("1"), false)
		got := h.apiStatus(pod)
		if got.ContainerStatuses[0].Ready || conditionOf(got, v1.PodReady).Status != v1.ConditionFalse ||
			conditionOf(got, v1.ContainersReady).Status != v1.ConditionFalse {
			t.Fatalf("got %+v, want not ready", got)
		}
		h.SetPodStatus(h.watchedPod(pod), runningStatus()) // computed before the result was known
		if got := h.apiStatus(pod); got.ContainerStatuses[0].Ready {
			t.Fatal("SM-16, BUG-7: a status computed earlier undid a probe result")
		}
	})
}

func TestSM37SM48_SettersDoNotBlock(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pods := h.addPods(40)
		h.faults.Add(fault.On("*", "/pods/").Hang())
		start := time.Now()
		for _, pod := range pods {
			h.SetPodStatus(pod, runningStatus())
			h.SetContainerReadiness(pod.UID, containerID("1"), false)
			h.Reconcile(pod)
			h.TerminatePod(pod)
			h.GetPodStatus(pod.UID)
		}
		if took := time.Since(start); took != 0 {
			t.Fatalf("setters took %v, want 0", took)
		}
	})
}

func TestSM49_StaticPodWithoutMirror(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		static := newStaticPod("etcd-n1")
		h.pods.AddPod(static)
		h.faults.ClearRequests()
		h.SetPodStatus(static, runningStatus())
		time.Sleep(time.Minute)
		if sent := len(h.faults.Requests().Filter("*", "/pods/")); sent != 0 {
			t.Fatalf("got %d requests, want 0", sent)
		}
		if got, found := h.GetPodStatus(static.UID); !found || got.Phase != v1.PodRunning {
			t.Fatalf("got %v, %v, want Running, true", got.Phase, found)
		}
	})
}

func TestBUG8_NewMirror(t *testing.T) {
	registry := prometheus.NewRegistry()
	withHarness(t, withMetrics(registry), func(t *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		h.SetPodStatus(static, runningStatus())
		h.wantPhase(mirror, v1.PodRunning)
		h.server.DeletePod(podid.FullNameOf(static), 0)
		synctest.Wait()
		h.wantPhase(h.addMirror(static), v1.PodRunning) // SM-50
		if _, found := h.GetPodStatus(static.UID); !found {
			t.Fatal("the status of the static pod was removed")
		}
		want := strings.NewReader(`
			# HELP herald_status_repairs_total Status writes that restored what another writer had changed.
			# TYPE herald_status_repairs_total counter
			herald_status_repairs_total 0
		`)
		if err := testutil.GatherAndCompare(registry, want, "herald_status_repairs_total"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSM59_UnwatchedMirror also covers BUG-8: a mirror pod that the watch has not delivered yet.
func TestSM59_UnwatchedMirror(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		static, _ := h.addStaticPod("etcd-n1")
		h.SetPodStatus(static, runningStatus())
		synctest.Wait()
		unstall := h.faults.Add(fault.On("watch", "/pods").Stall())
		h.server.DeletePod(podid.FullNameOf(static), 0)
		mirror := h.server.AddPod(newMirrorPod(static))
		h.SetPodStatus(static, succeededStatus())
		time.Sleep(time.Minute)
		h.wantPhase(mirror, v1.PodPending)
		unstall()
		h.wantPhase(mirror, v1.PodSucceeded)
	})
}

func TestPM21_MirrorOfEarlierManifest(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		old, mirror := h.addStaticPod("etcd-n1")
		h.SetPodStatus(old, runningStatus())
		synctest.Wait()
		edited := newStaticPod("etcd-n1")
		edited.UID, edited.Annotations[podid.HashAnnotation] = "static-edited", "h2"
		h.pods.AddPod(edited)
		h.SetPodStatus(edited, succeededStatus())
		time.Sleep(time.Minute)
		h.wantPhase(mirror, v1.PodRunning)
		h.server.DeletePod(podid.FullNameOf(edited), 0)
		synctest.Wait()
		h.wantPhase(h.addMirror(edited), v1.PodSucceeded)
	})
}

func TestSM53_PeriodicSync(t *testing.T) {
	withHarness(t, nil, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.skipReconcile.Store(true)
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase = v1.PodPending })
		time.Sleep(5 * time.Second)
		h.wantPhase(pod, v1.PodPending)
		time.Sleep(5 * time.Second)
		h.wantPhase(pod, v1.PodRunning)
	})
}

// TestSM54_LaggingWatch also covers BUG-9.
func TestSM54_LaggingWatch(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		unstall := h.faults.Add(fault.On("watch", "/pods").Stall())
		h.faults.ClearRequests()
		for i := range 3 {
			h.SetPodStatus(pod, runningWithMessage(fmt.Sprint(i)))
			h.Reconcile(h.watchedPod(pod)) // an old version
			time.Sleep(time.Minute)
		}
		if h.watchedPod(pod).Status.Phase != v1.PodPending {
			t.Fatal("the watch delivered a newer version")
		}
		unstall()
		time.Sleep(time.Minute)
		patches, gets := h.countRequests("PATCH"), h.countRequests("get")
		if got := h.apiStatus(pod); got.Message != "2" || patches != 3 || gets != 0 {
			t.Fatalf("got message %s after %d patches and %d gets, want 2, 3, 0", got.Message, patches, gets)
		}
	})
}

func TestSM61_StatusAlreadyInAPIServer(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		h.SetPodStatus(h.addPod("web"), runningStatus())
		synctest.Wait()
		h = h.restart(nil)
		defer h.stop()
		h.faults.ClearRequests()
		pod, _ := h.pods.GetPodByName("shop", "web")
		if _, changed := h.SetPodStatus(pod, runningStatus()); !changed { // SM-33
			t.Fatal("got unchanged for the first status, want changed")
		}
		time.Sleep(time.Minute)
		if sent := len(h.faults.Requests().Filter("*", "/pods/")); sent != 0 {
			t.Fatalf("got %d requests after a restart, want 0", sent)
		}
	})
}

// TestBUG2_UnwatchedObject checks that an object that the watch lost is read only if there is something to send.
func TestBUG2_UnwatchedObject(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()

		h = h.restart(nil)
		defer h.stop()
		pod = h.watchedPod(pod)
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		h.pods.RemovePod(pod)
		h.Reconcile(pod)
		if reads := h.countRequests("get"); reads > 0 {
			t.Fatalf("got %d reads, want 0", reads)
		}
		h.SetPodStatus(pod, succeededStatus())
		if reads, patches := h.countRequests("get"), h.countRequests("PATCH"); reads != 1 || patches != 1 {
			t.Fatalf("got %d reads and %d patches, want one of each", reads, patches)
		}
	})
}
