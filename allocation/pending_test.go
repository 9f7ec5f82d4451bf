package allocation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
)

// node gives its CPU to pods. It records what the manager tells.
type node struct {
	*testing.T
	*allocation.Manager
	milliCPU   int64
	infeasible bool
	pods       map[podid.UID]*v1.Pod
	recorded   []string
	metrics    *prometheus.Registry
}

func newNode(t *testing.T, dir string, milliCPU int64) (n *node, stop func()) {
	t.Helper()
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n = &node{T: t, milliCPU: milliCPU, pods: map[podid.UID]*v1.Pod{}, metrics: prometheus.NewPedanticRegistry()}
	n.Manager = newManager(t, allocation.Config{
		State: state, Decide: n.decide, Events: n, Metrics: n.metrics,
		Pod:      func(uid podid.UID) (*v1.Pod, bool) { pod, found := n.pods[uid]; return pod, found },
		OnResize: func(uid podid.UID) { n.recorded = append(n.recorded, "sync "+string(uid)) },
	})
	t.Cleanup(func() { state.Close() })
	return n, func() { state.Close() }
}

func (n *node) Event(object runtime.Object, _, reason, _ string) {
	n.recorded = append(n.recorded, reason+" "+object.(*v1.Pod).Name)
}

func (n *node) decide(pod *v1.Pod) *resize.Verdict {
	if n.infeasible {
		return resize.Infeasible("never", "test")
	}
	used := resize.Of(pod)[resize.PodLevel].MilliCPURequest
	for uid, other := range n.pods {
		if uid != podid.UID(pod.UID) {
			allocated, _ := n.AllocatedPod(other)
			used += resize.Of(allocated)[resize.PodLevel].MilliCPURequest
		}
	}
	if used > n.milliCPU {
		return resize.Deferred(fmt.Sprintf("%d of %d", used, n.milliCPU))
	}
	return nil
}

func sizedPod(name string, milliCPU int64, generation int64) *v1.Pod {
	return heraldtest.NewPod(name, func(pod *v1.Pod) {
		pod.UID, pod.Generation = types.UID(name), generation
		pod.Spec.Containers = []v1.Container{{Name: "web", Resources: v1.ResourceRequirements{Requests: cpu(fmt.Sprint(milliCPU, "m"))}}}
	})
}

// add admits the pod and starts it.
func (n *node) add(pod *v1.Pod) {
	n.Helper()
	n.pods[podid.UID(pod.UID)] = pod
	n.AdmitPod(pod)
	if err := n.EnsurePodAllocation(pod); err != nil {
		n.Fatal(err)
	}
}

func (n *node) resize(pod *v1.Pod) {
	before := n.pods[podid.UID(pod.UID)]
	n.pods[podid.UID(pod.UID)] = pod
	if n.RequestResize(before, pod) {
		n.RetryPendingResizes(allocation.TriggerPodUpdated)
	}
}

func (n *node) wantRecorded(want ...string) {
	n.Helper()
	if !slices.Equal(n.recorded, want) {
		n.Errorf("got %q, want %q", n.recorded, want)
	}
	n.recorded = nil
}

func (n *node) wantAllocated(name string, milliCPU int64) {
	n.Helper()
	allocated, _ := n.AllocatedPod(n.pods[podid.UID(name)])
	if got := resize.Of(allocated)[resize.PodLevel].MilliCPURequest; got != milliCPU {
		n.Errorf("pod %s: got %dm allocated, want %dm", name, got, milliCPU)
	}
}

func TestRSZ10_Accepted(t *testing.T) {
	n, _ := newNode(t, t.TempDir(), 1000)
	n.add(sizedPod("a", 100, 1))
	n.resize(sizedPod("a", 900, 2))
	n.wantRecorded("ResizeStarted a", "sync a")
	n.wantAllocated("a", 900)
	if generation, found := n.ResizeState("a").InProgress(); !found || generation != 2 {
		t.Errorf("got generation %d, in progress %t", generation, found)
	}
	actuated, isAllocated := n.ActuatedState(n.pods["a"])
	if isAllocated || actuated["web"].MilliCPURequest != 100 || !n.IsResizing("a") {
		t.Errorf("got actuated %+v, want what was before", actuated)
	}
	if n.HasPendingResizes() {
		t.Error("the resize is still pending")
	}
}

