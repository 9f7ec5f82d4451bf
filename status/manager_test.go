package status_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

func TestConfig_Validate(t *testing.T) {
	pods, api := pod.NewManager(), &checkedAPI{}
	used := prometheus.NewRegistry()
	if _, err := status.New(status.Config{Pods: pods, Metrics: used}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		config status.Config
		want   []string
	}{
		"empty":                     {status.Config{}, []string{"Pods"}},
		"API without Deletion":      {status.Config{Pods: pods, API: api}, []string{"Deletion"}},
		"API without Pods":          {status.Config{API: api}, []string{"Pods", "Deletion"}},
		"negative Workers":          {status.Config{Pods: pods, Workers: -1}, []string{"Workers"}},
		"negative FlushTimeout":     {status.Config{Pods: pods, FlushTimeout: -time.Second}, []string{"FlushTimeout"}},
		"metrics registered before": {status.Config{Pods: pods, Metrics: used}, []string{"metrics"}},
		"minimal":                   {status.Config{Pods: pods}, nil},
		"minimal with API":          {status.Config{Pods: pods, API: api, Deletion: newFakeDeletionSafety()}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := status.New(test.config)
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got error %v, want one: %v", err, test.want != nil)
			}
			for _, field := range test.want {
				if !strings.Contains(err.Error(), field) {
					t.Errorf("got error %v, want one that has %s", err, field)
				}
			}
		})
	}
}

func TestSM1_WithoutAPIServer(t *testing.T) {
	withHarness(t, withoutAPI, func(t *testing.T, h *harness) {
		pod := h.addPod("web", withReadinessProbe)
		h.faults.ClearRequests()
		h.SetPodStatus(pod, runningStatus())
		h.SetContainerReadiness(pod.UID, containerID("1"), false)
		time.Sleep(time.Minute)
		got, found := h.GetPodStatus(pod.UID)
		if !found || got.Phase != v1.PodRunning || got.ContainerStatuses[0].Ready {
			t.Fatalf("got %+v, %v, want a running pod that is not ready", got, found)
		}
		h.wantRequests("PATCH", 0)
	})
}

func TestSM7_UnknownPod(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		if got, found := h.GetPodStatus("unknown"); found || !cmp.Equal(got, v1.PodStatus{}) {
			t.Fatalf("got %+v, %v, want an empty status, false", got, found)
		}
	})
}

func TestSM9_CallerModifiesStatus(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		for _, image := range []string{"one", "two"} { // the second shares memory with the first where it is equal
			podStatus := runningStatus()
			podStatus.ContainerStatuses[0].Image = image
			h.SetPodStatus(pod, podStatus)
			podStatus.ContainerStatuses[0].Image = "changed"
			*podStatus.ContainerStatuses[0].Started = false
			podStatus.ContainerStatuses[0].State.Running.StartedAt = metav1.Time{}
			podStatus.Conditions[0].Status = v1.ConditionUnknown
			podStatus.PodIPs[0].IP = "changed"
			got, _ := h.GetPodStatus(pod.UID)
			container := got.ContainerStatuses[0]
			if container.Image != image || !*container.Started || container.State.Running.StartedAt.IsZero() ||
				got.Conditions[0].Status != v1.ConditionTrue || got.PodIPs[0].IP != "10.0.0.7" {
				t.Fatalf("got %+v, want the status as it was set", got)
			}
		}
	})
}

func TestSM8_ReturnedStatusIsImmutable(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web", withReadinessProbe)
		h.SetPodStatus(pod, runningStatus())
		before, _ := h.GetPodStatus(pod.UID)
		copied := before.DeepCopy()
		h.SetContainerReadiness(pod.UID, containerID("1"), false)
		h.SetPodStatus(pod, succeededStatus())
		if diff := cmp.Diff(copied, &before); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestSM10_EqualStatusOfDeletedPod(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web")
		_, first := h.SetPodStatus(pod, runningStatus())
		_, again := h.SetPodStatus(pod, runningStatus())
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		_, deleted := h.SetPodStatus(pod, runningStatus())
		if !first || again || !deleted {
			t.Fatalf("got changed %v, %v, %v for a new, an equal, and an equal status of a deleted pod, want true, false, true", first, again, deleted)
		}
	})
}

func TestSM12_IgnoredProbeResults(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web", withReadinessProbe)
		h.SetContainerReadiness("unknown", containerID("1"), false)
		h.SetContainerReadiness(pod.UID, containerID("1"), false) // nothing cached yet
		if _, found := h.GetPodStatus(pod.UID); found {
			t.Fatal("a probe result created a status")
		}
		h.SetPodStatus(pod, runningStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		h.SetContainerReadiness(pod.UID, containerID("removed"), false) // SM-14
		h.SetContainerReadiness(pod.UID, containerID("1"), true)        // unchanged
		if got, _ := h.GetPodStatus(pod.UID); !got.ContainerStatuses[0].Ready || h.countRequests("PATCH") != 0 {
			t.Fatalf("got %+v, want no change", got)
		}
	})
}

