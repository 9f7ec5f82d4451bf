package status_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

func TestSM11SM63_ForeignFieldsSurvive(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		pod := h.addPod("web", func(pod *v1.Pod) {
			pod.Labels = map[string]string{"team": "shop"}
			pod.Status.NominatedNodeName = "n2"
			pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}} // SM-66
			pod.Status.Conditions = []v1.PodCondition{{Type: "example.com/gate", Status: v1.ConditionTrue, Reason: "Foreign"}}
		})
		h.SetPodStatus(pod, runningStatus())
		podStatus := runningStatus()
		podStatus.Conditions = append(podStatus.Conditions, v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionFalse, Reason: "NotOwned"})
		h.SetPodStatus(pod, podStatus)
		h.SetPodStatus(pod, succeededStatus())
		got := h.apiStatus(pod)
		if gate := conditionOf(got, "example.com/gate"); gate.Status != v1.ConditionTrue || gate.Reason != "Foreign" {
			t.Errorf("got condition %+v, want it unchanged", gate)
		}
		if got.Phase != v1.PodSucceeded || got.NominatedNodeName != "n2" || len(got.ResourceClaimStatuses) != 1 {
			t.Errorf("got %+v, want foreign fields unchanged", got)
		}
		recorder.check(t)
	})
}

func TestSM64_MissingOwnedCondition(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		podStatus := runningStatus()
		podStatus.Conditions = append(podStatus.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred})
		h.SetPodStatus(pod, podStatus)
		if conditionOf(h.apiStatus(pod), v1.PodResizePending).Type == "" {
			t.Fatal("the condition was not sent")
		}
		h.SetPodStatus(pod, runningStatus())
		if conditionOf(h.apiStatus(pod), v1.PodResizePending).Type != "" {
			t.Fatal("the condition was not removed")
		}
	})
}

func TestSM65_DisruptionTarget(t *testing.T) {
	disrupted := func(podStatus v1.PodStatus) v1.PodStatus {
		podStatus.Conditions = append(podStatus.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"})
		return podStatus
	}
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.deletion.setCouldRun(pod.UID, true)
		for _, podStatus := range []v1.PodStatus{disrupted(runningStatus()), disrupted(succeededStatus())} {
			h.SetPodStatus(pod, podStatus)
			if got := conditionOf(h.apiStatus(pod), v1.DisruptionTarget); got.Type != "" {
				t.Fatalf("with phase %s: got %+v, want none", podStatus.Phase, got)
			}
		}
		h.deletion.setCouldRun(pod.UID, false)
		time.Sleep(10 * time.Second)
		if got := conditionOf(h.apiStatus(pod), v1.DisruptionTarget); got.Status != v1.ConditionTrue {
			t.Fatalf("got %+v, want DisruptionTarget with the terminal phase", h.apiStatus(pod))
		}
	})
}

func TestSM67_TerminalPhaseIsWithheld(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("job", withRestartPolicyNever)
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.deletion.setCouldRun(pod.UID, true)
		h.SetPodStatus(pod, succeededStatus())
		got := h.apiStatus(pod)
		if got.Phase != v1.PodRunning || got.ContainerStatuses[0].State.Terminated == nil {
			t.Fatalf("got phase %s, container %+v, want everything except the phase", got.Phase, got.ContainerStatuses[0].State)
		}
		h.faults.ClearRequests()
		time.Sleep(time.Minute)
		h.wantRequests("PATCH", 0)
		h.deletion.setCouldRun(pod.UID, false) // the periodic sync finds it
		time.Sleep(10 * time.Second)
		h.wantPhase(pod, v1.PodSucceeded)
	})
}

func TestSM68_ForeignTerminalPhase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) { pod.Status.Phase, pod.Status.Reason = v1.PodFailed, "NodeLost" })
		synctest.Wait()
		podStatus := runningStatus()
		podStatus.PodIP, podStatus.PodIPs = "10.0.0.8", []v1.PodIP{{IP: "10.0.0.8"}}
		h.SetPodStatus(h.watchedPod(pod), podStatus)
		got := h.apiStatus(pod)
		if got.Phase != v1.PodFailed || got.Reason != "NodeLost" || got.PodIP != "10.0.0.8" {
			t.Fatalf("got %+v, want the foreign phase and the new address", got)
		}
		if ready := conditionOf(got, v1.PodReady); ready.Status != v1.ConditionFalse || ready.Reason != "PodFailed" { // SM-70
			t.Fatalf("got %s, %+v, want not ready", got.Phase, ready)
		}
	})
}

