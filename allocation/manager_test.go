package allocation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

// openManager returns a manager with its checkpoint in dir until the test ends or closeState is called.
func openManager(t *testing.T, dir string) (manager *allocation.Manager, closeState func()) {
	t.Helper()
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeState = sync.OnceFunc(func() { state.Close() })
	t.Cleanup(closeState)
	if manager, err = allocation.New(allocation.Config{State: state}); err != nil {
		t.Fatal(err)
	}
	return manager, closeState
}

func cpu(quantity string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(quantity)}
}

// requestingPod returns a pod whose containers "init" and "web" request CPU, and "log" nothing.
func requestingPod(name string) *v1.Pod {
	return heraldtest.NewPod(name, func(pod *v1.Pod) {
		pod.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Requests: cpu("100m")}}}
		pod.Spec.Containers = []v1.Container{{Name: "web", Resources: v1.ResourceRequirements{Requests: cpu("100m")}}, {Name: "log"}}
	})
}

func setAllocation(t *testing.T, manager *allocation.Manager, pod *v1.Pod) {
	t.Helper()
	if err := manager.SetPodAllocation(pod); err != nil {
		t.Fatal(err)
	}
}

func TestSM83_AllocationSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	manager, closeState := openManager(t, dir)
	if _, found := manager.GetContainerResourceAllocation("u", "web"); found {
		t.Fatal("found an allocation before the first was set")
	}
	setAllocation(t, manager, requestingPod("u"))
	if err := manager.SetPodResizeStatus("u", v1.PodResizeStatusDeferred); err != nil {
		t.Fatal(err)
	}
	closeState()
	manager, _ = openManager(t, dir)
	if requests, found := manager.GetContainerResourceAllocation("u", "web"); !found || requests.Cpu().String() != "100m" {
		t.Fatalf("web: got %v, %v, want 100m CPU", requests, found)
	}
	if _, found := manager.GetContainerResourceAllocation("u", "log"); !found {
		t.Fatal("log: got no allocation, want an empty one")
	}
	if _, found := manager.GetContainerResourceAllocation("u", "init"); !found { // SM-87
		t.Fatal("init: got no allocation")
	}
	if status, found := manager.GetPodResizeStatus("u"); !found || status != v1.PodResizeStatusDeferred { // SM-84
		t.Fatalf("resize status: got %q, %v, want Deferred", status, found)
	}
}

func TestSM82_AllocationIsCopied(t *testing.T) {
	manager, _ := openManager(t, t.TempDir())
	pod := requestingPod("u")
	setAllocation(t, manager, pod)
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("9")
	requests, _ := manager.GetContainerResourceAllocation("u", "web")
	requests[v1.ResourceCPU] = resource.MustParse("8")
	if requests, _ := manager.GetContainerResourceAllocation("u", "web"); requests.Cpu().String() != "100m" {
		t.Fatalf("got %v, want 100m CPU", requests)
	}
}

func TestSM84_EmptyResizeStatusRemoves(t *testing.T) {
	manager, _ := openManager(t, t.TempDir())
	for _, status := range []allocation.ResizeStatus{v1.PodResizeStatusDeferred, ""} {
		if err := manager.SetPodResizeStatus("u", status); err != nil {
			t.Fatal(err)
		}
	}
	if status, found := manager.GetPodResizeStatus("u"); found {
		t.Fatalf("got %q, want none", status)
	}
}