func TestSM15_StartupResult(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web", func(pod *v1.Pod) { pod.Spec.Containers[0].StartupProbe = &v1.Probe{} })
		podStatus := runningStatus()
		podStatus.ContainerStatuses[0].Started = nil
		podStatus.ContainerStatuses[0].Ready = false
		h.SetPodStatus(pod, podStatus)
		for _, started := range []bool{false, true} {
			h.SetContainerStartup(pod.UID, containerID("1"), started)
			if got, _ := h.GetPodStatus(pod.UID); got.ContainerStatuses[0].Started == nil || *got.ContainerStatuses[0].Started != started {
				t.Fatalf("got started %v, want %v", got.ContainerStatuses[0].Started, started)
			}
		}
	})
}

func TestSM21_ContinuesPublishedStatus(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		earlier := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		pod := h.addPod("web").DeepCopy()
		pod.Status = runningStatus()
		pod.Status.StartTime = &earlier
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = earlier
		}
		h.SetPodStatus(pod, runningStatus())
		got, _ := h.GetPodStatus(pod.UID)
		if !got.StartTime.Equal(&earlier) || conditionOf(got, v1.PodReady).LastTransitionTime != earlier {
			t.Fatalf("SM-24, SM-25: got start time %v, ready since %v, want %v for both",
				got.StartTime, conditionOf(got, v1.PodReady).LastTransitionTime, earlier)
		}
	})
}

func TestSM22_StatusAfterTerminatePod(t *testing.T) {
	for name, isStatic := range map[string]bool{"API pod": false, "static pod": true} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				changes := collectChanges(t, h)
				pod := h.addPod("web").DeepCopy()
				if isStatic {
					pod.Annotations = map[string]string{podid.SourceAnnotation: string(podid.File)}
				}
				h.SetPodStatus(pod, runningStatus())
				h.TerminatePod(pod)
				podStatus := runningStatus()
				podStatus.ContainerStatuses[0].ContainerID = "test://2"
				h.SetPodStatus(pod, podStatus)
				all := changes()
				if last := all[len(all)-1]; last.Finished == isStatic {
					t.Fatalf("got finished %v after a new status, want %v", last.Finished, !isStatic)
				}
			})
		})
	}
}

func TestSM23_IllegalTransition(t *testing.T) {
	var log strings.Builder
	withHarness(t, withLog(&log), func(t *testing.T, h *harness) {
		pod := h.addPod("job", withRestartPolicyNever)
		h.SetPodStatus(pod, succeededStatus())
		synctest.Wait()
		h.faults.ClearRequests()
		if _, changed := h.SetPodStatus(pod, runningStatus()); changed {
			t.Fatal("a status in which a run-once container runs again was accepted")
		}
		h.wantPhase(pod, v1.PodSucceeded)
		h.wantRequests("PATCH", 0)
		if !strings.Contains(log.String(), "shop/job") {
			t.Fatalf("got log %q, want one that has the pod", log.String())
		}
	})
}

func TestSM33_EqualStatus(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		changes := collectChanges(t, h)
		pod := h.addPod("web")
		for range 10 {
			h.SetPodStatus(pod, runningStatus())
		}
		if sent := h.countRequests("PATCH"); sent != 1 || len(changes()) != 1 {
			t.Fatalf("got %d requests, %d changes, want 1 each", sent, len(changes()))
		}
	})
}

func TestSM34_VersionsOnlyRise(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		changes := collectChanges(t, h)
		pod := h.addPod("web")
		h.SetPodStatus(pod, runningStatus())
		h.RemoveOrphanedStatuses(nil)
		h.SetPodStatus(pod, runningStatus()) // SM-79
		h.SetPodStatus(pod, succeededStatus())
		var last uint64
		for _, change := range changes() {
			if !change.Removed && change.Version <= last {
				t.Fatalf("got version %d after %d", change.Version, last)
			}
			last = change.Version
		}
		h.wantPhase(pod, v1.PodSucceeded) // SM-79: before the next periodic sync
	})
}

func TestSM38_ObservedGeneration(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web").DeepCopy()
		pod.Generation = 7
		h.SetPodStatus(pod, runningStatus())
		older := pod.DeepCopy()
		older.Generation = 6
		h.SetPodStatus(older, runningStatus()) // SM-27
		if got, _ := h.GetPodStatus(pod.UID); got.ObservedGeneration != 7 {
			t.Fatalf("got observed generation %d, want 7", got.ObservedGeneration)
		}
	})
}

func TestSM78_RemoveOrphanedStatuses(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		orphan := h.addPod("orphan")
		h.SetPodStatus(orphan, runningStatus())
		static, mirror := h.addStaticPod("etcd-n1")
		h.SetPodStatus(static, runningStatus())
		h.RemoveOrphanedStatuses(map[types.UID]bool{mirror.UID: true})
		_, foundOrphan := h.GetPodStatus(orphan.UID)
		_, foundStatic := h.GetPodStatus(mirror.UID) // SM-6
		if foundOrphan || !foundStatic {
			t.Fatalf("got orphan %v, static pod by the UID of its mirror pod %v, want false, true", foundOrphan, foundStatic)
		}
	})
}

