package status_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/status"
)

func withDelays(c *status.Config) {
	c.Delays = status.Delays{Change: 50 * time.Millisecond, Start: time.Second, Sandbox: 5 * time.Second, Deletion: 5 * time.Second}
}

// Changes that follow each other take one request. It is sent when the delay of the first ends.
func TestSM4_Delays(t *testing.T) {
	withHarness(t, withDelays, func(_ *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		for i := range 4 {
			h.SetPodStatus(pod, runningWithReason("change %d", i))
			time.Sleep(10 * time.Millisecond)
			h.Reconcile(h.watchedPod(pod)) // a new version in the watch is no reason to send earlier
		}
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		h.wantRequests("PATCH", 0)
		time.Sleep(time.Millisecond)
		h.wantReason(pod, "change 3")
		time.Sleep(time.Minute)
		h.wantRequests("PATCH", 1)
	})
}

// A change of readiness and a terminal phase do not wait, and take along what waits.
func TestSM4_Delays_Urgent(t *testing.T) {
	for name, urgent := range map[string]struct {
		change func(h *harness, pod *v1.Pod)
		phase  v1.PodPhase
	}{
		"readiness result":  {func(h *harness, pod *v1.Pod) { h.SetContainerReadiness(pod.UID, containerID("1"), false) }, v1.PodRunning},
		"status with Ready": {func(h *harness, pod *v1.Pod) { h.SetPodStatus(pod, unreadyStatus()) }, v1.PodRunning},
		"terminal phase":    {func(h *harness, pod *v1.Pod) { h.SetPodStatus(pod, succeededStatus()) }, v1.PodSucceeded},
		"end":               {func(h *harness, pod *v1.Pod) { h.TerminatePod(pod) }, v1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, withDelays, func(t *testing.T, h *harness) {
				pod := h.addPod("web", withReadinessProbe)
				h.SetPodStatus(pod, runningStatus())
				synctest.Wait()
				h.faults.ClearRequests()
				h.SetPodStatus(pod, runningWithReason("waits"))
				synctest.Wait()
				h.wantRequests("PATCH", 0)
				urgent.change(h, pod)
				h.wantPhase(pod, urgent.phase)
				if got := conditionOf(h.apiStatus(pod), v1.PodReady).Status; got != v1.ConditionFalse {
					t.Errorf("got Ready %s at once, want False", got)
				}
				h.wantRequests("PATCH", 1)
				time.Sleep(time.Minute)
				h.wantRequests("PATCH", 1)
			})
		})
	}
}

// The confirmation of a deletion waits for the pod's end, but not forever.
func TestSM38_Delays_Deletion(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "does not end": false} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, withDelays, func(t *testing.T, h *harness) {
				pod := h.addDeletedPod("web")
				pod = h.watchedPod(pod)
				h.faults.ClearRequests()
				confirmed := *pod
				confirmed.Generation++
				seen := runningStatus()
				for i := range seen.Conditions {
					seen.Conditions[i].ObservedGeneration = confirmed.Generation
				}
				h.Reconcile(pod)
				synctest.Wait() // a sync that is under way would take the status along
				h.SetPodStatus(&confirmed, seen)
				time.Sleep(time.Second)
				h.SetPodStatus(&confirmed, seen)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				h.wantRequests("PATCH", 0)
				if ends {
					h.SetPodStatus(&confirmed, succeededStatus())
					h.wantPhase(pod, v1.PodSucceeded)
				}
				time.Sleep(time.Minute)
				if got := h.apiStatus(pod).ObservedGeneration; got != confirmed.Generation {
					t.Errorf("got observed generation %d, want %d", got, confirmed.Generation)
				}
				h.wantRequests("PATCH", 1)
			})
		})
	}
}

func TestBUG10_Delays_Shutdown(t *testing.T) {
	withHarness(t, withDelays, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.SetPodStatus(pod, runningWithReason("last"))
		start := time.Now()
		h.stop()
		if waited := time.Since(start); waited > 0 {
			t.Errorf("got a shutdown of %v, want one that does not wait for other changes", waited)
		}
		h.wantReason(pod, "last")
	})
}

// startingStatus returns the status of a pod whose containers wait with that reason.
func startingStatus(reason string) v1.PodStatus {
	starting := v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
		{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse},
		{Type: v1.PodInitialized, Status: v1.ConditionTrue},
	}}
	starting.ContainerStatuses = []v1.ContainerStatus{{
		Name: runningStatus().ContainerStatuses[0].Name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
	}}
	setReadyConditions(&starting, "ContainersNotReady")
	return starting
}

