package manager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heraldnode/herald/eviction/manager"
	"github.com/heraldnode/herald/heraldtest"
)

// node is a node with pods.
type node struct {
	mu       sync.Mutex // guards all below
	pods     map[string]*v1.Pod
	volumes  int64 // usage of each volume
	layers   int64 // usage of each container
	duration time.Duration
	err      error
	measured []string
	events   []string
	killed   map[string]v1.PodStatus
}

// set changes the node between passes.
func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) list() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.pods))
}

func (n *node) VolumeUsage(_ context.Context, pod *v1.Pod) (map[string]int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.measured = append(n.measured, pod.Name)
	time.Sleep(n.duration)
	usage := map[string]int64{}
	for _, volume := range pod.Spec.Volumes {
		usage[volume.Name] = n.volumes
	}
	return usage, n.err
}

func (n *node) ContainerUsage(_ context.Context, pod *v1.Pod) (map[string]int64, int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	usage := map[string]int64{}
	for _, container := range pod.Spec.Containers {
		usage[container.Name] = n.layers
	}
	return usage, 0, n.err
}

func (n *node) Event(object runtime.Object, eventType, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := ""
	if pod, ok := object.(*v1.Pod); ok {
		name = pod.Name
	}
	n.events = append(n.events, fmt.Sprint(eventType, " ", reason, " ", name, ": ", message))
}

func (n *node) kill(_ context.Context, pod *v1.Pod, gracePeriod time.Duration, setStatus func(*v1.PodStatus)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := v1.PodStatus{Message: gracePeriod.String()}
	setStatus(&status)
	n.killed[pod.Name] = status
	delete(n.pods, pod.Name)
	return nil
}

// run runs the manager of a node with the pods in a synctest bubble.
func run(t *testing.T, pods []*v1.Pod, test func(t *testing.T, n *node), configure ...func(*manager.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{pods: map[string]*v1.Pod{}, killed: map[string]v1.PodStatus{}}
		for _, pod := range pods {
			n.pods[pod.Name] = pod
		}
		config := manager.Config{
			Pods: n.list, Volumes: n, Containers: n, Kill: n.kill, Events: n,
		}
		for _, change := range configure {
			change(&config)
		}
		m, err := manager.New(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(time.Second) // between passes
		test(t, n)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass waits for the next passes.
func pass(count int) {
	time.Sleep(time.Duration(count) * 10 * time.Second)
	synctest.Wait()
}

func withVolume(pod *v1.Pod) {
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Mi"))},
	}}}
}

func withStorageLimit(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
}

func critical(pod *v1.Pod) { pod.Spec.Priority = new(int32(2_000_000_000)) }

func TestEVI25_EmptyDirAboveLimit(t *testing.T) {
	registry := prometheus.NewRegistry()
	pods := []*v1.Pod{heraldtest.NewPod("web", withVolume), heraldtest.NewPod("free")}
	run(t, pods, func(t *testing.T, n *node) {
		pass(1)
		if len(n.killed) > 0 {
			t.Fatal("evicted below the limit")
		}
		n.set(func() { n.volumes = 2 << 20 })
		pass(2)
		const message = `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `
		want := map[string]v1.PodStatus{"web": {Phase: v1.PodFailed, Reason: "Evicted", Message: message, Conditions: []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet", Message: message, // EVI-20
		}}}}
		if diff := cmp.Diff(want, n.killed, cmpopts.IgnoreFields(v1.PodCondition{}, "LastTransitionTime")); diff != "" {
			t.Errorf("evicted pods (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Warning Evicted web: " + message}, n.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if slices.Contains(n.measured, "free") {
			t.Error("a pod without limits was measured")
		}
	}, func(config *manager.Config) { config.Metrics = registry })
	if n, err := testutil.GatherAndCount(registry, "kubelet_evictions"); err != nil || n != 1 {
		t.Errorf("got %d series of kubelet_evictions, error %v", n, err)
	}
}

func TestEVI26_StorageAboveLimit(t *testing.T) {
	run(t, []*v1.Pod{heraldtest.NewPod("web", withStorageLimit)}, func(t *testing.T, n *node) {
		n.set(func() { n.layers = 2 << 20 })
		pass(1)
		if n.killed["web"].Message != "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. " {
			t.Errorf("got %+v", n.killed)
		}
	})
}

func TestEVI18_CriticalPodReported(t *testing.T) {
	run(t, []*v1.Pod{heraldtest.NewPod("dns", withVolume, critical)}, func(t *testing.T, n *node) {
		n.set(func() { n.volumes = 2 << 20 })
		pass(3)
		want := []string{`Warning LocalStorageLimitExceeded dns: Usage of EmptyDir volume "v" exceeds the limit "1Mi". ` +
			"Static and critical pods are not evicted."}
		if diff := cmp.Diff(want, n.events); diff != "" || len(n.killed) > 0 {
			t.Errorf("evicted %v, events (-want +got):\n%s", n.killed, diff)
		}
	})
}

// A volume with millions of files must not keep the disk busy.
func TestManager_SlowMeasurement(t *testing.T) {
	run(t, []*v1.Pod{heraldtest.NewPod("web", withVolume)}, func(t *testing.T, n *node) {
		n.set(func() { n.duration = 5 * time.Second })
		pass(12)
		if len(n.measured) > 3 {
			t.Errorf("measured %d times in two minutes, want at most a tenth of the time", len(n.measured))
		}
	})
}

// EVI-28: a measurement that fails does not protect a pod that is known to exceed its limit.
func TestManager_PartialMeasurement(t *testing.T) {
	run(t, []*v1.Pod{heraldtest.NewPod("web", withVolume)}, func(t *testing.T, n *node) {
		n.set(func() { n.err = errors.New("too many files") })
		pass(1)
		if len(n.killed) > 0 {
			t.Fatal("evicted for an error")
		}
		n.set(func() { n.volumes = 2 << 20 })
		pass(1)
		if len(n.killed) != 1 {
			t.Error("not evicted")
		}
	})
}

func TestConfig_Required(t *testing.T) {
	if _, err := manager.New(manager.Config{Interval: -1}); err == nil {
		t.Error("got no error, want one")
	}
}
