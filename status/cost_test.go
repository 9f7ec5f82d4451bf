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

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/status"
)

// threeContainers is a pod and a status of ordinary size.
func threeContainers(uid types.UID) (*v1.Pod, v1.PodStatus) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: string(uid), Namespace: "shop", UID: uid},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways},
	}
	s := runningStatus()
	one := s.ContainerStatuses[0]
	s.ContainerStatuses = nil
	for i := range 3 {
		one.Name, one.ContainerID = fmt.Sprintf("c%d", i), fmt.Sprintf("test://%d", i)
		s.ContainerStatuses = append(s.ContainerStatuses, *one.DeepCopy())
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: one.Name, ReadinessProbe: &v1.Probe{}})
	}
	return p, s
}

func newLocal(tb testing.TB) *status.Manager {
	tb.Helper()
	m, err := status.New(status.Config{Pods: pod.NewManager()})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestAnUnchangedStatusCostsNextToNothing(t *testing.T) {
	m := newLocal(t)
	p, s := threeContainers("u")
	m.SetPodStatus(p, s)
	if allocations := testing.AllocsPerRun(100, func() { m.SetPodStatus(p, s) }); allocations > 8 {
		t.Fatalf("%v allocations, want at most 8", allocations)
	}
	if allocations := testing.AllocsPerRun(100, func() { m.GetPodStatus(p.UID) }); allocations > 0 {
		t.Fatalf("reading costs %v allocations, want none", allocations)
	}
}

// quietAPI fails the test that makes a request.
type quietAPI struct {
	status.API
	tb testing.TB
}

func (q *quietAPI) PatchPodStatus(_ context.Context, _, name string, _ []byte) (*metav1.PartialObjectMetadata, error) {
	q.tb.Errorf("a request for %s", name)
	return nil, context.Canceled
}

func TestSM51AFullPassOverPodsAtRestCostsNextToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := pod.NewManager()
		m, err := status.New(status.Config{API: &quietAPI{tb: t}, Pods: book, Deletion: newCleanup()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		const pods = 1000
		for i := range pods {
			p, s := threeContainers(types.UID(fmt.Sprint(i)))
			s.StartTime = &metav1.Time{Time: time.Now()}
			p.ResourceVersion, p.Status = "1", s
			book.AddPod(p)
			m.SetPodStatus(p, s) // as the API server has it
		}
		synctest.Wait()
		perPass := testing.AllocsPerRun(5, func() { time.Sleep(10 * time.Second); synctest.Wait() })
		if perPass > pods/10 {
			t.Errorf("a full pass over %d pods makes %v allocations", pods, perPass)
		}
		stop()
		running.Wait()
	})
}

func BenchmarkSetPodStatus(b *testing.B) {
	for name, change := range map[string]bool{"unchanged": false, "changed": true} {
		b.Run(name, func(b *testing.B) {
			m := newLocal(b)
			p, s := threeContainers("u")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if change {
					s.ContainerStatuses[1].RestartCount = int32(i)
				}
				m.SetPodStatus(p, s)
			}
		})
	}
}

func BenchmarkSetContainerReadiness(b *testing.B) {
	book := pod.NewManager()
	m, err := status.New(status.Config{Pods: book})
	if err != nil {
		b.Fatal(err)
	}
	p, s := threeContainers("u")
	book.AddPod(p)
	m.SetPodStatus(p, s)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.SetContainerReadiness("u", observed.ContainerID{Runtime: "test", ID: "1"}, i%2 == 0)
	}
}

func TestBUG2AnObjectThatTheWatchHasLostIsNotReadWhenThereIsNothingToTell(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()

		n = n.restarted(nil)
		defer n.stop()
		p = n.held(p)
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Forget()
		n.book.RemovePod(p)
		n.Reconcile(p)
		if reads := n.writes("get"); reads > 0 {
			t.Fatalf("%d reads", reads)
		}
		n.SetPodStatus(p, succeededStatus())
		if reads, patches := n.writes("get"), n.writes("PATCH"); reads != 1 || patches != 1 {
			t.Fatalf("a status of a pod that the address book lost took %d reads and %d patches, want one of each", reads, patches)
		}
	})
}