func TestSM69_StaticPodPhaseIsWithheld(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		h.deletion.setCouldRun(static.UID, true)
		h.SetPodStatus(static, succeededStatus())
		if got := h.apiStatus(mirror); got.Phase != v1.PodPending || len(got.ContainerStatuses) == 0 {
			t.Fatalf("got %s, %d containers, want Pending with containers", got.Phase, len(got.ContainerStatuses))
		}
		h.deletion.setCouldRun(static.UID, false)
		time.Sleep(10 * time.Second)
		h.wantPhase(mirror, v1.PodSucceeded)
	})
}

func TestSM70_TerminalPodIsNotReady(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		recorder.extraCheck = func(_, pod *v1.Pod) []string {
			if derive.IsTerminal(pod.Status.Phase) && conditionOf(pod.Status, v1.PodReady).Status == v1.ConditionTrue {
				return []string{"terminal and ready"}
			}
			return nil
		}
		pod := h.addPod("job")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		podStatus := runningStatus() // with Ready True
		podStatus.Phase = v1.PodFailed
		h.SetPodStatus(pod, podStatus)
		if got := conditionOf(h.apiStatus(pod), v1.PodReady); got.Status != v1.ConditionFalse || got.Reason != "PodFailed" {
			t.Fatalf("got %+v, want False, PodFailed", got)
		}
		recorder.check(t)
	})
}

func TestI6_TransitionTimes(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		pod := h.addPod("web", withReadinessProbe)
		h.SetPodStatus(pod, runningStatus())
		time.Sleep(61 * time.Second)
		h.skipReconcile.Store(true) // the next periodic sync, in 9s, finds it
		h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) {
			setCondition(pod, v1.PodReady, v1.ConditionFalse)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreignWritesAnnotation, "1")
		})
		foreignWrite := time.Now()
		time.Sleep(time.Minute)
		ready := conditionOf(h.apiStatus(pod), v1.PodReady)
		if ready.Status != v1.ConditionTrue || ready.LastTransitionTime.Sub(foreignWrite) < 5*time.Second {
			t.Fatalf("after the repair: got %+v, want True since later than %v", ready, foreignWrite)
		}
		h.skipReconcile.Store(false)
		h.SetPodStatus(pod, runningWithMessage("another change"))
		if again := conditionOf(h.apiStatus(pod), v1.PodReady); again.LastTransitionTime != ready.LastTransitionTime {
			t.Fatalf("got transition time %v, want %v", again.LastTransitionTime, ready.LastTransitionTime)
		}
		h.server.SetDown(true)
		h.SetContainerReadiness(pod.UID, containerID("1"), false)
		changedAt := metav1.NewTime(time.Now().Truncate(time.Second))
		time.Sleep(time.Hour)
		h.server.SetDown(false)
		time.Sleep(time.Minute)
		if late := conditionOf(h.apiStatus(pod), v1.PodReady); late.Status != v1.ConditionFalse || !late.LastTransitionTime.Equal(&changedAt) {
			t.Fatalf("sent an hour late: got %+v, want False since %v", late, changedAt)
		}
		recorder.check(t)
	})
}

func TestSM25_EditedStaticPod(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		h.SetPodStatus(static, runningStatus())
		synctest.Wait()
		before := h.apiStatus(mirror).StartTime
		time.Sleep(time.Hour)
		successor := newStaticPod("etcd-n1")
		successor.UID, successor.Annotations[podid.HashAnnotation] = "static-edited", "h2"
		h.pods.RemovePod(static)
		h.pods.AddPod(successor) // the mirror pod of the earlier manifest still exists
		status := runningStatus()
		status.StartTime = nil
		if cached, _ := h.SetPodStatus(successor, status); cached.StartTime.Equal(before) {
			t.Errorf("got start time %v of the earlier manifest", cached.StartTime)
		}
	})
}