func TestSM81SM85_CorruptCheckpoint(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pod-allocations"), []byte("{ torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if _, err = allocation.New(allocation.Config{State: state}); err == nil || !strings.Contains(err.Error(), "drain the node") {
		t.Fatalf("got error %v, want one that says to drain the node", err)
	}
}

// TestF17_UnwritableCheckpoint also covers SM-83: an allocation is recorded on disk or not at all.
func TestF17_UnwritableCheckpoint(t *testing.T) {
	dir := t.TempDir()
	manager, _ := openManager(t, dir)
	if err := os.RemoveAll(dir); err != nil { // nothing can be created in a removed directory
		t.Fatal(err)
	}
	if err := manager.SetPodAllocation(requestingPod("u")); err == nil {
		t.Error("got no error from SetPodAllocation")
	}
	if _, found := manager.GetContainerResourceAllocation("u", "web"); found {
		t.Error("found an allocation that failed")
	}
}

func TestSM86_RemovedPodsLeaveCheckpoint(t *testing.T) {
	dir := t.TempDir()
	manager, closeState := openManager(t, dir)
	for _, name := range []string{"deleted", "orphaned", "remaining"} {
		setAllocation(t, manager, requestingPod(name))
		if err := manager.SetPodResizeStatus(podid.UID(name), v1.PodResizeStatusDeferred); err != nil {
			t.Fatal(err)
		}
	}
	manager.RemovePod("deleted")
	manager.RemoveOrphanedPods(map[types.UID]bool{"remaining": true})
	if err := manager.SetPodResizeStatus("remaining", v1.PodResizeStatusInfeasible); err != nil { // SM-87: the next change writes
		t.Fatal(err)
	}
	closeState()
	manager, _ = openManager(t, dir)
	for uid, want := range map[podid.UID]bool{"deleted": false, "orphaned": false, "remaining": true} {
		_, hasAllocation := manager.GetContainerResourceAllocation(uid, "web")
		_, hasResizeStatus := manager.GetPodResizeStatus(uid)
		if hasAllocation != want || hasResizeStatus != want {
			t.Fatalf("%s: got allocation %v, resize status %v, want %v", uid, hasAllocation, hasResizeStatus, want)
		}
	}
}

func TestManager_ConcurrentSetters(t *testing.T) {
	dir := t.TempDir()
	manager, closeState := openManager(t, dir)
	remaining := map[types.UID]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true}
	var setters sync.WaitGroup
	for uid := range remaining {
		setters.Go(func() {
			if err := manager.SetPodAllocation(requestingPod(string(uid))); err != nil {
				t.Error(err)
			}
			manager.RemoveOrphanedPods(remaining)
		})
	}
	setters.Wait()
	closeState()
	manager, _ = openManager(t, dir)
	for uid := range remaining {
		if _, found := manager.GetContainerResourceAllocation(podid.UID(uid), "web"); !found {
			t.Errorf("allocation of %s was lost", uid)
		}
	}
}

// TestSM83_BurstIsBatched checks that the pods of a burst share a write of the checkpoint.
func TestSM83_BurstIsBatched(t *testing.T) {
	const burst = 200
	dir := t.TempDir()
	manager, closeState := openManager(t, dir)
	pending, release := manager.HoldWrites()
	sizes := make(chan int, burst)
	for i := range burst {
		go func() {
			if err := manager.SetPodAllocation(requestingPod(fmt.Sprintf("web-%d", i))); err != nil {
				t.Error(err)
			}
			sizes <- manager.Size()
		}()
	}
	heraldtest.Eventually(t, func() error {
		if got := pending(); got != burst {
			return fmt.Errorf("got %d pending changes, want %d", got, burst)
		}
		return nil
	})
	release()
	for range burst {
		if size := <-sizes; size != burst {
			t.Fatalf("got %d allocations after the first write, want %d", size, burst)
		}
	}
	closeState()
	if restarted, _ := openManager(t, dir); restarted.Size() != burst {
		t.Errorf("after a restart: got %d allocations, want %d", restarted.Size(), burst)
	}
}

func TestSM87_AllocatedPod(t *testing.T) {
	manager, _ := openManager(t, t.TempDir())
	pod := requestingPod("u")
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	if got, found := manager.AllocatedPod(pod); found || got != pod {
		t.Fatalf("before the first allocation: got %v, %v, want the pod itself, false", got, found)
	}
	setAllocation(t, manager, pod)
	tests := map[string]struct {
		change  func(*v1.PodSpec)
		matches bool
	}{
		"unchanged":      {func(*v1.PodSpec) {}, true},
		"equal quantity": {func(spec *v1.PodSpec) { spec.Containers[0].Resources.Requests = cpu("0.1") }, true},
		"request":        {func(spec *v1.PodSpec) { spec.Containers[0].Resources.Requests = cpu("2") }, false},
		"limit":          {func(spec *v1.PodSpec) { spec.Containers[1].Resources.Limits = cpu("1") }, false},
		"init container": {func(spec *v1.PodSpec) { spec.InitContainers[0].Resources.Requests = nil }, false},
		"pod level":      {func(spec *v1.PodSpec) { spec.Resources.Requests = cpu("3") }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resized := pod.DeepCopy()
			test.change(&resized.Spec)
			got, found := manager.AllocatedPod(resized)
			if !found || (got == resized) != test.matches {
				t.Errorf("got found %v, the pod itself %v, want true, %v", found, got == resized, test.matches)
			}
			if again, _ := manager.AllocatedPod(got); again != got {
				t.Error("an allocated pod does not match its own allocation")
			}
		})
	}
}