func TestRSZ9_DeferredAndInfeasible(t *testing.T) {
	n, _ := newNode(t, t.TempDir(), 1000)
	n.add(sizedPod("a", 100, 1))
	n.add(sizedPod("b", 500, 1))
	n.resize(sizedPod("a", 900, 2))
	n.wantRecorded("ResizeDeferred a", "sync a")
	n.wantAllocated("a", 100)
	n.RetryPendingResizes(allocation.TriggerPeriodic)
	n.wantRecorded() // nothing changed
	delete(n.pods, "b")
	n.RemovePod("b")
	n.RetryPendingResizes(allocation.TriggerPodsRemoved)
	n.wantRecorded("ResizeStarted a", "sync a")
	n.wantAllocated("a", 900)

	n.infeasible = true
	n.resize(sizedPod("a", 950, 3))
	n.wantRecorded("ResizeInfeasible a", "sync a")
	n.infeasible = false
	n.RetryPendingResizes(allocation.TriggerPeriodic)
	n.wantRecorded()
	n.resize(sizedPod("a", 900, 4)) // taken back (RSZ-3)
	if n.ResizeState("a").IsInfeasible() {
		t.Error("the resize that was taken back is still pending")
	}
	want := `
		# HELP kubelet_pod_deferred_accepted_resizes_total Number of resizes that were accepted after being deferred.
		# TYPE kubelet_pod_deferred_accepted_resizes_total counter
		kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pods_removed"} 1
		# HELP kubelet_pod_infeasible_resizes_total Number of infeasible resizes for pods.
		# TYPE kubelet_pod_infeasible_resizes_total counter
		kubelet_pod_infeasible_resizes_total{reason_detail="test"} 1
	`
	err := testutil.GatherAndCompare(n.metrics, strings.NewReader(want), "kubelet_pod_deferred_accepted_resizes_total", "kubelet_pod_infeasible_resizes_total")
	if err != nil {
		t.Error(err) // RSZ-29
	}
}

// A resize that frees resources lets those before it in the order fit, in the same call.
func TestRSZ4_PodResized(t *testing.T) {
	n, _ := newNode(t, t.TempDir(), 1000)
	for _, name := range []string{"a", "b"} {
		n.add(sizedPod(name, 500, 1))
	}
	n.resize(sizedPod("a", 800, 2))
	n.wantRecorded("ResizeDeferred a", "sync a")
	n.resize(sizedPod("b", 200, 2))
	n.wantRecorded("ResizeStarted b", "sync b", "ResizeStarted a", "sync a")
	n.wantAllocated("a", 800)
}

// A pod that is resized before its first sync is allocated what it was admitted with.
func TestRSZ26_AdmittedThenResized(t *testing.T) {
	dir := t.TempDir()
	n, stop := newNode(t, dir, 1000)
	n.pods["a"] = sizedPod("a", 100, 1)
	n.AdmitPod(n.pods["a"])
	n.resize(sizedPod("a", 2000, 2))
	n.wantRecorded("ResizeDeferred a", "sync a")
	if err := n.EnsurePodAllocation(n.pods["a"]); err != nil {
		t.Fatal(err)
	}
	n.wantAllocated("a", 100)
	stop()

	restarted, _ := newNode(t, dir, 1000)
	restarted.pods["a"] = n.pods["a"]
	restarted.wantAllocated("a", 100)
	if !restarted.QueueResize(n.pods["a"]) {
		t.Error("the pending resize is not queued after a restart")
	}
}

// An agent that is killed after it accepted a resize knows what has yet to be actuated, and one that is killed after an actuation
// does not actuate again.
func TestBUG127_OneRecord(t *testing.T) {
	dir := t.TempDir()
	n, stop := newNode(t, dir, 1000)
	n.add(sizedPod("a", 100, 1))
	n.resize(sizedPod("a", 900, 2))
	pod := n.pods["a"]
	stop()

	n, stop = newNode(t, dir, 1000)
	n.pods["a"] = pod
	n.wantAllocated("a", 900)
	before := resize.Quantities{MilliCPURequest: 100}
	want := resize.State{"web": before, resize.PodLevel: before}
	if actuated, _ := n.ActuatedState(pod); !cmp.Equal(actuated, want) {
		t.Errorf("got %v, want %v", actuated, want)
	}
	after := resize.Quantities{MilliCPURequest: 900}
	if err := n.SetActuated(pod, "web", after); err != nil {
		t.Fatal(err)
	}
	stop()

	n, stop = newNode(t, dir, 1000)
	want["web"] = after
	if actuated, isAllocated := n.ActuatedState(pod); isAllocated || !cmp.Equal(actuated, want) {
		t.Errorf("got %v, want %v", actuated, want)
	}
	if err := n.SetActuated(pod, resize.PodLevel, after); err != nil {
		t.Fatal(err)
	}
	stop()

	n, _ = newNode(t, dir, 1000)
	if _, isAllocated := n.ActuatedState(pod); !isAllocated || n.IsResizing("a") {
		t.Error("the resize is not complete")
	}
}

// A container that starts with what was allocated before an acceptance is not taken for resized.
func TestSetActuated_AcceptedMeanwhile(t *testing.T) {
	n, _ := newNode(t, t.TempDir(), 1000)
	n.add(sizedPod("a", 100, 1))
	old := n.pods["a"]
	n.resize(sizedPod("a", 900, 2))
	if err := n.SetActuated(old, "web", resize.Quantities{MilliCPURequest: 100}); err != nil {
		t.Fatal(err)
	}
	if actuated, isAllocated := n.ActuatedState(n.pods["a"]); isAllocated || actuated["web"].MilliCPURequest != 100 {
		t.Errorf("got %v, want the resize still to be done", actuated)
	}
}