func TestI4_StartTimeAfterRestart(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		h.SetPodStatus(static, runningStatus())
		startTime := h.apiStatus(mirror).StartTime
		h.stop()
		time.Sleep(time.Hour)
		h.server.SetDown(true)
		h = newHarness(t, h.server, nil)
		defer h.stop()
		h.pods.AddPod(static)
		h.SetPodStatus(static, runningStatus())
		time.Sleep(time.Minute)
		h.server.SetDown(false)
		time.Sleep(time.Minute)
		cached, _ := h.GetPodStatus(static.UID)
		if got := h.apiStatus(mirror).StartTime; !got.Equal(startTime) || !cached.StartTime.Equal(startTime) {
			t.Fatalf("got %v in the API server, %v in the cache, want %v", got, cached.StartTime, startTime)
		}
	})
}

func TestF14_ClockMovedBack(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		recorder := record(t, h.server)
		ahead := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
		pod := h.addPod("web", func(pod *v1.Pod) { // written before the clock was corrected
			pod.Status = unreadyStatus()
			for i := range pod.Status.Conditions {
				pod.Status.Conditions[i].LastTransitionTime = ahead
			}
		})
		h.SetPodStatus(pod, runningStatus())
		for _, condition := range h.apiStatus(pod).Conditions {
			if condition.LastTransitionTime.Before(&ahead) {
				t.Errorf("%s: got transition time %v, want %v", condition.Type, condition.LastTransitionTime, ahead)
			}
		}
		recorder.check(t)
	})
}

func TestBUG16_LongMessage(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("job")
		podStatus := succeededStatus()
		podStatus.ContainerStatuses[0].State.Terminated.Message = strings.Repeat("é", 10_000) + "\xff"
		podStatus.Message = "not UTF-8: \xff"
		h.SetPodStatus(pod, podStatus)
		synctest.Wait()
		h.faults.ClearRequests()
		h.SetPodStatus(h.watchedPod(pod), podStatus)
		time.Sleep(time.Minute)
		message := h.apiStatus(pod).ContainerStatuses[0].State.Terminated.Message
		if len(message) != 12288 || !utf8.ValidString(message) {
			t.Errorf("got %d bytes, valid %v, want 12288, true", len(message), utf8.ValidString(message))
		}
		if sent := len(h.faults.Requests().Filter("*", "/pods/")); sent != 0 {
			t.Errorf("got %d requests for the same status, want 0", sent)
		}
	})
}

func TestSM30_OrderOfLists(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod, podStatus := threeContainers("u")
		pod.Spec.NodeName, pod.UID = nodeName, ""
		h.server.AddPod(pod)
		synctest.Wait()
		watched, _ := h.pods.GetPodByName("shop", "u")
		h.SetPodStatus(watched, podStatus)
		slices.Reverse(podStatus.ContainerStatuses)
		slices.Reverse(podStatus.Conditions)
		if _, changed := h.SetPodStatus(watched, podStatus); changed {
			t.Fatal("got changed for another order, want unchanged")
		}
	})
}

// TestSM93_ResizeConditions checks that a resize condition is sent with the next status, and not before.
func TestSM93_ResizeConditions(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		uid := podid.UID(pod.UID)
		h.allocations.SetPodResizeInProgressCondition(uid, derive.ResizeCondition{Generation: 1})
		h.allocations.SetPodResizePendingCondition(uid, derive.ResizeCondition{Reason: v1.PodReasonDeferred, Message: "not enough CPU", Generation: 1})
		time.Sleep(time.Minute)
		h.wantRequests("PATCH", 0)
		podStatus := runningStatus()
		podStatus.Conditions = append(podStatus.Conditions, h.allocations.ResizeState(uid).Conditions()...)
		h.SetPodStatus(pod, podStatus)
		got := h.apiStatus(pod)
		if conditionOf(got, v1.PodResizePending).Message != "not enough CPU" || conditionOf(got, v1.PodResizeInProgress).Status != v1.ConditionTrue {
			t.Fatalf("got %+v, want both resize conditions", got.Conditions)
		}
	})
}
