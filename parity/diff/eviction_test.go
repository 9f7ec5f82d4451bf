package diff_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/utils/clock"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

// oneDisk is a node with one disk and scripted statistics.
type oneDisk struct{ statsapi.Summary }

func (d *oneDisk) Get(context.Context, bool) (*statsapi.Summary, error) { return &d.Summary, nil }
func (d *oneDisk) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return &d.Summary, nil
}
func (d *oneDisk) HasDedicatedImageFs(context.Context) (bool, error)     { return false, nil }
func (d *oneDisk) HasDedicatedContainerFs(context.Context) (bool, error) { return false, nil }

func (d *oneDisk) DeleteUnusedImages(context.Context) error        { return nil }
func (d *oneDisk) DeleteAllUnusedContainers(context.Context) error { return nil }

// randomStorageLimit returns no limit, zero, or one around the random usages.
func randomStorageLimit(random *rand.Rand) *resource.Quantity {
	limits := []string{"0", "1Ki", "10Ki", "20Ki", "20000", "1500m"}
	if random.IntN(3) == 0 {
		return nil
	}
	return new(resource.MustParse(limits[random.IntN(len(limits))]))
}

func randomStoragePod(random *rand.Rand, name string) *v1.Pod {
	container := func(name string) v1.Container {
		c := v1.Container{Name: name}
		if limit := randomStorageLimit(random); limit != nil {
			c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: *limit}
		}
		return c
	}
	return heraldtest.NewPod(name, func(pod *v1.Pod) {
		pod.UID, pod.Spec.Containers = types.UID(name), nil
		for i := range 1 + random.IntN(3) {
			pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprint("c", i)))
		}
		if random.IntN(4) == 0 {
			pod.Spec.InitContainers = []v1.Container{container("init")}
		}
		for i := range random.IntN(3) {
			source := &v1.EmptyDirVolumeSource{SizeLimit: randomStorageLimit(random)}
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v1.VolumeSource{EmptyDir: source}})
		}
		switch random.IntN(8) {
		case 0:
			pod.Annotations = map[string]string{podid.SourceAnnotation: "file"}
		case 1:
			pod.Spec.Priority = new(int32(2_000_000_000))
		}
	})
}

// randomStorageUsage returns the same usage for both.
func randomStorageUsage(random *rand.Rand, pod *v1.Pod) (eviction.Usage, statsapi.PodStats) {
	usage := eviction.Usage{Volumes: map[string]int64{}, Containers: map[string]int64{}, Files: random.Int64N(4096)}
	stats := statsapi.PodStats{PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	file := func(bytes int64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: new(uint64(bytes))} }
	for _, volume := range pod.Spec.Volumes {
		bytes := random.Int64N(24 << 10)
		usage.Volumes[volume.Name] = bytes
		stats.VolumeStats = append(stats.VolumeStats, statsapi.VolumeStats{Name: volume.Name, FsStats: *file(bytes)})
	}
	for _, container := range pod.Spec.Containers {
		logs, layer := random.Int64N(8<<10), random.Int64N(8<<10)
		usage.Containers[container.Name] = logs + layer
		stats.Containers = append(stats.Containers, statsapi.ContainerStats{Name: container.Name, Logs: file(logs), Rootfs: file(layer)})
	}
	stats.EphemeralStorage = file(usage.Total())
	return usage, stats
}

// The kubelet's eviction manager and Herald see the same pods and the same usage.
func TestEVI24_SameEvictions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	node := &oneDisk{}
	var pods []*v1.Pod
	want, got := map[string]string{}, map[string]string{}
	for i := range 2000 {
		pod := randomStoragePod(random, fmt.Sprint("pod-", i))
		usage, stats := randomStorageUsage(random, pod)
		pods, node.Pods = append(pods, pod), append(node.Pods, stats)
		if violation := eviction.CheckLocalLimits(pod, usage); violation != nil && !derive.IsCritical(pod) {
			got[pod.Name] = violation.Message
		}
	}
	kill := func(pod *v1.Pod, _ bool, gracePeriod *int64, setStatus func(*v1.PodStatus)) error {
		var status v1.PodStatus
		setStatus(&status)
		want[pod.Name] = status.Message
		if *gracePeriod != 1 || status.Phase != v1.PodFailed || status.Reason != eviction.Reason || len(status.Conditions) > 0 {
			t.Errorf("EVI-20: got grace period %d, status %+v", *gracePeriod, status)
		}
		return nil
	}
	manager, _ := kubelet.NewManager(node, kubelet.Config{}, kill, node, node, &record.FakeRecorder{}, &v1.ObjectReference{}, clock.RealClock{}, true)
	done, passes := make(chan struct{}), 0
	manager.Start(t.Context(), node, func() []*v1.Pod {
		if passes++; passes > 1 {
			close(done)
			runtime.Goexit() // the kubelet's loop never ends
		}
		return pods
	}, func(*v1.Pod) bool { return true }, 0)
	<-done
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 100 {
		t.Errorf("evictions of %d pods (-kubelet +Herald):\n%s", len(want), diff)
	}
}
