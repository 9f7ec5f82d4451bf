package allocation_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
)

func newManager(t *testing.T, config allocation.Config) *allocation.Manager {
	t.Helper()
	manager, err := allocation.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

func newCondition(reason, message string, generation int64) derive.ResizeCondition {
	return derive.ResizeCondition{Reason: reason, Message: message, Generation: generation}
}

func TestSM88_PendingCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager := newManager(t, allocation.Config{})
		steps := []struct {
			condition  derive.ResizeCondition
			changed    bool
			reason     string
			deferred   bool
			infeasible bool
		}{
			{newCondition("other", "one", 1), true, v1.PodReasonDeferred, true, false},
			{newCondition(v1.PodReasonDeferred, "another message", 1), false, v1.PodReasonDeferred, true, false},
			{newCondition(v1.PodReasonDeferred, "another message", 2), true, v1.PodReasonDeferred, true, false},
			{newCondition(v1.PodReasonInfeasible, "never", 2), true, v1.PodReasonInfeasible, false, true},
		}
		for i, step := range steps {
			time.Sleep(time.Minute)
			if changed := manager.SetPodResizePendingCondition("u", step.condition); changed != step.changed {
				t.Fatalf("step %d: got changed %v, want %v", i, changed, step.changed)
			}
			resize := manager.ResizeState("u")
			if got := resize.Conditions(); len(got) != 1 || got[0].Reason != step.reason || got[0].Status != v1.ConditionTrue {
				t.Fatalf("step %d: got %+v, want reason %s", i, got, step.reason)
			}
			if resize.IsDeferred() != step.deferred || resize.IsInfeasible() != step.infeasible { // SM-91
				t.Fatalf("step %d: got deferred %v, infeasible %v", i, resize.IsDeferred(), resize.IsInfeasible())
			}
		}
		manager.ClearPodResizePendingCondition("u") // SM-90
		manager.ClearPodResizePendingCondition("u")
		if size := manager.Size(); size != 0 {
			t.Fatalf("got %d entries after the resize was accepted, want 0", size)
		}
	})
}

func TestSM89_InProgressGeneration(t *testing.T) {
	manager := newManager(t, allocation.Config{})
	if generation, changed := manager.SetPodResizeInProgressCondition("u", newCondition("", "", 3)); generation != 3 || !changed {
		t.Fatalf("started: got %d, %v, want 3, true", generation, changed)
	}
	if generation, changed := manager.SetPodResizeInProgressCondition("u", newCondition("Error", "no luck", 4)); generation != 3 || !changed {
		t.Fatalf("failed: got %d, %v, want 3, true", generation, changed)
	}
	if _, changed := manager.SetPodResizeInProgressCondition("u", newCondition("", "", 4)); changed {
		t.Fatal("repeated: got changed, want unchanged")
	}
	if generation, found := manager.ClearPodResizeInProgressCondition("u"); generation != 3 || !found { // SM-90
		t.Fatalf("cleared: got %d, %v, want 3, true", generation, found)
	}
	if _, found := manager.ClearPodResizeInProgressCondition("u"); found {
		t.Fatal("cleared again: got found, want not found")
	}
}

func TestSM93_PendingBeforeInProgress(t *testing.T) {
	manager := newManager(t, allocation.Config{})
	manager.SetPodResizeInProgressCondition("u", newCondition("", "", 1))
	manager.SetPodResizePendingCondition("u", newCondition(v1.PodReasonDeferred, "not enough CPU", 1))
	conditions := manager.ResizeState("u").Conditions()
	if len(conditions) != 2 || conditions[0].Type != v1.PodResizePending || conditions[1].Type != v1.PodResizeInProgress {
		t.Fatalf("got %+v, want pending, then in progress", conditions)
	}
}

func TestSM92_BackfillKeepsTimes(t *testing.T) {
	manager := newManager(t, allocation.Config{})
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	pending := heraldtest.NewPod("pending", func(pod *v1.Pod) {
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible, LastTransitionTime: since,
		}}
	})
	manager.BackfillPodResizeConditions([]*v1.Pod{pending, heraldtest.NewPod("idle")})
	resize := manager.ResizeState("pending")
	if got := resize.Conditions(); len(got) != 1 || got[0].LastTransitionTime != since || !resize.IsInfeasible() {
		t.Fatalf("got %+v, want the published condition", got)
	}
	if size := manager.Size(); size != 1 {
		t.Fatalf("got %d entries, want 1", size)
	}
}

func TestSM94_OrphanedResizeState(t *testing.T) {
	manager := newManager(t, allocation.Config{})
	for _, uid := range []types.UID{"deleted", "orphaned", "remaining"} {
		manager.BackfillPodResizeConditions([]*v1.Pod{heraldtest.NewPod(string(uid), func(pod *v1.Pod) {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
		})})
	}
	manager.RemovePod("deleted")
	manager.RemoveOrphanedPods(map[types.UID]bool{"remaining": true})
	if !manager.ResizeState("remaining").IsDeferred() || manager.Size() != 1 {
		t.Fatalf("got remaining %v and %d entries, want true, 1", manager.ResizeState("remaining").IsDeferred(), manager.Size())
	}
}

func TestSM98_ResizeMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	manager := newManager(t, allocation.Config{Metrics: registry})
	if _, err := allocation.New(allocation.Config{Metrics: registry}); err == nil {
		t.Fatal("got no error for metrics that are registered already")
	}
	manager.SetPodResizePendingCondition("a", newCondition(v1.PodReasonDeferred, "", 1))
	manager.SetPodResizePendingCondition("b", newCondition(v1.PodReasonDeferred, "", 1))
	manager.SetPodResizePendingCondition("c", newCondition(v1.PodReasonInfeasible, "", 1))
	manager.SetPodResizeInProgressCondition("a", newCondition("", "", 1))
	want := `
		# HELP kubelet_pod_in_progress_resizes Number of in-progress resizes for pods.
		# TYPE kubelet_pod_in_progress_resizes gauge
		kubelet_pod_in_progress_resizes 1
		# HELP kubelet_pod_pending_resizes Number of pending resizes for pods.
		# TYPE kubelet_pod_pending_resizes gauge
		kubelet_pod_pending_resizes{reason="deferred"} 2
		kubelet_pod_pending_resizes{reason="infeasible"} 1
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Fatal(err)
	}
}