// A pod that starts soon takes one request. What a user waits for does not wait longer than other changes.
func TestSM4_Delays_Start(t *testing.T) {
	for name, test := range map[string]struct {
		next  v1.PodStatus
		after time.Duration // until the API server has the next status
	}{
		"ready":     {runningStatus(), 0},
		"not ready": {unreadyStatus(), 50 * time.Millisecond},
		"no image":  {startingStatus("ErrImagePull"), 50 * time.Millisecond},
		"failed":    {v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, withDelays, func(_ *testing.T, h *harness) {
				pod := h.addPod("web")
				starting := startingStatus("ContainerCreating")
				h.SetPodStatus(pod, starting)
				time.Sleep(400 * time.Millisecond)
				h.SetPodStatus(pod, derive.WithSandboxReady(pod, starting))
				time.Sleep(400 * time.Millisecond)
				h.wantRequests("PATCH", 0)
				h.SetPodStatus(pod, test.next)
				time.Sleep(test.after)
				h.wantPhase(pod, test.next.Phase)
				h.wantReason(pod, test.next.Reason)
				time.Sleep(time.Minute)
				h.wantRequests("PATCH", 1)
			})
		})
	}
}

// A pod that does not start soon is shown as starting when the delay of the first change ends.
func TestSM4_Delays_SlowStart(t *testing.T) {
	withHarness(t, withDelays, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		starting := startingStatus("ContainerCreating")
		h.SetPodStatus(pod, starting)
		time.Sleep(900 * time.Millisecond)
		h.SetPodStatus(pod, derive.WithSandboxReady(pod, starting))
		time.Sleep(100 * time.Millisecond)
		got := h.apiStatus(pod)
		if condition := conditionOf(got, v1.PodReadyToStartContainers); condition.Status != v1.ConditionTrue {
			t.Errorf("got conditions %v after the delay, want a sandbox", got.Conditions)
		}
		h.SetPodStatus(pod, startingStatus("ImagePullBackOff"))
		time.Sleep(50 * time.Millisecond)
		if reason := h.apiStatus(pod).ContainerStatuses[0].State.Waiting.Reason; reason != "ImagePullBackOff" {
			t.Errorf("got reason %s, want ImagePullBackOff", reason)
		}
		h.SetPodStatus(pod, startingStatus("ContainerCreating")) // a user must not read an error that is over
		time.Sleep(50 * time.Millisecond)
		if reason := h.apiStatus(pod).ContainerStatuses[0].State.Waiting.Reason; reason != "ContainerCreating" {
			t.Errorf("got reason %s, want ContainerCreating", reason)
		}
	})
}

// After a pod is shown as starting, a sandbox that is ready waits longer than the start did, but not for what a user waits for.
func TestSM4_Delays_Sandbox(t *testing.T) {
	for name, isReady := range map[string]bool{"ready": true, "not yet": false} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, withDelays, func(_ *testing.T, h *harness) {
				pod := h.addPod("web")
				starting := startingStatus("ContainerCreating")
				h.SetPodStatus(pod, starting)
				time.Sleep(time.Second)
				h.wantRequests("PATCH", 1)
				h.SetPodStatus(pod, derive.WithSandboxReady(pod, starting))
				time.Sleep(4 * time.Second)
				h.wantRequests("PATCH", 1)
				if isReady {
					h.SetPodStatus(pod, runningStatus())
					h.wantPhase(pod, v1.PodRunning)
				}
				time.Sleep(time.Second)
				h.wantRequests("PATCH", 2)
				time.Sleep(time.Minute)
				h.wantRequests("PATCH", 2)
			})
		})
	}
}

// A status that says nothing but that a pod starts need not survive a restart of the agent.
func TestBUG10_Delays_StartIsNotCheckpointed(t *testing.T) {
	withHarness(t, withState(t, t.TempDir()), func(t *testing.T, h *harness) {
		h.faults.Add(fault.On("PATCH", "/pods/").Reply(http.StatusInternalServerError))
		starting, running := h.addPod("starting"), h.addPod("running")
		h.SetPodStatus(starting, startingStatus("ContainerCreating"))
		h.SetPodStatus(running, runningStatus())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := h.Size()["checkpointed"]; got != 1 {
			t.Errorf("got %d statuses in the checkpoint, want that of the running pod", got)
		}
	})
}
