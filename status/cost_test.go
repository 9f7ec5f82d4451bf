package status_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
)

// threeContainers returns a pod and a status of typical size.
func threeContainers(uid types.UID) (*v1.Pod, v1.PodStatus) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: string(uid), Namespace: "shop", UID: uid},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways},
	}
	podStatus := runningStatus()
	one := podStatus.ContainerStatuses[0]
	podStatus.ContainerStatuses = nil
	for i := range 3 {
		one.Name, one.ContainerID = fmt.Sprintf("c%d", i), fmt.Sprintf("test://%d", i)
		podStatus.ContainerStatuses = append(podStatus.ContainerStatuses, *one.DeepCopy())
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: one.Name, ReadinessProbe: &v1.Probe{}})
	}
	return pod, podStatus
}

func newLocalManager(tb testing.TB) *status.Manager {
	tb.Helper()
	manager, err := status.New(status.Config{Pods: pod.NewManager()})
	if err != nil {
		tb.Fatal(err)
	}
	return manager
}

func TestManager_Allocations(t *testing.T) {
	manager := newLocalManager(t)
	pod, podStatus := threeContainers("u")
	manager.SetPodStatus(pod, podStatus)
	if allocations := testing.AllocsPerRun(100, func() { manager.SetPodStatus(pod, podStatus) }); allocations > 8 {
		t.Fatalf("SetPodStatus: got %v allocations, want at most 8", allocations)
	}
	if allocations := testing.AllocsPerRun(100, func() { manager.GetPodStatus(pod.UID) }); allocations > 0 {
		t.Fatalf("GetPodStatus: got %v allocations, want 0", allocations)
	}
}

// failingAPI fails the test on every patch.
type failingAPI struct {
	status.API
	tb testing.TB
}

func (f *failingAPI) PatchPodStatus(_ context.Context, _, name string, _ []byte) (*metav1.PartialObjectMetadata, error) {
	f.tb.Errorf("got a patch of %s, want none", name)
	return nil, context.Canceled
}

func TestSM51_PeriodicSyncCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		podManager := pod.NewManager()
		manager, err := status.New(status.Config{API: &failingAPI{tb: t}, Pods: podManager, Deletion: newFakeDeletionSafety()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = manager.Run(ctx) })
		const pods = 1000
		for i := range pods {
			pod, podStatus := threeContainers(types.UID(fmt.Sprint(i)))
			podStatus.StartTime = &metav1.Time{Time: time.Now()}
			pod.ResourceVersion, pod.Status = "1", podStatus
			podManager.AddPod(pod)
			manager.SetPodStatus(pod, podStatus) // equal to the API server's
		}
		synctest.Wait()
		perSync := testing.AllocsPerRun(5, func() { time.Sleep(10 * time.Second); synctest.Wait() })
		if perSync > pods/10 {
			t.Errorf("got %v allocations for %d pods, want at most %d", perSync, pods, pods/10)
		}
		stop()
		running.Wait()
	})
}

func BenchmarkSetPodStatus(b *testing.B) {
	for name, change := range map[string]bool{"unchanged": false, "changed": true} {
		b.Run(name, func(b *testing.B) {
			manager := newLocalManager(b)
			pod, podStatus := threeContainers("u")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if change {
					podStatus.ContainerStatuses[1].RestartCount = int32(i)
				}
				manager.SetPodStatus(pod, podStatus)
			}
		})
	}
}

func BenchmarkSetContainerReadiness(b *testing.B) {
	podManager := pod.NewManager()
	manager, err := status.New(status.Config{Pods: podManager})
	if err != nil {
		b.Fatal(err)
	}
	pod, podStatus := threeContainers("u")
	podManager.AddPod(pod)
	manager.SetPodStatus(pod, podStatus)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		manager.SetContainerReadiness("u", containerID("1"), i%2 == 0)
	}
}

// TestSyncs_Cost bounds the cost of a comparison of all pods when nothing has changed.
func TestSyncs_Cost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, stop := newSyncedManager(t, 500)
		defer stop()
		var syncs map[podid.UID]status.Sync
		allocations := testing.AllocsPerRun(5, func() { syncs = manager.Syncs() })
		for uid, sync := range syncs {
			if sync.State != status.SyncSynced {
				t.Fatalf("%s: got %s, want synced", uid, sync.State)
			}
		}
		if len(syncs) != 500 || allocations > 1000 {
			t.Fatalf("got %d pods with %v allocations, want 500 with at most 1000", len(syncs), allocations)
		}
	})
}

// newSyncedManager returns a running manager whose statuses are equal to the API server's.
func newSyncedManager(tb testing.TB, count int) (manager *status.Manager, stop func()) {
	tb.Helper()
	podManager := pod.NewManager()
	manager, err := status.New(status.Config{API: &failingAPI{tb: tb}, Pods: podManager, Deletion: newFakeDeletionSafety()})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = manager.Run(ctx) })
	for i := range count {
		pod, podStatus := threeContainers(types.UID(fmt.Sprint(i)))
		podStatus.StartTime = &metav1.Time{Time: time.Now().Truncate(time.Second)}
		pod.ResourceVersion, pod.Status = "1", podStatus
		podManager.AddPod(pod)
		manager.SetPodStatus(pod, podStatus)
	}
	for isSynced := false; !isSynced; {
		time.Sleep(time.Millisecond)
		isSynced = true
		for _, sync := range manager.Syncs() {
			isSynced = isSynced && sync.State == status.SyncSynced && sync.SyncedVersion > 0
		}
	}
	return manager, func() {
		cancel()
		running.Wait()
	}
}

func BenchmarkSyncs(b *testing.B) {
	manager, stop := newSyncedManager(b, 500)
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		manager.Syncs()
	}
}