func TestSM17_TerminatePod(t *testing.T) {
	tests := map[string]func(h *harness) *v1.Pod{
		"cached status": func(h *harness) *v1.Pod {
			pod := h.addPod("web")
			h.SetPodStatus(pod, runningStatus())
			return pod
		},
		"status of the pod": func(h *harness) *v1.Pod {
			pod := h.addPod("web").DeepCopy()
			pod.Status = runningStatus()
			return pod
		},
		"newer status of the watched pod": func(h *harness) *v1.Pod {
			pod := h.addPod("web")
			h.server.UpdatePod(podid.FullNameOf(pod), func(pod *v1.Pod) {
				pod.Status = runningStatus()
				pod.Status.QOSClass = v1.PodQOSBestEffort
			})
			synctest.Wait()
			return pod
		},
	}
	for name, addPod := range tests {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, h *harness) {
				pod := addPod(h)
				h.TerminatePod(pod)
				got := h.apiStatus(pod)
				if got.Phase != v1.PodFailed || len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Terminated == nil {
					t.Fatalf("got %+v, want Failed with a terminated container", got)
				}
				container := got.ContainerStatuses[0]
				terminated := container.State.Terminated
				if terminated.ExitCode != 137 || terminated.Reason != "ContainerStatusUnknown" || container.Ready { // SM-18
					t.Fatalf("got container %+v, want ContainerStatusUnknown", container)
				}
			})
		})
	}
}

func TestSM20_KnownExitIsKept(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("job")
		h.SetPodStatus(pod, succeededStatus())
		h.TerminatePod(pod)
		got := h.apiStatus(pod)
		if got.Phase != v1.PodSucceeded || got.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
			t.Fatalf("got %s, %+v, want Succeeded, exit code 0", got.Phase, got.ContainerStatuses[0].State)
		}
	})
}

func TestSM20_StaticPodKeepsPhase(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		h.SetPodStatus(static, runningStatus())
		h.TerminatePod(static)
		if got := h.apiStatus(mirror); got.Phase != v1.PodRunning || got.ContainerStatuses[0].State.Terminated == nil {
			t.Fatalf("got %s, %+v, want Running, terminated", got.Phase, got.ContainerStatuses[0].State)
		}
	})
}

func TestSM17_ConcurrentSetPodStatus(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		for range 100 {
			pod := h.addPod("web")
			var setters sync.WaitGroup
			setters.Go(func() {
				for i := range 10 {
					podStatus := runningWithReason("%d", i)
					podStatus.ContainerStatuses[0].RestartCount = int32(i)
					h.SetPodStatus(pod, podStatus)
				}
			})
			setters.Go(func() { h.TerminatePod(pod) })
			changes := collectChanges(t, h)
			setters.Wait()
			restarts := int32(0)
			for _, change := range changes() {
				for _, container := range change.Status.ContainerStatuses {
					if change.UID == podid.UID(pod.UID) && container.RestartCount < restarts {
						t.Fatalf("terminated from an older status: got %d restarts after %d", container.RestartCount, restarts)
					}
					restarts = max(restarts, container.RestartCount)
				}
			}
			h.server.DeletePod(podid.FullNameOf(pod), 0)
			synctest.Wait()
		}
	})
}

func TestSM21_StaticPodContinuesMirror(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		static, mirror := h.addStaticPod("etcd-n1")
		earlier := metav1.Date(1999, 1, 1, 0, 0, 0, 0, metav1.Now().Location())
		h.server.UpdatePod(podid.FullNameOf(mirror), func(pod *v1.Pod) { pod.Status.StartTime = &earlier })
		synctest.Wait()
		h.SetPodStatus(static, runningStatus())
		if got, _ := h.GetPodStatus(static.UID); !got.StartTime.Equal(&earlier) {
			t.Fatalf("got start time %v, want %v", got.StartTime, earlier)
		}
	})
}

func TestManager_ProbeResultAfterTerminatePod(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		changes := collectChanges(t, h)
		static, _ := h.addStaticPod("etcd-n1")
		static = static.DeepCopy()
		static.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		h.pods.AddPod(static)
		h.SetPodStatus(static, runningStatus())
		h.TerminatePod(static)
		h.SetContainerReadiness(static.UID, containerID("1"), false)
		h.SetContainerReadiness(static.UID, containerID("1"), true)
		all := changes()
		if last := all[len(all)-1]; !last.Finished {
			t.Fatalf("got %+v, want finished", last)
		}
	})
}

func TestManager_StatusWithoutProbes(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, h *harness) {
		pod := h.addPod("web") // without a probe the caller decides what ready means
		for range 2 {
			if h.SetPodStatus(pod, unreadyStatus()); h.apiStatus(pod).ContainerStatuses[0].Ready {
				t.Fatal("got ready, want not ready")
			}
		}
		h.wantRequests("PATCH", 1)
	})
}
